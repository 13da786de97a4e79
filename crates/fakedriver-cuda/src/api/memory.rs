//! Memory: linear, pitched, managed and pinned.

use std::ffi::c_void;

use crate::abi::{Answer, Error};
use crate::call::{offer, put};
use crate::context;
use crate::memory::{Kind, On};
use crate::process::{Locked, enter};

pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    let unit = process.context(id)?.unit;
    let usable = process.machine.usable(unit);
    offer(free, usable.saturating_sub(process.machine.used(unit)) as usize);
    offer(total, usable as usize);
    Ok(())
}

/// Allocates in the current context; what pools and graphs keep for later is given back before it is refused.
fn allocate(process: &mut Locked, size: u64) -> Result<u64, Error> {
    let context = process.current()?;
    process.unsafe_in_capture()?;
    let (machine, seat, unit) = process.on(context)?;
    let on = On { machine, seat: &seat, unit, context };
    if let Ok(region) = process.memory.allocate(&on, size) {
        return Ok(region.base);
    }
    if size == 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.memory.release_unused(&on);
    process.memory.allocate(&on, size).map(|region| region.base)
}

pub(crate) fn cuMemAlloc_v2(dptr: *mut u64, bytesize: usize) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if dptr.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let base = allocate(&mut process, bytesize as u64)?;
    put(dptr, base)
}

pub(crate) fn cuMemAllocPitch_v2(
    dptr: *mut u64,
    pPitch: *mut usize,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
) -> Answer {
    let mut process = enter()?;
    process.current()?;
    let wrong = !matches!(ElementSizeBytes, 4 | 8 | 16) || WidthInBytes == 0 || Height == 0;
    if dptr.is_null() || pPitch.is_null() || wrong {
        return Err(Error::INVALID_VALUE);
    }
    let pitch = (WidthInBytes as u64).checked_next_multiple_of(512).ok_or(Error::INVALID_VALUE)?;
    let size = pitch.checked_mul(Height as u64).ok_or(Error::INVALID_VALUE)?;
    let base = allocate(&mut process, size)?;
    put(dptr, base)?;
    put(pPitch, pitch as usize)
}

pub(crate) fn cuMemAllocManaged(dptr: *mut u64, bytesize: usize, flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if dptr.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    process.unsafe_in_capture()?;
    let (machine, seat, unit) = process.on(context)?;
    let on = On { machine, seat: &seat, unit, context };
    let region = process.memory.allocate_managed(&on, bytesize as u64, flags)?;
    put(dptr, region.base)
}

pub(crate) fn cuMemFree_v2(dptr: u64) -> Answer {
    let mut process = enter()?;
    let current = process.current()?;
    if dptr == 0 {
        return Ok(());
    }
    let region = *process.memory.find(dptr).filter(|r| r.base == dptr).ok_or(Error::INVALID_VALUE)?;
    process.unsafe_in_capture()?;
    // Freeing waits for everything that may still use the memory.
    let owner = if process.contexts.contains_key(&region.context) { region.context } else { current };
    let mut process = context::settle(process, owner)?;
    let (machine, seat) = (process.machine, process.seat);
    match region.kind {
        Kind::Pooled { .. } => {
            let on = On { machine, seat: &seat, unit: region.unit, context: owner };
            process.memory.free_to_pool(dptr, 0)?;
            process.memory.settle_free(dptr, 0);
            process.memory.release_beyond_thresholds(&on);
            Ok(())
        }
        Kind::Graph => process.memory.free_graph_allocation(dptr),
        _ => process.memory.free(machine, &seat, dptr),
    }
}

pub(crate) fn cuMemGetAddressRange_v2(pbase: *mut u64, psize: *mut usize, dptr: u64) -> Answer {
    let mut process = enter()?;
    process.current()?;
    let region = *process.memory.find(dptr).ok_or(Error::NOT_FOUND)?;
    offer(pbase, region.base);
    offer(psize, region.size as usize);
    Ok(())
}

pub(crate) fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> Answer {
    cuMemHostAlloc(pp, bytesize, 0)
}

pub(crate) fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if pp.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    process.unsafe_in_capture()?;
    if bytesize == 0 {
        return put(pp, std::ptr::null_mut());
    }
    let unit = process.context(context)?.unit;
    let region = process.memory.allocate_host(unit, context, bytesize as u64, Flags)?;
    put(pp, region.base as *mut c_void)
}

pub(crate) fn cuMemFreeHost(p: *mut c_void) -> Answer {
    let mut process = enter()?;
    let current = process.current()?;
    process.unsafe_in_capture()?;
    if p.is_null() {
        return Ok(());
    }
    let owner = process.memory.find(p as u64).map_or(current, |r| r.context);
    let owner = if process.contexts.contains_key(&owner) { owner } else { current };
    let mut process = context::settle(process, owner)?;
    process.memory.free_host(p as u64)
}

pub(crate) fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    process.unsafe_in_capture()?;
    let unit = process.context(context)?.unit;
    process.memory.register_host(unit, context, p as u64, bytesize as u64, Flags)
}

pub(crate) fn cuMemHostUnregister(p: *mut c_void) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if p.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let inside = process.memory.find(p as u64).is_some_and(|r| r.is_host() && r.base != p as u64);
    if inside {
        return Err(Error::INVALID_VALUE);
    }
    process.memory.unregister_host(p as u64)
}

pub(crate) fn cuMemHostGetDevicePointer_v2(pdptr: *mut u64, p: *mut c_void, Flags: u32) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if Flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.memory.find(p as u64).filter(|r| r.is_host()).ok_or(Error::INVALID_VALUE)?;
    put(pdptr, p as u64)
}

pub(crate) fn cuMemHostGetFlags(pFlags: *mut u32, p: *mut c_void) -> Answer {
    let mut process = enter()?;
    process.current()?;
    let region = process.memory.find(p as u64).ok_or(Error::INVALID_VALUE)?;
    match region.kind {
        // What the driver allocates is always mapped.
        Kind::HostAllocated { flags } => put(pFlags, flags | 2),
        Kind::HostRegistered { flags } => put(pFlags, flags),
        _ => Err(Error::INVALID_VALUE),
    }
}

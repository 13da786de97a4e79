//! Memory: linear, pitched, managed and pinned; copies and sets.

use std::ffi::c_void;

use crate::abi::{Answer, Error};
use crate::call::{offer, put};
use crate::context;
use crate::engine::Work;
use crate::memory::{Kind, On};
use crate::process::{Process, enter};

pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    let unit = process.context(id)?.unit;
    let usable = process.machine.usable(unit);
    offer(free, usable.saturating_sub(process.machine.used(unit)) as usize);
    offer(total, usable as usize);
    Ok(())
}

pub(crate) fn cuMemAlloc_v2(dptr: *mut u64, bytesize: usize) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if dptr.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let (machine, seat, unit) = process.on(context)?;
    let region = process.memory.allocate(&On { machine, seat: &seat, unit, context }, bytesize as u64)?;
    put(dptr, region.base)
}

pub(crate) fn cuMemAllocPitch_v2(
    dptr: *mut u64,
    pPitch: *mut usize,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if dptr.is_null() || pPitch.is_null() || !matches!(ElementSizeBytes, 4 | 8 | 16) || WidthInBytes == 0 || Height == 0
    {
        return Err(Error::INVALID_VALUE);
    }
    let pitch = (WidthInBytes as u64).checked_next_multiple_of(512).ok_or(Error::INVALID_VALUE)?;
    let size = pitch.checked_mul(Height as u64).ok_or(Error::INVALID_VALUE)?;
    let (machine, seat, unit) = process.on(context)?;
    let region = process.memory.allocate(&On { machine, seat: &seat, unit, context }, size)?;
    put(dptr, region.base)?;
    put(pPitch, pitch as usize)
}

pub(crate) fn cuMemAllocManaged(dptr: *mut u64, bytesize: usize, flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if dptr.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let (machine, seat, unit) = process.on(context)?;
    let region =
        process.memory.allocate_managed(&On { machine, seat: &seat, unit, context }, bytesize as u64, flags)?;
    put(dptr, region.base)
}

pub(crate) fn cuMemFree_v2(dptr: u64) -> Answer {
    let mut process = enter()?;
    let current = process.current()?;
    if dptr == 0 {
        return Ok(());
    }
    let owner = process.memory.find(dptr).filter(|r| r.base == dptr).ok_or(Error::INVALID_VALUE)?.context;
    // Freeing waits for everything that may still use the memory.
    let owner = if process.contexts.contains_key(&owner) { owner } else { current };
    let mut process = context::synchronize(process, owner)?;
    let (machine, seat) = (process.machine, process.seat);
    process.memory.free(machine, &seat, dptr)
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
    let unit = process.context(context)?.unit;
    let region = process.memory.allocate_host(unit, context, bytesize as u64, Flags)?;
    put(pp, region.base as *mut c_void)
}

pub(crate) fn cuMemFreeHost(p: *mut c_void) -> Answer {
    let mut process = enter()?;
    let current = process.current()?;
    let owner = process.memory.find(p as u64).map_or(current, |r| r.context);
    let owner = if process.contexts.contains_key(&owner) { owner } else { current };
    let mut process = context::synchronize(process, owner)?;
    process.memory.free_host(p as u64)
}

pub(crate) fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    let unit = process.context(context)?.unit;
    process.memory.register_host(unit, context, p as u64, bytesize as u64, Flags)
}

pub(crate) fn cuMemHostUnregister(p: *mut c_void) -> Answer {
    let mut process = enter()?;
    process.current()?;
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
        Kind::HostAllocated { flags } | Kind::HostRegistered { flags } => put(pFlags, flags),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Nanoseconds a copy takes: 55 GB/s to and from the host, 4,800 GB/s read and written on the card.
fn copy_time(bytes: u64, crosses: bool) -> u64 {
    if crosses { bytes / 55 } else { bytes * 2 / 4800 }
}

/// The work of a copy of `size` bytes in one row.
fn copy_work(process: &Process, to: u64, from: u64, size: u64, stream: u64) -> Work {
    let host = |address: u64| process.memory.find(address).is_none_or(|r| r.is_host());
    let crosses = host(to) || host(from);
    let (target, source) = (process.memory.place(to), process.memory.place(from));
    let effect = Box::new(move |p: &mut Process| {
        p.memory.copy(target, source, size);
        Ok(())
    });
    let time = copy_time(size, crosses);
    if crosses {
        Work::Transfer { time, effect: Some(effect) }
    } else {
        let width = process.engine.stream(stream).map_or(1, |s| process.machine.sms(s.unit));
        Work::Kernel { time, width, effect: Some(effect) }
    }
}

/// A copy in a stream; waits for it if `blocking`, or if the program's memory may not stay as it is.
fn copy(to: u64, from: u64, size: usize, stream: u64, blocking: bool) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if size == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let pageable = process.memory.find(from).is_none() || process.memory.find(to).is_none();
    let work = copy_work(&process, to, from, size as u64, id);
    process.submit(id, work, Vec::new());
    if blocking || pageable {
        drop(crate::api::stream::synchronize(process, id)?);
    }
    Ok(())
}

/// Checks that a device address is one.
fn check_device(address: u64, size: usize) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if size > 0 && process.memory.find_range(address, size as u64).is_none() {
        Err(Error::INVALID_VALUE)
    } else {
        Ok(())
    }
}

pub(crate) fn cuMemcpy(dst: u64, src: u64, ByteCount: usize) -> Answer {
    copy(dst, src, ByteCount, 0, true)
}

pub(crate) fn cuMemcpyAsync(dst: u64, src: u64, ByteCount: usize, hStream: u64) -> Answer {
    copy(dst, src, ByteCount, hStream, false)
}

pub(crate) fn cuMemcpyHtoD_v2(dstDevice: u64, srcHost: *const c_void, ByteCount: usize) -> Answer {
    check_device(dstDevice, ByteCount)?;
    copy(dstDevice, srcHost as u64, ByteCount, 0, true)
}

pub(crate) fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: u64, ByteCount: usize) -> Answer {
    check_device(srcDevice, ByteCount)?;
    copy(dstHost as u64, srcDevice, ByteCount, 0, true)
}

pub(crate) fn cuMemcpyDtoD_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize) -> Answer {
    check_device(dstDevice, ByteCount)?;
    check_device(srcDevice, ByteCount)?;
    copy(dstDevice, srcDevice, ByteCount, 0, false)
}

pub(crate) fn cuMemcpyHtoDAsync_v2(dstDevice: u64, srcHost: *const c_void, ByteCount: usize, hStream: u64) -> Answer {
    check_device(dstDevice, ByteCount)?;
    copy(dstDevice, srcHost as u64, ByteCount, hStream, false)
}

pub(crate) fn cuMemcpyDtoHAsync_v2(dstHost: *mut c_void, srcDevice: u64, ByteCount: usize, hStream: u64) -> Answer {
    check_device(srcDevice, ByteCount)?;
    copy(dstHost as u64, srcDevice, ByteCount, hStream, false)
}

pub(crate) fn cuMemcpyDtoDAsync_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize, hStream: u64) -> Answer {
    check_device(dstDevice, ByteCount)?;
    check_device(srcDevice, ByteCount)?;
    copy(dstDevice, srcDevice, ByteCount, hStream, false)
}

/// Sets rows of `width` elements, `pitch` bytes apart.
fn set(
    target: u64,
    pitch: usize,
    value: u32,
    element: u64,
    width: usize,
    height: usize,
    stream: u64,
    blocking: bool,
) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    let bytes = element * width as u64;
    let rows = height as u64;
    if bytes == 0 || rows == 0 {
        return Ok(());
    }
    let span = (rows - 1) * pitch as u64 + bytes;
    let known = process.memory.find_range(target, span).is_some();
    if !known || !target.is_multiple_of(element) || (rows > 1 && (pitch as u64) < bytes) {
        return Err(Error::INVALID_VALUE);
    }
    let effect = Box::new(move |p: &mut Process| {
        for row in 0..rows {
            let place = p.memory.place(target + row * pitch as u64);
            p.memory.fill(place, value, element, width as u64);
        }
        Ok(())
    });
    let sms = process.engine.stream(id).map_or(1, |s| process.machine.sms(s.unit));
    process.submit(
        id,
        Work::Kernel { time: copy_time(bytes * rows / 2, false), width: sms, effect: Some(effect) },
        Vec::new(),
    );
    let host = process.memory.find(target).is_some_and(|r| r.is_host());
    if blocking && host {
        drop(crate::api::stream::synchronize(process, id)?);
    }
    Ok(())
}

pub(crate) fn cuMemsetD8_v2(dstDevice: u64, uc: u8, N: usize) -> Answer {
    set(dstDevice, 0, uc.into(), 1, N, 1, 0, true)
}

pub(crate) fn cuMemsetD16_v2(dstDevice: u64, us: u16, N: usize) -> Answer {
    set(dstDevice, 0, us.into(), 2, N, 1, 0, true)
}

pub(crate) fn cuMemsetD32_v2(dstDevice: u64, ui: u32, N: usize) -> Answer {
    set(dstDevice, 0, ui, 4, N, 1, 0, true)
}

pub(crate) fn cuMemsetD8Async(dstDevice: u64, uc: u8, N: usize, hStream: u64) -> Answer {
    set(dstDevice, 0, uc.into(), 1, N, 1, hStream, false)
}

pub(crate) fn cuMemsetD16Async(dstDevice: u64, us: u16, N: usize, hStream: u64) -> Answer {
    set(dstDevice, 0, us.into(), 2, N, 1, hStream, false)
}

pub(crate) fn cuMemsetD32Async(dstDevice: u64, ui: u32, N: usize, hStream: u64) -> Answer {
    set(dstDevice, 0, ui, 4, N, 1, hStream, false)
}

pub(crate) fn cuMemsetD2D8_v2(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize) -> Answer {
    set(dstDevice, dstPitch, uc.into(), 1, Width, Height, 0, true)
}

pub(crate) fn cuMemsetD2D16_v2(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize) -> Answer {
    set(dstDevice, dstPitch, us.into(), 2, Width, Height, 0, true)
}

pub(crate) fn cuMemsetD2D32_v2(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize) -> Answer {
    set(dstDevice, dstPitch, ui, 4, Width, Height, 0, true)
}

pub(crate) fn cuMemsetD2D8Async(
    dstDevice: u64,
    dstPitch: usize,
    uc: u8,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(dstDevice, dstPitch, uc.into(), 1, Width, Height, hStream, false)
}

pub(crate) fn cuMemsetD2D16Async(
    dstDevice: u64,
    dstPitch: usize,
    us: u16,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(dstDevice, dstPitch, us.into(), 2, Width, Height, hStream, false)
}

pub(crate) fn cuMemsetD2D32Async(
    dstDevice: u64,
    dstPitch: usize,
    ui: u32,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false)
}

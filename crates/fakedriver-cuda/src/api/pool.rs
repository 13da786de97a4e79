//! Memory in the order of a stream, and the pools it comes from.

use std::ffi::c_void;

use crate::abi::{Answer, CUmemAccessDesc_v1, CUmemLocation_v1, CUmemPoolProps_v1, CUmemPoolPtrExportData_v1, Error};
use crate::api::device::on_device;
use crate::call::{array, get, put};
use crate::memory::On;
use crate::memory::pool::{Home, Pool};
use crate::memory::shared::Ticket;
use crate::op::Op;
use crate::process::{self, Locked, Process, enter};

const PINNED: u32 = 1;
const DEVICE: u32 = 1;

/// The pool a device uses, its default one at first.
pub(crate) fn current_pool(process: &mut Process, device: usize) -> Result<u64, Error> {
    match process.devices.get(device).ok_or(Error::INVALID_DEVICE)?.pool {
        Some(pool) if process.memory.pool(pool).is_ok() => Ok(pool),
        _ => default_pool(process, device),
    }
}

fn default_pool(process: &mut Process, device: usize) -> Result<u64, Error> {
    if let Some(pool) = process.devices.get(device).ok_or(Error::INVALID_DEVICE)?.default_pool {
        return Ok(pool);
    }
    let (id, unit) = (process.handle(), process.devices[device].unit);
    let mut pool = Pool::new(Home::Device(unit), i32::try_from(device).unwrap_or(0), 0, 0);
    pool.default_of = Some(device);
    process.memory.add_pool(id, pool);
    process.devices[device].default_pool = Some(id);
    Ok(id)
}

pub(crate) fn cuDeviceGetDefaultMemPool(pool_out: *mut u64, dev: i32) -> Answer {
    let (mut process, device, _) = on_device(dev)?;
    if pool_out.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let pool = default_pool(&mut process, device)?;
    put(pool_out, pool)
}

pub(crate) fn cuDeviceGetMemPool(pool: *mut u64, dev: i32) -> Answer {
    let (mut process, device, _) = on_device(dev)?;
    if pool.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let found = current_pool(&mut process, device)?;
    put(pool, found)
}

pub(crate) fn cuDeviceSetMemPool(dev: i32, pool: u64) -> Answer {
    let (mut process, device, unit) = on_device(dev)?;
    if process.memory.pool(pool)?.home != Home::Device(unit) {
        return Err(Error::INVALID_VALUE);
    }
    process.devices[device].pool = Some(pool);
    Ok(())
}

/// The device of a location, which must be a device's.
fn located(location: *mut CUmemLocation_v1, kind: u32) -> Result<i32, Error> {
    let location = get(location)?;
    if location.kind != DEVICE || kind != PINNED { Err(Error::NOT_SUPPORTED) } else { Ok(location.id) }
}

pub(crate) fn cuMemGetDefaultMemPool(pool_out: *mut u64, location: *mut CUmemLocation_v1, kind: u32) -> Answer {
    cuDeviceGetDefaultMemPool(pool_out, located(location, kind)?)
}

pub(crate) fn cuMemGetMemPool(pool: *mut u64, location: *mut CUmemLocation_v1, kind: u32) -> Answer {
    cuDeviceGetMemPool(pool, located(location, kind)?)
}

pub(crate) fn cuMemSetMemPool(location: *mut CUmemLocation_v1, kind: u32, pool: u64) -> Answer {
    cuDeviceSetMemPool(located(location, kind)?, pool)
}

pub(crate) fn cuMemPoolCreate(pool: *mut u64, poolProps: *const CUmemPoolProps_v1) -> Answer {
    let mut process = enter()?;
    let asked = get(poolProps)?;
    if pool.is_null() || asked.kind != PINNED || asked.handle_types & !1 != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let home = match asked.location.kind {
        DEVICE => {
            let device = usize::try_from(asked.location.id).map_err(|_| Error::INVALID_VALUE)?;
            Home::Device(process.devices.get(device).ok_or(Error::INVALID_VALUE)?.unit)
        }
        2..=4 => Home::Host,
        _ => return Err(Error::INVALID_VALUE),
    };
    let id = process.handle();
    let new = Pool::new(home, asked.location.id, asked.handle_types, asked.max_size as u64);
    process.memory.add_pool(id, new);
    put(pool, id)
}

/// This process on the unit a pool is on.
fn with_pool<T>(
    process: &mut Process,
    pool: u64,
    act: impl FnOnce(&mut Process, &On) -> Result<T, Error>,
) -> Result<T, Error> {
    let unit = match process.memory.pool(pool)?.home {
        Home::Device(unit) => unit,
        Home::Host => process.devices[0].unit,
    };
    let (machine, seat) = (process.machine, process.seat);
    act(process, &On { machine, seat: &seat, unit, context: 0 })
}

pub(crate) fn cuMemPoolDestroy(pool: u64) -> Answer {
    let mut process = enter()?;
    with_pool(&mut process, pool, |p, on| p.memory.destroy_pool(on, pool))?;
    process.devices.iter_mut().filter(|d| d.pool == Some(pool)).for_each(|d| d.pool = None);
    Ok(())
}

pub(crate) fn cuMemPoolTrimTo(pool: u64, minBytesToKeep: usize) -> Answer {
    let mut process = enter()?;
    process.step(divvy_fakedriver::sys::now());
    with_pool(&mut process, pool, |p, on| p.memory.trim_pool(on, pool, minBytesToKeep as u64))
}

pub(crate) fn cuMemPoolGetAttribute(pool: u64, attr: u32, value: *mut c_void) -> Answer {
    let process = enter()?;
    let pool = process.memory.pool(pool)?;
    match attr {
        1..=3 => put(value.cast::<i32>(), pool.reuse[attr as usize - 1]),
        4 => put(value.cast::<u64>(), pool.threshold),
        5 => put(value.cast::<u64>(), pool.reserved),
        6 => put(value.cast::<u64>(), pool.reserved_high),
        7 => put(value.cast::<u64>(), pool.used),
        8 => put(value.cast::<u64>(), pool.used_high),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(crate) fn cuMemPoolSetAttribute(pool: u64, attr: u32, value: *mut c_void) -> Answer {
    let mut process = enter()?;
    let pool = process.memory.pool_mut(pool)?;
    match attr {
        1..=3 => pool.reuse[attr as usize - 1] = get(value.cast::<i32>())?,
        4 => pool.threshold = get(value.cast::<u64>())?,
        // High-water marks can only be reset.
        6 if get(value.cast::<u64>())? == 0 => pool.reserved_high = pool.reserved,
        8 if get(value.cast::<u64>())? == 0 => pool.used_high = pool.used,
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuMemPoolSetAccess(pool: u64, map: *const CUmemAccessDesc_v1, count: usize) -> Answer {
    let mut process = enter()?;
    let rights = array(map, count)?;
    let devices = process.devices.len();
    let pool = process.memory.pool_mut(pool)?;
    for right in rights {
        let known = right.location.kind == DEVICE && usize::try_from(right.location.id).is_ok_and(|d| d < devices);
        let own = right.location.id == pool.device && right.flags != 3;
        if own {
            return Err(Error::INVALID_DEVICE);
        }
        if !known || !matches!(right.flags, 0 | 1 | 3) {
            return Err(Error::INVALID_VALUE);
        }
        pool.access.insert(right.location.id, right.flags);
    }
    Ok(())
}

pub(crate) fn cuMemPoolGetAccess(flags: *mut u32, memPool: u64, location: *mut CUmemLocation_v1) -> Answer {
    let process = enter()?;
    let location = get(location)?;
    let pool = process.memory.pool(memPool)?;
    if location.kind != DEVICE || usize::try_from(location.id).map_or(true, |d| d >= process.devices.len()) {
        return Err(Error::INVALID_VALUE);
    }
    let default = if location.id == pool.device { 3 } else { 0 };
    put(flags, pool.access.get(&location.id).copied().unwrap_or(default))
}

/// Allocates for a stream. If there is too little, waits for frees that streams have ahead of them, and tries again.
fn allocate(place: *mut u64, bytes: usize, pool: Option<u64>, stream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    if bytes == 0 {
        return put(place, 0);
    }
    let context = process.engine.stream(id).map_or(0, |s| s.context);
    let pool = match pool {
        Some(pool) => pool,
        None => {
            let device = process.context(context)?.device;
            current_pool(&mut process, device)?
        }
    };
    if process.graphs.capture_of(id).is_some() {
        process.memory.pool(pool)?;
        let (address, unit) = (process.memory.graph_address(bytes as u64)?, process.context(context)?.unit);
        process.enqueue(id, Op::Allocate { unit, address, bytes: bytes as u64 })?;
        return put(place, address);
    }
    process.step(divvy_fakedriver::sys::now());
    let try_once = |p: &mut Process| {
        with_pool(p, pool, |p, on| p.memory.allocate_from_pool(on, pool, bytes as u64, id, context)).map(|r| r.base)
    };
    let first = try_once(&mut process);
    let base = match first {
        Err(Error::OUT_OF_MEMORY) => {
            let mut process = make_room(process, pool)?;
            try_once(&mut process)?
        }
        other => other?,
    };
    put(place, base)
}

/// Waits for pending frees, then lets all pools give back what they do not use.
fn make_room(process: Locked, pool: u64) -> Result<Locked, Error> {
    let (mut process, ()) = process::wait(process, |p| {
        let stuck = !p.engine.can_progress();
        (stuck || !p.memory.has_pending_frees()).then_some(())
    });
    with_pool(&mut process, pool, |p, on| {
        p.memory.release_unused(on);
        Ok(())
    })?;
    Ok(process)
}

pub(crate) fn cuMemAllocAsync(dptr: *mut u64, bytesize: usize, hStream: u64) -> Answer {
    allocate(dptr, bytesize, None, hStream)
}

pub(crate) fn cuMemAllocFromPoolAsync(dptr: *mut u64, bytesize: usize, pool: u64, hStream: u64) -> Answer {
    allocate(dptr, bytesize, Some(pool), hStream)
}

pub(crate) fn cuMemFreeAsync(dptr: u64, hStream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if dptr == 0 {
        return Ok(());
    }
    process.enqueue(id, Op::Free(dptr))
}

pub(crate) fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: u64,
    handleType: u32,
    flags: u64,
) -> Answer {
    let process = enter()?;
    if handleType != 1 || flags != 0 || process.memory.pool(pool)?.handle_types & 1 == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let file = std::fs::File::open("/dev/null").map_err(|_| Error::UNKNOWN)?;
    put(handle_out.cast::<i32>(), std::os::fd::IntoRawFd::into_raw_fd(file))
}

pub(crate) fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut u64,
    _handle: *mut c_void,
    handleType: u32,
    flags: u64,
) -> Answer {
    let mut process = enter()?;
    if handleType != 1 || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (id, unit) = (process.handle(), process.devices[0].unit);
    // What is in it comes by pointer; nothing can be allocated from it.
    process.memory.add_pool(id, Pool::new(Home::Device(unit), 0, 0, 1));
    put(pool_out, id)
}

pub(crate) fn cuMemPoolExportPointer(shareData_out: *mut CUmemPoolPtrExportData_v1, ptr: u64) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    let (machine, seat, unit) = process.on(context)?;
    let ticket = process.memory.export(&On { machine, seat: &seat, unit, context }, ptr)?;
    put(shareData_out, CUmemPoolPtrExportData_v1 { bytes: ticket.pack() })
}

pub(crate) fn cuMemPoolImportPointer(
    ptr_out: *mut u64,
    pool: u64,
    shareData: *mut CUmemPoolPtrExportData_v1,
) -> Answer {
    let mut process = enter()?;
    process.memory.pool(pool)?;
    let ticket = Ticket::unpack(&get(shareData)?.bytes)?;
    let context = process.current()?;
    let (machine, seat, unit) = process.on(context)?;
    let region = process.memory.import(&On { machine, seat: &seat, unit, context }, &ticket)?;
    put(ptr_out, region.base)
}

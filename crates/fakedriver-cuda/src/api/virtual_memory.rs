//! Virtual memory management and multicast objects.

use std::ffi::c_void;

use divvy_fakedriver::machine::Unit;

use crate::abi::{Answer, CUmemAccessDesc_v1, CUmemAllocationProp_v1, CUmemLocation_v1, CUmulticastObjectProp, Error};
use crate::call::{array, get, put};
use crate::memory::{GRAIN, Kind, On};
use crate::process::{Process, enter};

const DEVICE: u32 = 1;

/// The card a location means; none for the host.
fn home(process: &Process, location: &CUmemLocation_v1) -> Result<Option<Unit>, Error> {
    match location.kind {
        DEVICE => {
            let device = usize::try_from(location.id).map_err(|_| Error::INVALID_DEVICE)?;
            Ok(Some(process.devices.get(device).ok_or(Error::INVALID_DEVICE)?.unit))
        }
        2..=4 => Ok(None),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn check(properties: &CUmemAllocationProp_v1) -> Answer {
    const PINNED: u32 = 1;
    if properties.kind != PINNED || properties.handle_types & !9 != 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

/// Acts on memory as this process, on a unit that does not matter.
fn act<T>(process: &mut Process, run: impl FnOnce(&mut Process, &On) -> Result<T, Error>) -> Result<T, Error> {
    let (machine, seat, unit) = (process.machine, process.seat, process.devices[0].unit);
    run(process, &On { machine, seat: &seat, unit, context: 0 })
}

pub(crate) fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp_v1,
    option: u32,
) -> Answer {
    let process = enter()?;
    let properties = get(prop)?;
    check(&properties)?;
    home(&process, &properties.location)?;
    if option > 1 { Err(Error::INVALID_VALUE) } else { put(granularity, GRAIN as usize) }
}

pub(crate) fn cuMemCreate(handle: *mut u64, size: usize, prop: *const CUmemAllocationProp_v1, flags: u64) -> Answer {
    let mut process = enter()?;
    let properties = get(prop)?;
    if handle.is_null() || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    check(&properties)?;
    let unit = home(&process, &properties.location)?;
    let id = process.handle();
    act(&mut process, |p, on| {
        let first = p.memory.create_chunk(on, id, unit, size as u64, properties);
        if first == Err(Error::OUT_OF_MEMORY) {
            p.memory.release_unused(on);
            return p.memory.create_chunk(on, id, unit, size as u64, properties);
        }
        first
    })?;
    put(handle, id)
}

pub(crate) fn cuMemRelease(handle: u64) -> Answer {
    let mut process = enter()?;
    act(&mut process, |p, on| p.memory.release_chunk(on, handle))
}

pub(crate) fn cuMemRetainAllocationHandle(handle: *mut u64, addr: *mut c_void) -> Answer {
    let mut process = enter()?;
    let region = *process.memory.find(addr as u64).ok_or(Error::INVALID_VALUE)?;
    let Kind::Mapped { chunk, .. } = region.kind else { return Err(Error::INVALID_VALUE) };
    if handle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    process.memory.retain_chunk(chunk)?;
    put(handle, chunk)
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp_v1, handle: u64) -> Answer {
    let mut process = enter()?;
    let properties = process.memory.chunk(handle)?.properties;
    put(prop, properties)
}

pub(crate) fn cuMemAddressReserve(ptr: *mut u64, size: usize, alignment: usize, addr: u64, flags: u64) -> Answer {
    let mut process = enter()?;
    if ptr.is_null() || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let base = process.memory.reserve(size as u64, alignment as u64, addr)?;
    put(ptr, base)
}

pub(crate) fn cuMemAddressFree(ptr: u64, size: usize) -> Answer {
    enter()?.memory.unreserve(ptr, size as u64)
}

pub(crate) fn cuMemMap(ptr: u64, size: usize, offset: usize, handle: u64, flags: u64) -> Answer {
    let mut process = enter()?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let location = process.memory.chunk(handle)?.properties.location;
    let unit = home(&process, &location)?.unwrap_or(process.devices[0].unit);
    process.memory.map_chunk(unit, ptr, size as u64, offset as u64, handle)
}

pub(crate) fn cuMemUnmap(ptr: u64, size: usize) -> Answer {
    let mut process = enter()?;
    act(&mut process, |p, on| p.memory.unmap(on, ptr, size as u64))
}

pub(crate) fn cuMemSetAccess(ptr: u64, size: usize, desc: *const CUmemAccessDesc_v1, count: usize) -> Answer {
    let mut process = enter()?;
    let rights = array(desc, count)?;
    if rights.is_empty() {
        return Err(Error::INVALID_VALUE);
    }
    for right in rights {
        home(&process, &right.location)?;
        if !matches!(right.flags, 0 | 1 | 3) {
            return Err(Error::INVALID_VALUE);
        }
        process.memory.set_access(ptr, size as u64, right.flags)?;
    }
    Ok(())
}

pub(crate) fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation_v1, ptr: u64) -> Answer {
    let process = enter()?;
    home(&process, &get(location)?)?;
    let region = process.memory.find(ptr).ok_or(Error::INVALID_VALUE)?;
    match region.kind {
        Kind::Mapped { access, .. } => put(flags, access.into()),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(crate) fn cuMemExportToShareableHandle(
    shareableHandle: *mut c_void,
    handle: u64,
    handleType: u32,
    flags: u64,
) -> Answer {
    let process = enter()?;
    if handleType != 1 || flags != 0 || shareableHandle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    put(shareableHandle.cast::<i32>(), process.memory.export_chunk(handle)?)
}

pub(crate) fn cuMemImportFromShareableHandle(handle: *mut u64, osHandle: *mut c_void, shHandleType: u32) -> Answer {
    let mut process = enter()?;
    if shHandleType != 1 || handle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let location = CUmemLocation_v1 { kind: DEVICE, id: 0 };
    let properties = CUmemAllocationProp_v1 {
        kind: 1,
        handle_types: 1,
        location,
        metadata: 0,
        compression: 0,
        rdma: 0,
        usage: 0,
        reserved: [0; 4],
    };
    let id = process.handle();
    // The descriptor itself is passed where a pointer would be.
    process.memory.import_chunk(id, osHandle as i32, properties)?;
    put(handle, id)
}

fn multicast(properties: &CUmulticastObjectProp) -> Answer {
    let process = enter()?;
    let supported = crate::device::attribute(process.machine, process.devices[0].unit, 132) == Some(1);
    if !supported {
        return Err(Error::NOT_SUPPORTED);
    }
    let wrong = properties.devices < 2 || properties.devices as usize > process.devices.len() || properties.flags != 0;
    if wrong { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuMulticastGetGranularity(
    granularity: *mut usize,
    prop: *const CUmulticastObjectProp,
    option: u32,
) -> Answer {
    multicast(&get(prop)?)?;
    if option > 1 {
        Err(Error::INVALID_VALUE)
    } else {
        put(granularity, if option == 0 { GRAIN as usize } else { 512 << 20 })
    }
}

pub(crate) fn cuMulticastCreate(mcHandle: *mut u64, prop: *const CUmulticastObjectProp) -> Answer {
    let properties = get(prop)?;
    multicast(&properties)?;
    let mut process = enter()?;
    let id = process.handle();
    process.multicasts.insert(id, (properties.size as u64, Vec::new()));
    put(mcHandle, id)
}

pub(crate) fn cuMulticastAddDevice(mcHandle: u64, dev: i32) -> Answer {
    let mut process = enter()?;
    let known = usize::try_from(dev).is_ok_and(|d| d < process.devices.len());
    let (_, devices) = process.multicasts.get_mut(&mcHandle).ok_or(Error::INVALID_VALUE)?;
    if !known || devices.contains(&dev) {
        return Err(Error::INVALID_VALUE);
    }
    devices.push(dev);
    Ok(())
}

pub(crate) fn cuMulticastBindMem(
    mcHandle: u64,
    mcOffset: usize,
    memHandle: u64,
    memOffset: usize,
    size: usize,
    flags: u64,
) -> Answer {
    let mut process = enter()?;
    let room = process.multicasts.get(&mcHandle).ok_or(Error::INVALID_VALUE)?.0;
    let have = process.memory.chunk(memHandle)?.size;
    let fits = (mcOffset + size) as u64 <= room && (memOffset + size) as u64 <= have;
    if flags != 0 || size == 0 || !fits { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuMulticastBindAddr(mcHandle: u64, mcOffset: usize, memptr: u64, size: usize, flags: u64) -> Answer {
    let process = enter()?;
    let room = process.multicasts.get(&mcHandle).ok_or(Error::INVALID_VALUE)?.0;
    let known = process.memory.find_range(memptr, size as u64).is_some();
    if flags != 0 || size == 0 || !known || (mcOffset + size) as u64 > room {
        Err(Error::INVALID_VALUE)
    } else {
        Ok(())
    }
}

pub(crate) fn cuMulticastUnbind(mcHandle: u64, dev: i32, mcOffset: usize, size: usize) -> Answer {
    let process = enter()?;
    let (room, devices) = process.multicasts.get(&mcHandle).ok_or(Error::INVALID_VALUE)?;
    if !devices.contains(&dev) || (mcOffset + size) as u64 > *room { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

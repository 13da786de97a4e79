//! What a pointer is, and where managed memory should be.

use std::ffi::c_void;

use divvy_fakedriver::machine::Unit;

use crate::abi::{Answer, CUmemLocation_v1, Error};
use crate::api::copy::cuMemcpyAsync;
use crate::call::{array, get, put};
use crate::memory::{GRAIN, Kind, Region};
use crate::process::{Process, enter};

/// One attribute of a pointer, as the bytes it is written in.
fn attribute(process: &Process, number: u32, address: u64) -> Result<Vec<u8>, Error> {
    let region = process.memory.find(address).copied();
    let word = |v: u32| Ok(v.to_ne_bytes().to_vec());
    let long = |v: u64| Ok(v.to_ne_bytes().to_vec());
    let flag = |v: bool| Ok(vec![u8::from(v)]);
    let Some(region) = region else {
        // What the driver does not know is the program's own memory.
        return match number {
            8 | 13 => flag(false),
            9 => word((-2i32).cast_unsigned()),
            14 => word(0),
            10 => flag(false),
            _ => Err(Error::INVALID_VALUE),
        };
    };
    let managed = matches!(region.kind, Kind::Managed { .. });
    let device = process.devices.iter().position(|d| d.unit == region.unit).unwrap_or(0);
    match number {
        1 => long(if matches!(region.kind, Kind::Mapped { .. } | Kind::Pooled { .. }) { 0 } else { region.context }),
        2 => word(if region.is_host() { 1 } else { 2 }),
        3 => long(address),
        4 if region.is_host() || managed => long(address),
        4 => Err(Error::INVALID_VALUE),
        6 => word(0),
        7 => long(region.id),
        8 => word(managed.into()),
        9 => word(u32::try_from(device).unwrap_or(0)),
        10 => word(matches!(region.kind, Kind::Linear).into()),
        11 | 19 => long(region.base),
        12 => long(region.size),
        18 => long(if matches!(region.kind, Kind::Linear) { region.size.next_multiple_of(GRAIN) } else { region.size }),
        13 => word(1),
        14 => word(if matches!(region.kind, Kind::Mapped { .. }) { 1 } else { 0 }),
        15 => word((!region.is_host() && !managed).into()),
        16 => word(access(&region)),
        17 => long(if let Kind::Pooled { pool } = region.kind { pool } else { 0 }),
        20 => long(region.id),
        21 => word(matches!(region.kind, Kind::Linear).into()),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn access(region: &Region) -> u32 {
    match region.kind {
        Kind::Mapped { access, .. } => access,
        _ if region.is_read_only() => 1,
        _ => 3,
    }
}

/// Writes an attribute where the program wants it.
fn write(place: *mut c_void, bytes: &[u8]) -> Answer {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the program has a place of the attribute's size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
    Ok(())
}

pub(crate) fn cuPointerGetAttribute(data: *mut c_void, attrib: u32, ptr: u64) -> Answer {
    let process = enter()?;
    if data.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let bytes = attribute(&process, attrib, ptr)?;
    write(data, &bytes)
}

pub(crate) fn cuPointerGetAttributes(
    numAttributes: u32,
    attributes: *mut u32,
    data: *mut *mut c_void,
    ptr: u64,
) -> Answer {
    let process = enter()?;
    let (numbers, places) = (array(attributes, numAttributes as usize)?, array(data, numAttributes as usize)?);
    if numbers.iter().any(|n| !(1..=21).contains(n)) {
        return Err(Error::INVALID_VALUE);
    }
    for (number, place) in numbers.into_iter().zip(places) {
        // An attribute the pointer does not have reads as zero.
        let width = if matches!(number, 2 | 6 | 8 | 9 | 10 | 13 | 14 | 15 | 16 | 21) { 4 } else { 8 };
        let bytes = attribute(&process, number, ptr).unwrap_or_else(|_| vec![0; width]);
        write(place, &bytes)?;
    }
    Ok(())
}

pub(crate) fn cuPointerSetAttribute(value: *const c_void, attribute: u32, ptr: u64) -> Answer {
    let process = enter()?;
    const SYNC_MEMOPS: u32 = 6;
    get(value.cast::<u32>())?;
    let region = process.memory.find(ptr).ok_or(Error::INVALID_VALUE)?;
    if attribute != SYNC_MEMOPS || region.is_host() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    dptr: u64,
    size: usize,
    handleType: u32,
    _flags: u64,
) -> Answer {
    let process = enter()?;
    const DMA_BUF: u32 = 1;
    process.memory.find_range(dptr, size as u64).ok_or(Error::INVALID_VALUE)?;
    if handleType != DMA_BUF || handle.is_null() { Err(Error::INVALID_VALUE) } else { Err(Error::NOT_SUPPORTED) }
}

/// The card of a location, none for the host.
fn place_of(process: &Process, location: CUmemLocation_v1) -> Result<Option<Unit>, Error> {
    match location.kind {
        1 => {
            let device = usize::try_from(location.id).map_err(|_| Error::INVALID_DEVICE)?;
            Ok(Some(process.devices.get(device).ok_or(Error::INVALID_DEVICE)?.unit))
        }
        2..=4 => Ok(None),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// A device number of before locations: -1 is the host.
fn old_location(device: i32) -> CUmemLocation_v1 {
    if device == -1 { CUmemLocation_v1 { kind: 2, id: 0 } } else { CUmemLocation_v1 { kind: 1, id: device } }
}

fn prefetch(address: u64, count: usize, to: CUmemLocation_v1, flags: u32, stream: u64) -> Answer {
    let mut process = enter()?;
    process.resolve_stream(stream)?;
    if flags != 0 || count == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let unit = place_of(&process, to)?;
    let (machine, seat) = (process.machine, process.seat);
    process.memory.prefetch(machine, &seat, address, count as u64, unit)?;
    process.memory.advice_of(address, count as u64)?.prefetched = (to.kind, to.id);
    Ok(())
}

pub(crate) fn cuMemPrefetchAsync(devPtr: u64, count: usize, dstDevice: i32, hStream: u64) -> Answer {
    prefetch(devPtr, count, old_location(dstDevice), 0, hStream)
}

pub(crate) fn cuMemPrefetchAsync_v2(
    devPtr: u64,
    count: usize,
    location: CUmemLocation_v1,
    flags: u32,
    hStream: u64,
) -> Answer {
    prefetch(devPtr, count, location, flags, hStream)
}

fn advise(address: u64, count: usize, advice: u32, location: CUmemLocation_v1) -> Answer {
    let mut process = enter()?;
    if count == 0 || !(1..=6).contains(&advice) {
        return Err(Error::INVALID_VALUE);
    }
    if matches!(advice, 3 | 5) {
        place_of(&process, location)?;
    }
    let known = process.memory.advice_of(address, count as u64)?;
    match advice {
        1 => known.read_mostly = true,
        2 => known.read_mostly = false,
        3 => known.preferred = (location.kind, location.id),
        4 => known.preferred = (0, -2),
        5 => known.accessed_by = Some(location.id),
        _ => known.accessed_by = None,
    }
    Ok(())
}

pub(crate) fn cuMemAdvise(devPtr: u64, count: usize, advice: u32, device: i32) -> Answer {
    advise(devPtr, count, advice, old_location(device))
}

pub(crate) fn cuMemAdvise_v2(devPtr: u64, count: usize, advice: u32, location: CUmemLocation_v1) -> Answer {
    advise(devPtr, count, advice, location)
}

/// One attribute of a managed range.
fn range_attribute(process: &mut Process, number: u32, address: u64, count: usize) -> Result<i32, Error> {
    let advice = *process.memory.advice_of(address, count as u64)?;
    let device = |(kind, id): (u32, i32)| match kind {
        1 => id,
        2..=4 => -1,
        _ => -2,
    };
    Ok(match number {
        1 => advice.read_mostly.into(),
        2 => device(advice.preferred),
        3 => advice.accessed_by.unwrap_or(-2),
        4 => device(advice.prefetched),
        5 => advice.preferred.0.cast_signed(),
        6 => advice.preferred.1,
        7 => advice.prefetched.0.cast_signed(),
        8 => advice.prefetched.1,
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(crate) fn cuMemRangeGetAttribute(
    data: *mut c_void,
    dataSize: usize,
    attribute: u32,
    devPtr: u64,
    count: usize,
) -> Answer {
    let mut process = enter()?;
    if data.is_null() || dataSize < 4 || !dataSize.is_multiple_of(4) || (attribute != 3 && dataSize != 4) {
        return Err(Error::INVALID_VALUE);
    }
    let value = range_attribute(&mut process, attribute, devPtr, count)?;
    for i in 0..dataSize / 4 {
        // SAFETY: the place has `dataSize` bytes.
        let place = unsafe { data.cast::<i32>().add(i) };
        put(place, if i == 0 { value } else { -2 })?;
    }
    Ok(())
}

pub(crate) fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    dataSizes: *mut usize,
    attributes: *mut u32,
    numAttributes: usize,
    devPtr: u64,
    count: usize,
) -> Answer {
    let (places, sizes, numbers) =
        (array(data, numAttributes)?, array(dataSizes, numAttributes)?, array(attributes, numAttributes)?);
    if places.is_empty() {
        return Err(Error::INVALID_VALUE);
    }
    for ((place, size), number) in places.into_iter().zip(sizes).zip(numbers) {
        cuMemRangeGetAttribute(place, size, number, devPtr, count)?;
    }
    Ok(())
}

/// Prefetches or discards many ranges.
fn batch(
    pointers: *mut u64,
    sizes: *mut usize,
    count: usize,
    to: Option<CUmemLocation_v1>,
    flags: u64,
    stream: u64,
) -> Answer {
    if count == 0 || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (pointers, sizes) = (array(pointers, count)?, array(sizes, count)?);
    for (pointer, size) in pointers.into_iter().zip(sizes) {
        match to {
            Some(location) => prefetch(pointer, size, location, 0, stream)?,
            None => drop(enter()?.memory.advice_of(pointer, size as u64)?),
        }
    }
    // In order with what else the stream does.
    cuMemcpyAsync(0, 0, 0, stream)
}

pub(crate) fn cuMemPrefetchBatchAsync(
    dptrs: *mut u64,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation_v1,
    _prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: u64,
) -> Answer {
    let locations = array(prefetchLocs, numPrefetchLocs)?;
    let first = locations.first().copied().ok_or(Error::INVALID_VALUE)?;
    batch(dptrs, sizes, count, Some(first), flags, hStream)
}

pub(crate) fn cuMemDiscardBatchAsync(
    dptrs: *mut u64,
    sizes: *mut usize,
    count: usize,
    flags: u64,
    hStream: u64,
) -> Answer {
    batch(dptrs, sizes, count, None, flags, hStream)
}

pub(crate) fn cuMemDiscardAndPrefetchBatchAsync(
    dptrs: *mut u64,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation_v1,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: u64,
) -> Answer {
    cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream)
}

pub(crate) fn cuStreamAttachMemAsync(hStream: u64, dptr: u64, _length: usize, flags: u32) -> Answer {
    let mut process = enter()?;
    process.resolve_stream(hStream)?;
    let region = process.memory.find(dptr).ok_or(Error::INVALID_VALUE)?;
    let managed = matches!(region.kind, Kind::Managed { .. });
    if !managed || !matches!(flags, 1 | 2 | 4) { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

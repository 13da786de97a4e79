//! Memory of other drivers, by file descriptor. What we export ourselves can be imported; nothing else is known here.

use crate::abi::{
    Answer, CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1, CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1, CUmemAllocationProp_v1,
    CUmemLocation_v1, Error,
};
use crate::call::{get, put};
use crate::memory::{GRAIN, On};
use crate::process::enter;

pub(crate) fn cuImportExternalMemory(
    extMem_out: *mut u64,
    memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1,
) -> Answer {
    let mut process = enter()?;
    process.current()?;
    let asked = get(memHandleDesc)?;
    const OPAQUE_FD: u32 = 1;
    if asked.kind != OPAQUE_FD || asked.size == 0 || extMem_out.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let properties = CUmemAllocationProp_v1 {
        kind: 1,
        handle_types: 1,
        location: CUmemLocation_v1 { kind: 1, id: 0 },
        metadata: 0,
        compression: 0,
        rdma: 0,
        usage: 0,
        reserved: [0; 4],
    };
    let id = process.handle();
    process.memory.import_chunk(id, asked.handle[0] as i32, properties).map_err(|_| Error::UNKNOWN)?;
    put(extMem_out, id)
}

pub(crate) fn cuExternalMemoryGetMappedBuffer(
    devPtr: *mut u64,
    extMem: u64,
    bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1,
) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    let asked = get(bufferDesc)?;
    let whole = process.memory.chunk(extMem).map_err(|_| Error::INVALID_VALUE)?.size;
    if asked.flags != 0 || asked.size == 0 || asked.offset + asked.size > whole || devPtr.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let unit = process.context(context)?.unit;
    let room = whole.next_multiple_of(GRAIN);
    let base = process.memory.reserve(room, 0, 0)?;
    process.memory.map_chunk(unit, base, room, 0, extMem)?;
    process.memory.set_access(base, room, 3)?;
    put(devPtr, base + asked.offset)
}

pub(crate) fn cuDestroyExternalMemory(extMem: u64) -> Answer {
    let mut process = enter()?;
    let (machine, seat, unit) = (process.machine, process.seat, process.devices[0].unit);
    let on = On { machine, seat: &seat, unit, context: 0 };
    process.memory.release_chunk(&on, extMem).map_err(|_| Error::INVALID_VALUE)
}

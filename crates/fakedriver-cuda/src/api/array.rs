//! Arrays and mipmapped arrays.

use crate::abi::{
    Answer, CUDA_ARRAY_DESCRIPTOR_v2, CUDA_ARRAY_MEMORY_REQUIREMENTS_v1, CUDA_ARRAY3D_DESCRIPTOR_v2, CUarrayMapInfo_v1,
    Error,
};
use crate::api::device::on_device;
use crate::call::{array, get, put};
use crate::memory::On;
use crate::memory::array::bytes;
use crate::process::{Process, enter};

fn make(place: *mut u64, shape: CUDA_ARRAY3D_DESCRIPTOR_v2) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    process.unsafe_in_capture()?;
    let id = process.handle();
    let (machine, seat, unit) = process.on(context)?;
    let on = On { machine, seat: &seat, unit, context };
    process.memory.create_array(&on, id, shape)?;
    put(place, id)
}

pub(crate) fn cuArrayCreate_v2(pHandle: *mut u64, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR_v2) -> Answer {
    let flat = get(pAllocateArray)?;
    let shape = CUDA_ARRAY3D_DESCRIPTOR_v2 {
        width: flat.width,
        height: flat.height,
        depth: 0,
        format: flat.format,
        channels: flat.channels,
        flags: 0,
    };
    make(pHandle, shape)
}

pub(crate) fn cuArray3DCreate_v2(pHandle: *mut u64, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR_v2) -> Answer {
    make(pHandle, get(pAllocateArray)?)
}

/// Acts as this process on the unit of a context.
fn on_context(process: &mut Process, context: u64, run: impl FnOnce(&mut Process, &On) -> Answer) -> Answer {
    let (machine, seat, unit) = process.on(context)?;
    run(process, &On { machine, seat: &seat, unit, context })
}

pub(crate) fn cuArrayDestroy(hArray: u64) -> Answer {
    let process = enter()?;
    let context = process.memory.arrays.get(&hArray).ok_or(Error::INVALID_HANDLE)?.context;
    let mut process = crate::context::settle(process, context)?;
    on_context(&mut process, context, |p, on| p.memory.destroy_array(on, hArray))
}

pub(crate) fn cuArrayGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR_v2, hArray: u64) -> Answer {
    let process = enter()?;
    let shape = process.memory.arrays.get(&hArray).ok_or(Error::INVALID_HANDLE)?.shape;
    let flat = CUDA_ARRAY_DESCRIPTOR_v2 {
        width: shape.width,
        height: shape.height,
        format: shape.format,
        channels: shape.channels,
    };
    put(pArrayDescriptor, flat)
}

pub(crate) fn cuArray3DGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v2, hArray: u64) -> Answer {
    let process = enter()?;
    let shape = process.memory.arrays.get(&hArray).ok_or(Error::INVALID_HANDLE)?.shape;
    put(pArrayDescriptor, shape)
}

fn requirements(size: u64) -> CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 {
    const ALIGNMENT: usize = 64 << 10;
    let size = (size as usize).next_multiple_of(ALIGNMENT);
    CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 { size, alignment: ALIGNMENT, reserved: [0; 4] }
}

pub(crate) fn cuArrayGetMemoryRequirements(
    memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS_v1,
    array: u64,
    device: i32,
) -> Answer {
    let (process, ..) = on_device(device)?;
    let shape = process.memory.arrays.get(&array).ok_or(Error::INVALID_HANDLE)?.shape;
    // Only of arrays whose memory is mapped by the program.
    const DEFERRED: u32 = 0x80;
    const SPARSE: u32 = 0x40;
    if shape.flags & (DEFERRED | SPARSE) == 0 {
        return Err(Error::INVALID_VALUE);
    }
    put(memoryRequirements, requirements(bytes(&shape)?))
}

pub(crate) fn cuMipmappedArrayCreate(
    pHandle: *mut u64,
    pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR_v2,
    numMipmapLevels: u32,
) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    let shape = get(pMipmappedArrayDesc)?;
    if pHandle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    process.unsafe_in_capture()?;
    let id = process.handle();
    let numMipmapLevels = numMipmapLevels.max(1);
    let levels: Vec<u64> = (0..numMipmapLevels.min(64)).map(|_| process.handle()).collect();
    on_context(&mut process, context, |p, on| p.memory.create_mipmap(on, id, shape, numMipmapLevels, &levels))?;
    put(pHandle, id)
}

pub(crate) fn cuMipmappedArrayDestroy(hMipmappedArray: u64) -> Answer {
    let process = enter()?;
    let context = process.memory.mipmaps.get(&hMipmappedArray).ok_or(Error::INVALID_HANDLE)?.context;
    let mut process = crate::context::settle(process, context)?;
    on_context(&mut process, context, |p, on| p.memory.destroy_mipmap(on, hMipmappedArray))
}

pub(crate) fn cuMipmappedArrayGetLevel(pLevelArray: *mut u64, hMipmappedArray: u64, level: u32) -> Answer {
    let process = enter()?;
    let mipmap = process.memory.mipmaps.get(&hMipmappedArray).ok_or(Error::INVALID_HANDLE)?;
    put(pLevelArray, *mipmap.levels.get(level as usize).ok_or(Error::INVALID_VALUE)?)
}

pub(crate) fn cuMipmappedArrayGetMemoryRequirements(
    memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS_v1,
    mipmap: u64,
    device: i32,
) -> Answer {
    let (process, ..) = on_device(device)?;
    let shape = process.memory.mipmaps.get(&mipmap).ok_or(Error::INVALID_HANDLE)?.shape;
    if shape.flags & 0xc0 == 0 {
        return Err(Error::INVALID_VALUE);
    }
    put(memoryRequirements, requirements(bytes(&shape)? * 4 / 3))
}

pub(crate) fn cuMemMapArrayAsync(mapInfoList: *mut CUarrayMapInfo_v1, count: u32, hStream: u64) -> Answer {
    let mut process = enter()?;
    process.resolve_stream(hStream)?;
    let list = array(mapInfoList, count as usize)?;
    // Sparse arrays are not simulated: their memory is there from the beginning.
    let known = |m: &CUarrayMapInfo_v1| {
        process.memory.arrays.contains_key(&m.resource) || process.memory.mipmaps.contains_key(&m.resource)
    };
    if list.is_empty() || !list.iter().all(known) { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

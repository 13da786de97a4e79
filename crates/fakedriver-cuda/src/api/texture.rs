//! Texture and surface objects, tensor maps: descriptions that are kept.

use std::ffi::c_void;

use crate::abi::{
    Answer, CUDA_RESOURCE_DESC_v1, CUDA_RESOURCE_VIEW_DESC_v1, CUDA_TEXTURE_DESC_v1, CUtensorMap, Error, TextureObject,
};
use crate::call::{get, put};
use crate::process::enter;

fn check(resource: &CUDA_RESOURCE_DESC_v1) -> Answer {
    let process = enter()?;
    let first = resource.words[1];
    let known = match resource.words[0] as u32 {
        0 => process.memory.arrays.contains_key(&first),
        1 => process.memory.mipmaps.contains_key(&first),
        2 | 3 => process.memory.find(first).is_some(),
        _ => false,
    };
    if known { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn cuTexObjectCreate(
    pTexObject: *mut u64,
    pResDesc: *const CUDA_RESOURCE_DESC_v1,
    pTexDesc: *const CUDA_TEXTURE_DESC_v1,
    pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC_v1,
) -> Answer {
    let (resource, texture) = (get(pResDesc)?, get(pTexDesc)?);
    let view = if pResViewDesc.is_null() { None } else { Some(get(pResViewDesc)?) };
    check(&resource)?;
    let mut process = enter()?;
    process.current()?;
    let id = process.handle();
    process.textures.insert(id, TextureObject { resource, texture: Some(texture), view });
    put(pTexObject, id)
}

pub(crate) fn cuTexObjectDestroy(texObject: u64) -> Answer {
    let mut process = enter()?;
    process.textures.remove(&texObject).map(drop).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn cuTexObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC_v1, texObject: u64) -> Answer {
    let process = enter()?;
    put(pResDesc, process.textures.get(&texObject).ok_or(Error::INVALID_VALUE)?.resource)
}

pub(crate) fn cuTexObjectGetTextureDesc(pTexDesc: *mut CUDA_TEXTURE_DESC_v1, texObject: u64) -> Answer {
    let process = enter()?;
    put(pTexDesc, process.textures.get(&texObject).and_then(|t| t.texture).ok_or(Error::INVALID_VALUE)?)
}

pub(crate) fn cuTexObjectGetResourceViewDesc(pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC_v1, texObject: u64) -> Answer {
    let process = enter()?;
    put(pResViewDesc, process.textures.get(&texObject).and_then(|t| t.view).ok_or(Error::INVALID_VALUE)?)
}

pub(crate) fn cuSurfObjectCreate(pSurfObject: *mut u64, pResDesc: *const CUDA_RESOURCE_DESC_v1) -> Answer {
    let resource = get(pResDesc)?;
    if resource.words[0] as u32 != 0 {
        return Err(Error::INVALID_VALUE);
    }
    check(&resource)?;
    let mut process = enter()?;
    process.current()?;
    let id = process.handle();
    process.textures.insert(id, TextureObject { resource, texture: None, view: None });
    put(pSurfObject, id)
}

pub(crate) fn cuSurfObjectDestroy(surfObject: u64) -> Answer {
    cuTexObjectDestroy(surfObject)
}

pub(crate) fn cuSurfObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC_v1, surfObject: u64) -> Answer {
    cuTexObjectGetResourceDesc(pResDesc, surfObject)
}

/// A tensor map holds at least the address it is of.
fn tensor_map(place: *mut CUtensorMap, kind: u32, rank: u32, address: *mut c_void) -> Answer {
    let aligned = (address as u64).is_multiple_of(16);
    if address.is_null() || !aligned || !(1..=5).contains(&rank) || kind > 15 {
        return Err(Error::INVALID_VALUE);
    }
    let mut words = [0; 16];
    (words[0], words[1]) = (address as u64, u64::from(kind) << 32 | u64::from(rank));
    put(place, CUtensorMap { words })
}

pub(crate) fn cuTensorMapEncodeTiled(
    tensorMap: *mut CUtensorMap,
    tensorDataType: u32,
    tensorRank: u32,
    globalAddress: *mut c_void,
    globalDim: *const u64,
    _globalStrides: *const u64,
    boxDim: *const u32,
    elementStrides: *const u32,
    _interleave: u32,
    _swizzle: u32,
    _l2Promotion: u32,
    _oobFill: u32,
) -> Answer {
    get(globalDim)?;
    get(boxDim)?;
    get(elementStrides)?;
    tensor_map(tensorMap, tensorDataType, tensorRank, globalAddress)
}

pub(crate) fn cuTensorMapReplaceAddress(tensorMap: *mut CUtensorMap, globalAddress: *mut c_void) -> Answer {
    let mut map = get(tensorMap)?;
    if globalAddress.is_null() || !(globalAddress as u64).is_multiple_of(16) {
        return Err(Error::INVALID_VALUE);
    }
    map.words[0] = globalAddress as u64;
    put(tensorMap, map)
}

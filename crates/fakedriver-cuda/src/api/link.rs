//! The linker: what is put in comes out again.

use std::ffi::{c_char, c_void};

use crate::abi::{Answer, Error};
use crate::call::{array, offer, put, text};
use crate::process::enter;

pub(crate) fn cuLinkCreate_v2(
    _numOptions: u32,
    _options: *mut u32,
    _optionValues: *mut *mut c_void,
    stateOut: *mut u64,
) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if stateOut.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.kernels.links.insert(id, Vec::new());
    put(stateOut, id)
}

fn add(state: u64, data: &[u8]) -> Answer {
    let mut process = enter()?;
    let link = process.kernels.links.get_mut(&state).ok_or(Error::INVALID_HANDLE)?;
    // Texts of several inputs become one.
    while link.last() == Some(&0) {
        link.pop();
    }
    link.extend_from_slice(data);
    Ok(())
}

pub(crate) fn cuLinkAddData_v2(
    state: u64,
    _kind: u32,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    _numOptions: u32,
    _options: *mut u32,
    _optionValues: *mut *mut c_void,
) -> Answer {
    let bytes = array(data.cast::<u8>().cast_const(), size)?;
    if bytes.is_empty() {
        return Err(Error::INVALID_VALUE);
    }
    add(state, &bytes)
}

pub(crate) fn cuLinkAddFile_v2(
    state: u64,
    _kind: u32,
    path: *const c_char,
    _numOptions: u32,
    _options: *mut u32,
    _optionValues: *mut *mut c_void,
) -> Answer {
    let path = text(path).ok_or(Error::INVALID_VALUE)?;
    let bytes = std::fs::read(path).map_err(|_| Error::FILE_NOT_FOUND)?;
    add(state, &bytes)
}

pub(crate) fn cuLinkComplete(state: u64, cubinOut: *mut *mut c_void, sizeOut: *mut usize) -> Answer {
    let mut process = enter()?;
    let link = process.kernels.links.get_mut(&state).ok_or(Error::INVALID_HANDLE)?;
    if link.is_empty() {
        return Err(Error::INVALID_IMAGE);
    }
    link.push(0);
    offer(sizeOut, link.len());
    put(cubinOut, link.as_mut_ptr().cast())
}

pub(crate) fn cuLinkDestroy(state: u64) -> Answer {
    enter()?.kernels.links.remove(&state).map(drop).ok_or(Error::INVALID_HANDLE)
}

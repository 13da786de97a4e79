//! Modules, libraries, functions.

use std::ffi::{c_char, c_void};

use crate::abi::{Answer, Error};
use crate::call::{offer, put, text};
use crate::process::enter;

fn load(place: *mut u64, image: *const c_void) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if place.is_null() || image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.kernels.add_module(id, context, image);
    put(place, id)
}

pub(crate) fn cuModuleLoadData(module: *mut u64, image: *const c_void) -> Answer {
    load(module, image)
}

pub(crate) fn cuModuleLoadDataEx(
    module: *mut u64,
    image: *const c_void,
    _numOptions: u32,
    _options: *mut u32,
    _values: *mut *mut c_void,
) -> Answer {
    load(module, image)
}

pub(crate) fn cuModuleLoadFatBinary(module: *mut u64, fatCubin: *const c_void) -> Answer {
    load(module, fatCubin)
}

pub(crate) fn cuModuleLoad(module: *mut u64, fname: *const c_char) -> Answer {
    let path = text(fname).ok_or(Error::INVALID_VALUE)?;
    enter()?.current()?;
    let mut image = std::fs::read(path).map_err(|_| Error::FILE_NOT_FOUND)?;
    image.extend([0; 8]);
    load(module, image.as_ptr().cast())
}

pub(crate) fn cuModuleUnload(hmod: u64) -> Answer {
    let mut process = enter()?;
    process.kernels.modules.get(&hmod).filter(|m| m.context != 0).ok_or(Error::INVALID_HANDLE)?;
    process.kernels.remove_module(hmod).map(drop)
}

pub(crate) fn cuModuleGetFunction(hfunc: *mut u64, hmod: u64, name: *const c_char) -> Answer {
    let mut process = enter()?;
    let name = text(name).ok_or(Error::INVALID_VALUE)?;
    if hfunc.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let context = process.kernels.modules.get(&hmod).ok_or(Error::INVALID_HANDLE)?.context;
    let fresh = process.handle();
    let id = process.kernels.function(hmod, &name, context, fresh)?;
    put(hfunc, id)
}

pub(crate) fn cuFuncGetAttribute(pi: *mut i32, attrib: u32, hfunc: u64) -> Answer {
    let process = enter()?;
    let function = process.kernels.get(hfunc)?;
    if attrib > 15 {
        return Err(Error::INVALID_VALUE);
    }
    let value = function.attributes.get(&attrib).copied().unwrap_or(match attrib {
        0 => 1024,
        4 => 32,
        5 | 6 => 90,
        8 => 49_152,
        9 => -1,
        _ => 0,
    });
    put(pi, value)
}

pub(crate) fn cuFuncSetAttribute(hfunc: u64, attrib: u32, value: i32) -> Answer {
    let mut process = enter()?;
    if !matches!(attrib, 8..=15) {
        return Err(Error::INVALID_VALUE);
    }
    let function = process.kernels.functions.get_mut(&hfunc).ok_or(Error::INVALID_HANDLE)?;
    function.attributes.insert(attrib, value);
    Ok(())
}

pub(crate) fn cuFuncSetCacheConfig(hfunc: u64, config: u32) -> Answer {
    enter()?.kernels.get(hfunc)?;
    if config > 3 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuFuncSetSharedMemConfig(hfunc: u64, config: u32) -> Answer {
    enter()?.kernels.get(hfunc)?;
    if config > 2 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuModuleGetLoadingMode(mode: *mut u32) -> Answer {
    drop(enter()?);
    put(mode, 2)
}

pub(crate) fn cuLibraryLoadData(
    library: *mut u64,
    code: *const c_void,
    _jitOptions: *mut u32,
    _jitOptionsValues: *mut *mut c_void,
    _numJitOptions: u32,
    _libraryOptions: *mut u32,
    _libraryOptionValues: *mut *mut c_void,
    _numLibraryOptions: u32,
) -> Answer {
    let mut process = enter()?;
    if library.is_null() || code.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.kernels.add_module(id, 0, code);
    put(library, id)
}

pub(crate) fn cuLibraryUnload(library: u64) -> Answer {
    let mut process = enter()?;
    process.kernels.modules.get(&library).filter(|m| m.context == 0).ok_or(Error::INVALID_HANDLE)?;
    process.kernels.remove_module(library).map(drop)
}

pub(crate) fn cuLibraryGetKernel(pKernel: *mut u64, library: u64, name: *const c_char) -> Answer {
    let mut process = enter()?;
    let name = text(name).ok_or(Error::INVALID_VALUE)?;
    let fresh = process.handle();
    let id = process.kernels.function(library, &name, 0, fresh)?;
    put(pKernel, id)
}

pub(crate) fn cuLibraryGetModule(pMod: *mut u64, library: u64) -> Answer {
    let mut process = enter()?;
    process.current()?;
    process.kernels.modules.get(&library).ok_or(Error::INVALID_HANDLE)?;
    put(pMod, library)
}

pub(crate) fn cuKernelGetFunction(pFunc: *mut u64, kernel: u64) -> Answer {
    let mut process = enter()?;
    process.current()?;
    process.kernels.get(kernel)?;
    put(pFunc, kernel)
}

pub(crate) fn cuFuncGetModule(hmod: *mut u64, hfunc: u64) -> Answer {
    let process = enter()?;
    put(hmod, process.kernels.get(hfunc)?.module)
}

pub(crate) fn cuFuncIsLoaded(state: *mut u32, function: u64) -> Answer {
    let process = enter()?;
    put(state, process.kernels.get(function)?.loaded.into())
}

pub(crate) fn cuFuncLoad(function: u64) -> Answer {
    let mut process = enter()?;
    process.kernels.functions.get_mut(&function).ok_or(Error::INVALID_HANDLE)?.loaded = true;
    Ok(())
}

pub(crate) fn cuFuncGetName(name: *mut *const c_char, hfunc: u64) -> Answer {
    let process = enter()?;
    let function = process.kernels.get(hfunc)?;
    put(name, leak(&function.name))
}

pub(crate) fn cuKernelGetName(name: *mut *const c_char, hfunc: u64) -> Answer {
    cuFuncGetName(name, hfunc)
}

/// A C string that stays: a program asks for a name a few times at most.
fn leak(text: &str) -> *const c_char {
    std::ffi::CString::new(text).unwrap_or_default().into_raw()
}

pub(crate) fn cuModuleGetFunctionCount(count: *mut u32, hmod: u64) -> Answer {
    let process = enter()?;
    let module = process.kernels.modules.get(&hmod).ok_or(Error::INVALID_HANDLE)?;
    offer(count, module.entries.as_ref().map_or(0, |e| u32::try_from(e.len()).unwrap_or(0)));
    if count.is_null() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

//! Modules, libraries, functions.

use std::ffi::{c_char, c_void};

use crate::abi::{Answer, Error};
use crate::call::{offer, put, text};
use crate::memory::On;
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
    offer(count, module.entries().map_or(0, |e| u32::try_from(e.count()).unwrap_or(0)));
    if count.is_null() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuModuleEnumerateFunctions(functions: *mut u64, numFunctions: u32, module: u64) -> Answer {
    let mut process = enter()?;
    let known = process.kernels.modules.get(&module).ok_or(Error::INVALID_HANDLE)?;
    let names: Vec<String> = known.entries().into_iter().flatten().map(str::to_owned).collect();
    let context = known.context;
    for (i, name) in names.iter().take(numFunctions as usize).enumerate() {
        let fresh = process.handle();
        let id = process.kernels.function(module, name, context, fresh)?;
        // SAFETY: the program has room for `numFunctions` handles.
        put(unsafe { functions.add(i) }, id)?;
    }
    Ok(())
}

/// A variable of a module: its memory is taken when it is first asked for.
fn global(place: *mut u64, bytes: *mut usize, module: u64, name: *const c_char) -> Answer {
    let mut process = enter()?;
    let name = text(name).ok_or(Error::INVALID_VALUE)?;
    let known = process.kernels.modules.get(&module).ok_or(Error::INVALID_HANDLE)?;
    let context = if known.context == 0 { process.current()? } else { known.context };
    let known = process.kernels.modules.get(&module).ok_or(Error::INVALID_HANDLE)?;
    let key = (name.clone(), context);
    let (base, size) = match known.globals.get(&key) {
        Some(&found) => found,
        None => {
            let size = known.variable(&name).ok_or(Error::NOT_FOUND)?;
            let (machine, seat, unit) = process.on(context)?;
            let region = process.memory.allocate(&On { machine, seat: &seat, unit, context }, size)?;
            if let Some(module) = process.kernels.modules.get_mut(&module) {
                module.globals.insert(key, (region.base, size));
            }
            (region.base, size)
        }
    };
    offer(place, base);
    offer(bytes, size as usize);
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(dptr: *mut u64, bytes: *mut usize, hmod: u64, name: *const c_char) -> Answer {
    global(dptr, bytes, hmod, name)
}

pub(crate) fn cuLibraryGetGlobal(dptr: *mut u64, bytes: *mut usize, library: u64, name: *const c_char) -> Answer {
    global(dptr, bytes, library, name)
}

pub(crate) fn cuLibraryLoadFromFile(
    library: *mut u64,
    fileName: *const c_char,
    jitOptions: *mut u32,
    jitOptionsValues: *mut *mut c_void,
    numJitOptions: u32,
    libraryOptions: *mut u32,
    libraryOptionValues: *mut *mut c_void,
    numLibraryOptions: u32,
) -> Answer {
    let path = text(fileName).ok_or(Error::INVALID_VALUE)?;
    drop(enter()?);
    let mut image = std::fs::read(path).map_err(|_| Error::FILE_NOT_FOUND)?;
    image.extend([0; 8]);
    cuLibraryLoadData(
        library,
        image.as_ptr().cast(),
        jitOptions,
        jitOptionsValues,
        numJitOptions,
        libraryOptions,
        libraryOptionValues,
        numLibraryOptions,
    )
}

pub(crate) fn cuLibraryGetKernelCount(count: *mut u32, lib: u64) -> Answer {
    cuModuleGetFunctionCount(count, lib)
}

pub(crate) fn cuLibraryEnumerateKernels(kernels: *mut u64, numKernels: u32, lib: u64) -> Answer {
    cuModuleEnumerateFunctions(kernels, numKernels, lib)
}

pub(crate) fn cuKernelGetLibrary(pLib: *mut u64, kernel: u64) -> Answer {
    cuFuncGetModule(pLib, kernel)
}

pub(crate) fn cuKernelGetAttribute(pi: *mut i32, attrib: u32, kernel: u64, dev: i32) -> Answer {
    drop(crate::api::device::on_device(dev)?);
    cuFuncGetAttribute(pi, attrib, kernel)
}

pub(crate) fn cuKernelSetAttribute(attrib: u32, val: i32, kernel: u64, dev: i32) -> Answer {
    drop(crate::api::device::on_device(dev)?);
    cuFuncSetAttribute(kernel, attrib, val)
}

pub(crate) fn cuKernelSetCacheConfig(kernel: u64, config: u32, dev: i32) -> Answer {
    drop(crate::api::device::on_device(dev)?);
    cuFuncSetCacheConfig(kernel, config)
}

pub(crate) fn cuFuncGetParamInfo(
    func: u64,
    paramIndex: usize,
    paramOffset: *mut usize,
    paramSize: *mut usize,
) -> Answer {
    let process = enter()?;
    let sizes = process.kernels.parameters(func)?;
    let size = *sizes.get(paramIndex).ok_or(Error::INVALID_VALUE)?;
    let offset = sizes[..paramIndex]
        .iter()
        .zip(&sizes[1..])
        .fold(0usize, |at, (size, next)| (at + size).next_multiple_of((*next).min(8)));
    put(paramOffset, offset)?;
    offer(paramSize, size);
    Ok(())
}

pub(crate) fn cuKernelGetParamInfo(
    kernel: u64,
    paramIndex: usize,
    paramOffset: *mut usize,
    paramSize: *mut usize,
) -> Answer {
    cuFuncGetParamInfo(kernel, paramIndex, paramOffset, paramSize)
}

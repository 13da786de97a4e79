//! Starting and stopping, versions, error texts.

use std::ffi::{CStr, c_char};

use crate::abi::{Answer, Error, chars, nvmlSystemDriverBranchInfo_t};
use crate::call::{self, machine, put, put_text};

pub(crate) fn nvmlInit() -> Answer {
    call::init()
}

pub(crate) fn nvmlInit_v2() -> Answer {
    call::init()
}

pub(crate) fn nvmlInitWithFlags(flags: u32) -> Answer {
    const KNOWN: u32 = 3;
    if flags & !KNOWN != 0 { Err(Error::INVALID_ARGUMENT) } else { call::init() }
}

pub(crate) fn nvmlShutdown() -> Answer {
    call::shutdown()
}

pub(crate) fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) -> Answer {
    put_text(version, length, &machine()?.spec.driver)
}

pub(crate) fn nvmlSystemGetDriverBranch(branchInfo: *mut nvmlSystemDriverBranchInfo_t, _length: u32) -> Answer {
    let major = machine()?.spec.driver.split('.').next().unwrap_or("").to_owned();
    let version = call::get(branchInfo)?.version;
    put(branchInfo, nvmlSystemDriverBranchInfo_t { version, branch: chars(&format!("r{major}_00")) })
}

pub(crate) fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: u32) -> Answer {
    let machine = machine()?;
    put_text(version, length, &format!("{}.{}", machine.spec.cuda / 1000, machine.spec.driver))
}

pub(crate) fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut i32) -> Answer {
    put(cudaDriverVersion, machine()?.spec.cuda)
}

pub(crate) fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut i32) -> Answer {
    put(cudaDriverVersion, machine()?.spec.cuda)
}

pub(crate) fn nvmlSystemGetProcessName(pid: u32, name: *mut c_char, length: u32) -> Answer {
    let machine = machine()?;
    let known = machine.units().into_iter().flat_map(|u| machine.tenants(u)).find(|t| t.pid == pid).map(|t| t.name);
    let found =
        known.or_else(|| std::fs::read_link(format!("/proc/{pid}/exe")).ok().map(|p| p.to_string_lossy().into_owned()));
    let found = found.ok_or(Error::NOT_FOUND)?;
    // Cut, not refused, as the real one does.
    let end = found.len().min((length as usize).saturating_sub(1));
    put_text(name, length, found.get(..end).unwrap_or(""))
}

pub(crate) fn nvmlUnitGetCount(unitCount: *mut u32) -> Answer {
    machine()?;
    put(unitCount, 0)
}

pub(crate) fn nvmlGetExcludedDeviceCount(deviceCount: *mut u32) -> Answer {
    machine()?;
    put(deviceCount, 0)
}

/// The text of a return code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    let text: &CStr = match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"vGPU ECC not supported",
        23 => c"Insufficient Resources",
        24 => c"Frequency not supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// The tables of internal functions: we have none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInternalGetExportTable(
    _table: *mut *const core::ffi::c_void,
    _id: *const core::ffi::c_void,
) -> u32 {
    Error::NOT_SUPPORTED.0
}

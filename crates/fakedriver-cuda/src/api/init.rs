//! Starting, versions, errors, and the ways to reach the other functions.

use std::ffi::{c_char, c_void};

use crate::abi::{Answer, CUuuid, Error};
use crate::call::{offer, put, text};
use crate::process;
use crate::tables::{Missing, lookup};
use crate::{ERRORS, export_table};

pub(crate) fn cuInit(Flags: u32) -> Answer {
    if Flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    process::init()
}

pub(crate) fn cuDriverGetVersion(driverVersion: *mut i32) -> Answer {
    // Allowed before cuInit.
    let version = process::look()?.spec.cuda;
    put(driverVersion, version)
}

fn error(code: u32) -> Option<&'static (u32, &'static std::ffi::CStr, &'static std::ffi::CStr)> {
    ERRORS.iter().find(|e| e.0 == code)
}

pub(crate) fn cuGetErrorName(error_code: u32, pStr: *mut *const c_char) -> Answer {
    offer(pStr, error(error_code).map_or(std::ptr::null(), |e| e.1.as_ptr()));
    if pStr.is_null() || error(error_code).is_none() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuGetErrorString(error_code: u32, pStr: *mut *const c_char) -> Answer {
    offer(pStr, error(error_code).map_or(std::ptr::null(), |e| e.2.as_ptr()));
    if pStr.is_null() || error(error_code).is_none() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

fn find(
    name: *const c_char,
    place: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> Result<Result<*mut c_void, Missing>, Error> {
    const PER_THREAD: u64 = 2;
    if name.is_null() || place.is_null() || flags > 3 || version > process::look()?.spec.cuda {
        return Err(Error::INVALID_VALUE);
    }
    let found = lookup(&text(name).unwrap_or_default(), version, flags & PER_THREAD != 0);
    if crate::call::tracing() {
        eprintln!("fake driver: lookup {:?} {version} {flags}: {:?}", text(name), found.map(|s| s.name));
    }
    Ok(found.map(|s| s.address.0.cast_mut().cast()))
}

/// The first form leaves the place as it was when there is nothing to put there.
pub(crate) fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: u64) -> Answer {
    put(pfn, find(symbol, pfn, cudaVersion, flags)?.map_err(|_| Error::NOT_FOUND)?)
}

/// The second succeeds with nothing, and says why.
pub(crate) fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: i32,
    flags: u64,
    symbolStatus: *mut u32,
) -> Answer {
    let found = find(symbol, pfn, cudaVersion, flags)?;
    offer(
        symbolStatus,
        match found {
            Ok(_) => 0,
            Err(Missing::NoSuchName) => 1,
            Err(Missing::OnlyNewer) => 2,
        },
    );
    put(pfn, found.unwrap_or(std::ptr::null_mut()))
}

pub(crate) fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid) -> Answer {
    let id = crate::call::get(pExportTableId)?;
    let table = export_table::find(&id.bytes).ok_or(Error::INVALID_VALUE)?;
    put(ppExportTable, table)
}

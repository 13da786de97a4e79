//! Profiler, core dumps, logs, checkpoints, notifications: there, with little behind them.

use std::ffi::{c_char, c_void};

use crate::abi::{Answer, Error};
use crate::api::device::on_device;
use crate::call::{array, get, put, text};
use crate::process::enter;

pub(crate) fn cuProfilerStart() -> Answer {
    enter()?.current().map(drop)
}

pub(crate) fn cuProfilerStop() -> Answer {
    enter()?.current().map(drop)
}

pub(crate) fn cuProfilerInitialize(_configFile: *const c_char, _outputFile: *const c_char, _outputMode: u32) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if target != 0 || !matches!(scope, 100 | 200) { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuLogsCurrent(iterator_out: *mut u32, flags: u32) -> Answer {
    drop(enter()?);
    if flags != 0 { Err(Error::INVALID_VALUE) } else { put(iterator_out, 0) }
}

pub(crate) fn cuLogsDumpToMemory(_iterator: *mut u32, buffer: *mut c_char, size: *mut usize, flags: u32) -> Answer {
    drop(enter()?);
    if buffer.is_null() || flags != 0 || get(size)? == 0 {
        return Err(Error::INVALID_VALUE);
    }
    put(buffer, 0)?;
    put(size, 0)
}

pub(crate) fn cuLogsDumpToFile(_iterator: *mut u32, pathToFile: *const c_char, flags: u32) -> Answer {
    drop(enter()?);
    let path = text(pathToFile).filter(|_| flags == 0).ok_or(Error::INVALID_VALUE)?;
    std::fs::write(path, "").map_err(|_| Error::INVALID_VALUE)
}

pub(crate) fn cuLogsRegisterCallback(callbackFunc: u64, _userData: *mut c_void, callback_out: *mut u64) -> Answer {
    let mut process = enter()?;
    if callbackFunc == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    put(callback_out, id)
}

pub(crate) fn cuLogsUnregisterCallback(callback: u64) -> Answer {
    drop(enter()?);
    if callback == 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuDeviceRegisterAsyncNotification(
    device: i32,
    callbackFunc: u64,
    _userData: *mut c_void,
    callback: *mut u64,
) -> Answer {
    let (mut process, ..) = on_device(device)?;
    if callbackFunc == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    put(callback, id)
}

pub(crate) fn cuDeviceUnregisterAsyncNotification(device: i32, callback: u64) -> Answer {
    drop(on_device(device)?);
    if callback == 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuDeviceGetHostAtomicCapabilities(
    capabilities: *mut u32,
    operations: *const u32,
    count: u32,
    dev: i32,
) -> Answer {
    drop(on_device(dev)?);
    for i in 0..array(operations, count as usize)?.len() {
        // SAFETY: the program has room for `count` answers.
        put(unsafe { capabilities.add(i) }, 0)?;
    }
    if count == 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

/// The state of a process with respect to checkpoints: running, always.
pub(crate) fn cuCheckpointProcessGetState(pid: i32, state: *mut u32) -> Answer {
    let process = enter()?;
    let mut on = process.machine.units().into_iter().flat_map(|u| process.machine.tenants(u));
    let known = u32::try_from(pid).is_ok_and(|pid| on.any(|t| t.pid == pid));
    if known { put(state, 0) } else { Err(Error::INVALID_VALUE) }
}

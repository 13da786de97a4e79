//! Launches.

use std::ffi::c_void;

use crate::abi::{Answer, CUDA_LAUNCH_PARAMS_v1, CUlaunchConfig, Error};
use crate::call::{array, get};
use crate::op::{Launch, Op};
use crate::process::enter;

fn launch(what: Launch, stream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    let unit = process.engine.stream(id).ok_or(Error::INVALID_HANDLE)?.unit;
    let what = what.look(&process, unit)?;
    process.enqueue(id, Op::Kernel(what))
}

pub(crate) fn cuLaunchKernel(
    f: u64,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: u64,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let what = Launch {
        function: f,
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared: sharedMemBytes,
        cooperative: false,
        params: kernelParams as u64,
        extra: extra as u64,
        time: 0,
    };
    launch(what, hStream)
}

pub(crate) fn cuLaunchCooperativeKernel(
    f: u64,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: u64,
    kernelParams: *mut *mut c_void,
) -> Answer {
    let what = Launch {
        function: f,
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared: sharedMemBytes,
        cooperative: true,
        params: kernelParams as u64,
        extra: 0,
        time: 0,
    };
    launch(what, hStream)
}

pub(crate) fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: u64,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let config = get(config)?;
    const COOPERATIVE: u32 = 2;
    let attributes = array(config.attributes, config.count as usize)?;
    let what = Launch {
        function: f,
        grid: config.grid,
        block: config.block,
        shared: config.shared,
        cooperative: attributes.iter().any(|a| a.id == COOPERATIVE && a.value[0] as u32 != 0),
        params: kernelParams as u64,
        extra: extra as u64,
        time: 0,
    };
    launch(what, config.stream)
}

pub(crate) fn cuLaunchCooperativeKernelMultiDevice(
    launchParamsList: *mut CUDA_LAUNCH_PARAMS_v1,
    numDevices: u32,
    _flags: u32,
) -> Answer {
    drop(enter()?);
    let list = array(launchParamsList, numDevices as usize)?;
    if list.is_empty() || list.iter().any(|l| l.stream <= 2) {
        return Err(Error::INVALID_VALUE);
    }
    for l in list {
        let what = Launch {
            function: l.function,
            grid: l.grid,
            block: l.block,
            shared: l.shared,
            cooperative: true,
            params: l.params as u64,
            extra: 0,
            time: 0,
        };
        launch(what, l.stream)?;
    }
    Ok(())
}

// Launches of before CUDA 4: the shape of a block is set on the function, the grid when it is launched.

fn old_launch(function: u64, grid: [u32; 3], stream: u64) -> Answer {
    let (block, shared) = {
        let process = enter()?;
        let known = process.kernels.get(function)?;
        (known.block, known.shared)
    };
    launch(Launch { function, grid, block, shared, cooperative: false, params: 0, extra: 0, time: 0 }, stream)
}

pub(crate) fn cuLaunch(f: u64) -> Answer {
    old_launch(f, [1, 1, 1], 0)
}

fn side(length: i32) -> Result<u32, Error> {
    u32::try_from(length).map_err(|_| Error::INVALID_VALUE)
}

pub(crate) fn cuLaunchGrid(f: u64, grid_width: i32, grid_height: i32) -> Answer {
    old_launch(f, [side(grid_width)?, side(grid_height)?, 1], 0)
}

pub(crate) fn cuLaunchGridAsync(f: u64, grid_width: i32, grid_height: i32, hStream: u64) -> Answer {
    old_launch(f, [side(grid_width)?, side(grid_height)?, 1], hStream)
}

pub(crate) fn cuFuncSetBlockShape(hfunc: u64, x: i32, y: i32, z: i32) -> Answer {
    let mut process = enter()?;
    let block = [side(x)?, side(y)?, side(z)?];
    if block.contains(&0) {
        return Err(Error::INVALID_VALUE);
    }
    process.kernels.functions.get_mut(&hfunc).ok_or(Error::INVALID_HANDLE)?.block = block;
    Ok(())
}

pub(crate) fn cuFuncSetSharedSize(hfunc: u64, bytes: u32) -> Answer {
    let mut process = enter()?;
    process.kernels.functions.get_mut(&hfunc).ok_or(Error::INVALID_HANDLE)?.shared = bytes;
    Ok(())
}

pub(crate) fn cuParamSetSize(hfunc: u64, _numbytes: u32) -> Answer {
    enter()?.kernels.get(hfunc).map(drop)
}

pub(crate) fn cuParamSeti(hfunc: u64, _offset: i32, _value: u32) -> Answer {
    enter()?.kernels.get(hfunc).map(drop)
}

pub(crate) fn cuParamSetf(hfunc: u64, _offset: i32, _value: f32) -> Answer {
    enter()?.kernels.get(hfunc).map(drop)
}

pub(crate) fn cuParamSetv(hfunc: u64, _offset: i32, _ptr: *mut c_void, _numbytes: u32) -> Answer {
    enter()?.kernels.get(hfunc).map(drop)
}

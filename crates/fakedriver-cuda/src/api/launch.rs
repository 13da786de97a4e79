//! Launches.

use std::ffi::c_void;

use crate::abi::{Answer, CUlaunchConfig, Error};
use crate::call::get;
use crate::engine::{StreamId, Work};
use crate::process::{Process, enter};

/// A launch, as all the launching functions describe it.
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: *mut *mut c_void,
    pub(crate) cooperative: bool,
}

impl Launch {
    /// The work of the launch in a stream, or what is wrong with it.
    pub(crate) fn work(&self, process: &Process, stream: StreamId) -> Result<Work, Error> {
        let unit = process.engine.stream(stream).ok_or(Error::INVALID_HANDLE)?.unit;
        let function = process.kernels.get(self.function)?;
        let threads = self.block.iter().fold(1u64, |n, &d| n * u64::from(d));
        let blocks = self.grid.iter().fold(1u64, |n, &d| n.saturating_mul(d.into()));
        if threads == 0
            || blocks == 0
            || threads > 1024
            || self.block[2] > 64
            || self.grid[1] > 65_535
            || self.grid[2] > 65_535
        {
            return Err(Error::INVALID_VALUE);
        }
        let optin = crate::device::attribute(process.machine, unit, 97).unwrap_or(0);
        let allowed = function.attributes.get(&8).copied().unwrap_or(49_152).clamp(49_152, optin.max(49_152));
        if i64::from(self.shared) > i64::from(allowed) {
            return Err(Error::INVALID_VALUE);
        }
        let sms = process.machine.sms(unit);
        if self.cooperative && blocks > u64::from(sms) * 32 {
            return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let time = function.time(self.params, blocks, sms, process.machine.spec.kernel);
        let width = u32::try_from(blocks.min(sms.into())).unwrap_or(1);
        Ok(Work::Kernel { time, width, effect: None })
    }

    fn submit(&self, stream: u64) -> Answer {
        let mut process = enter()?;
        let id = process.resolve_stream(stream)?;
        let work = self.work(&process, id)?;
        process.submit(id, work, Vec::new());
        Ok(())
    }
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
    _extra: *mut *mut c_void,
) -> Answer {
    let launch = Launch {
        function: f,
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared: sharedMemBytes,
        params: kernelParams,
        cooperative: false,
    };
    launch.submit(hStream)
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
    let launch = Launch {
        function: f,
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared: sharedMemBytes,
        params: kernelParams,
        cooperative: true,
    };
    launch.submit(hStream)
}

pub(crate) fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: u64,
    kernelParams: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Answer {
    let config = get(config)?;
    const COOPERATIVE: u32 = 2;
    let attributes = crate::call::array(config.attributes, config.count as usize)?;
    let launch = Launch {
        function: f,
        grid: config.grid,
        block: config.block,
        shared: config.shared,
        params: kernelParams,
        cooperative: attributes.iter().any(|a| a.id == COOPERATIVE && a.value[0] as u32 != 0),
    };
    launch.submit(config.stream)
}

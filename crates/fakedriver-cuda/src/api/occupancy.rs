//! How many blocks fit.

use crate::abi::{Answer, CUlaunchConfig, Error};
use crate::call::{get, put};
use crate::device::attribute;
use crate::process::{Process, enter};

/// Blocks of a size that a multiprocessor of the current device holds.
fn blocks(process: &mut Process, function: u64, size: i32, shared: usize) -> Result<i32, Error> {
    process.kernels.get(function)?;
    let context = process.current()?;
    let unit = process.context(context)?.unit;
    let of = |number| attribute(process.machine, unit, number).unwrap_or(1);
    if size <= 0 || size > 1024 {
        return Err(Error::INVALID_VALUE);
    }
    let by_threads = of(39) / ((size + 31) / 32 * 32);
    let each = i32::try_from(shared).unwrap_or(i32::MAX).saturating_add(of(111));
    let by_shared = if each == 0 { i32::MAX } else { of(81) / each };
    Ok(by_threads.min(of(106)).min(by_shared))
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    numBlocks: *mut i32,
    func: u64,
    blockSize: i32,
    dynamicSMemSize: usize,
) -> Answer {
    let count = blocks(&mut *enter()?, func, blockSize, dynamicSMemSize)?;
    put(numBlocks, count)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    numBlocks: *mut i32,
    func: u64,
    blockSize: i32,
    dynamicSMemSize: usize,
    flags: u32,
) -> Answer {
    if flags > 1 {
        Err(Error::INVALID_VALUE)
    } else {
        cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, func, blockSize, dynamicSMemSize)
    }
}

pub(crate) fn cuOccupancyMaxPotentialBlockSize(
    minGridSize: *mut i32,
    blockSize: *mut i32,
    func: u64,
    _blockSizeToDynamicSMemSize: u64,
    dynamicSMemSize: usize,
    blockSizeLimit: i32,
) -> Answer {
    let mut process = enter()?;
    let size = if blockSizeLimit <= 0 { 1024 } else { blockSizeLimit.min(1024) };
    let per_sm = blocks(&mut process, func, size, dynamicSMemSize)?;
    let context = process.current()?;
    let sms = process.machine.sms(process.context(context)?.unit).cast_signed();
    put(blockSize, size)?;
    put(minGridSize, per_sm * sms)
}

pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    minGridSize: *mut i32,
    blockSize: *mut i32,
    func: u64,
    blockSizeToDynamicSMemSize: u64,
    dynamicSMemSize: usize,
    blockSizeLimit: i32,
    flags: u32,
) -> Answer {
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    cuOccupancyMaxPotentialBlockSize(
        minGridSize,
        blockSize,
        func,
        blockSizeToDynamicSMemSize,
        dynamicSMemSize,
        blockSizeLimit,
    )
}

pub(crate) fn cuOccupancyAvailableDynamicSMemPerBlock(
    dynamicSmemSize: *mut usize,
    func: u64,
    numBlocks: i32,
    blockSize: i32,
) -> Answer {
    let mut process = enter()?;
    let most = blocks(&mut process, func, blockSize, 0)?;
    if numBlocks <= 0 || numBlocks > most {
        return Err(Error::INVALID_VALUE);
    }
    let context = process.current()?;
    let unit = process.context(context)?.unit;
    let of = |number| attribute(process.machine, unit, number).unwrap_or(0);
    let each = (of(81) / numBlocks - of(111)).min(of(97)).max(0);
    put(dynamicSmemSize, each as usize)
}

pub(crate) fn cuOccupancyMaxPotentialClusterSize(
    clusterSize: *mut i32,
    func: u64,
    config: *const CUlaunchConfig,
) -> Answer {
    let process = enter()?;
    process.kernels.get(func)?;
    get(config)?;
    put(clusterSize, 8)
}

pub(crate) fn cuOccupancyMaxActiveClusters(numClusters: *mut i32, func: u64, config: *const CUlaunchConfig) -> Answer {
    let mut process = enter()?;
    process.kernels.get(func)?;
    let config = get(config)?;
    let threads = config.block.iter().product::<u32>().cast_signed();
    let per_sm = blocks(&mut process, func, threads, config.shared as usize)?;
    let context = process.current()?;
    let sms = process.machine.sms(process.context(context)?.unit).cast_signed();
    put(numClusters, per_sm * sms)
}

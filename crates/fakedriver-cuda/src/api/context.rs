//! Contexts: primary and created ones, which is current, their limits.

use crate::abi::{Answer, CUctxCreateParams, CUexecAffinityParam, Error};
use crate::api::device::on_device;
use crate::call::{offer, put};
use crate::context::{self, current, forget_current, pop_current, push_current, set_current};
use crate::process::enter;

/// All flags a context may have.
const FLAGS: u32 = 0xff;

fn check_flags(flags: u32) -> Answer {
    if flags & !FLAGS != 0 || (flags & 7) == 3 || (flags & 7) > 4 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

/// The primary context of a device, made if it is not there, retained or not.
pub(crate) fn primary(pctx: *mut u64, dev: i32) -> Answer {
    cuDevicePrimaryCtxRetain(pctx, dev)
}

pub(crate) fn cuDevicePrimaryCtxRetain(pctx: *mut u64, dev: i32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    if pctx.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = match process.devices[index].primary {
        Some(id) => id,
        None => {
            let flags = process.devices[index].primary_flags;
            let id = process.create_context(index, flags, true)?;
            process.devices[index].primary = Some(id);
            id
        }
    };
    process.devices[index].retained += 1;
    put(pctx, id)
}

pub(crate) fn cuDevicePrimaryCtxRelease_v2(dev: i32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    let device = &mut process.devices[index];
    let id = device.primary.filter(|_| device.retained > 0).ok_or(Error::INVALID_CONTEXT)?;
    device.retained -= 1;
    if device.retained == 0 {
        device.primary = None;
        return process.destroy_context(id);
    }
    Ok(())
}

/// The first form does not mind that nobody holds it.
pub(crate) fn cuDevicePrimaryCtxRelease(dev: i32) -> Answer {
    match cuDevicePrimaryCtxRelease_v2(dev) {
        Err(Error::INVALID_CONTEXT) => Ok(()),
        other => other,
    }
}

pub(crate) fn cuDevicePrimaryCtxReset_v2(dev: i32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    let device = &mut process.devices[index];
    device.retained = 0;
    match device.primary.take() {
        Some(id) => process.destroy_context(id),
        None => Ok(()),
    }
}

pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    check_flags(flags)?;
    process.devices[index].primary_flags = flags;
    if let Some(id) = process.devices[index].primary
        && let Some(context) = process.contexts.get_mut(&id)
    {
        context.flags = flags;
    }
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxGetState(dev: i32, flags: *mut u32, active: *mut i32) -> Answer {
    let (process, index, _) = on_device(dev)?;
    let device = &process.devices[index];
    offer(flags, device.primary_flags);
    offer(active, device.primary.is_some().into());
    Ok(())
}

fn create(pctx: *mut u64, flags: u32, dev: i32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    if pctx.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    check_flags(flags)?;
    let id = process.create_context(index, flags, false)?;
    push_current(id);
    put(pctx, id)
}

/// Contexts of the first version of the API, for 32 bits, are no longer to be had.
pub(crate) fn cuCtxCreate(pctx: *mut u64, _flags: u32, dev: i32) -> Answer {
    drop(on_device(dev)?);
    Err(if pctx.is_null() { Error::INVALID_VALUE } else { Error::OUT_OF_MEMORY })
}

pub(crate) fn cuCtxCreate_v2(pctx: *mut u64, flags: u32, dev: i32) -> Answer {
    create(pctx, flags, dev)
}

pub(crate) fn cuCtxCreate_v3(
    pctx: *mut u64,
    paramsArray: *mut CUexecAffinityParam,
    numParams: i32,
    flags: u32,
    dev: i32,
) -> Answer {
    if numParams != 0 && !paramsArray.is_null() {
        drop(on_device(dev)?);
        return Err(Error(224));
    }
    create(pctx, flags, dev)
}

pub(crate) fn cuCtxCreate_v4(pctx: *mut u64, ctxCreateParams: *mut CUctxCreateParams, flags: u32, dev: i32) -> Answer {
    if !ctxCreateParams.is_null() {
        let params = crate::call::get(ctxCreateParams)?;
        if params.cig != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        if params.count != 0 && !params.affinity.is_null() {
            return Err(Error(224));
        }
    }
    create(pctx, flags, dev)
}

pub(crate) fn cuCtxDestroy_v2(ctx: u64) -> Answer {
    let mut process = enter()?;
    let known =
        process.contexts.get(&ctx).ok_or(if ctx == 0 { Error::INVALID_VALUE } else { Error::INVALID_CONTEXT })?;
    if known.primary {
        return Err(Error::INVALID_CONTEXT);
    }
    process.destroy_context(ctx)?;
    forget_current(ctx);
    Ok(())
}

pub(crate) fn cuCtxAttach(pctx: *mut u64, flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    put(pctx, id)
}

pub(crate) fn cuCtxDetach(ctx: u64) -> Answer {
    let process = enter()?;
    process.context(ctx)?;
    if current() == Some(ctx) { Ok(()) } else { Err(Error::INVALID_CONTEXT) }
}

pub(crate) fn cuCtxPushCurrent_v2(ctx: u64) -> Answer {
    let process = enter()?;
    process.contexts.get(&ctx).ok_or(if ctx == 0 { Error::INVALID_VALUE } else { Error::INVALID_CONTEXT })?;
    push_current(ctx);
    Ok(())
}

pub(crate) fn cuCtxPopCurrent_v2(pctx: *mut u64) -> Answer {
    drop(enter()?);
    let id = pop_current().ok_or(Error::INVALID_CONTEXT)?;
    offer(pctx, id);
    Ok(())
}

pub(crate) fn cuCtxSetCurrent(ctx: u64) -> Answer {
    let process = enter()?;
    if ctx != 0 {
        process.context(ctx)?;
    }
    set_current(ctx);
    Ok(())
}

pub(crate) fn cuCtxGetCurrent(pctx: *mut u64) -> Answer {
    drop(enter()?);
    put(pctx, current().unwrap_or(0))
}

pub(crate) fn cuCtxGetDevice(device: *mut i32) -> Answer {
    let process = enter()?;
    let id = current().ok_or(Error::INVALID_CONTEXT)?;
    let context = process.contexts.get(&id).ok_or(Error::CONTEXT_IS_DESTROYED)?;
    put(device, i32::try_from(context.device).unwrap_or(0))
}

pub(crate) fn cuCtxGetDevice_v2(device: *mut i32, ctx: u64) -> Answer {
    if ctx == 0 {
        return cuCtxGetDevice(device);
    }
    let process = enter()?;
    put(device, i32::try_from(process.context(ctx)?.device).unwrap_or(0))
}

pub(crate) fn cuCtxGetFlags(flags: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    // Host memory is always mapped.
    const MAP_HOST: u32 = 8;
    put(flags, process.context(id)?.flags | MAP_HOST)
}

pub(crate) fn cuCtxSetFlags(flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    check_flags(flags)?;
    if let Some(context) = process.contexts.get_mut(&id) {
        context.flags = flags;
    }
    Ok(())
}

pub(crate) fn cuCtxGetId(ctx: u64, ctxId: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = if ctx == 0 { process.current()? } else { ctx };
    put(ctxId, process.context(id)?.id)
}

pub(crate) fn cuCtxGetApiVersion(ctx: u64, version: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = if ctx == 0 { process.current()? } else { ctx };
    put(version, process.context(id)?.api_version)
}

pub(crate) fn cuCtxSynchronize() -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    context::synchronize(process, id).map(drop)
}

pub(crate) fn cuCtxSynchronize_v2(ctx: u64) -> Answer {
    if ctx == 0 {
        return cuCtxSynchronize();
    }
    let mut process = enter()?;
    process.context(ctx)?;
    process.usable(ctx)?;
    context::synchronize(process, ctx).map(drop)
}

pub(crate) fn cuCtxGetLimit(pvalue: *mut usize, limit: u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    let default = default_limit(limit)?;
    let value = process.context(id)?.limits.get(&limit).copied().unwrap_or(default);
    put(pvalue, value as usize)
}

fn default_limit(limit: u32) -> Result<u64, Error> {
    Ok(match limit {
        0 => 1024,
        1 => 8_650_752,
        2 => 8 << 20,
        3 => return Err(Error::UNSUPPORTED_LIMIT),
        4 => 2048,
        5 => 64,
        6 => 11_796_480,
        7 => 232_448,
        8 => 0,
        9 => return Err(Error::UNSUPPORTED_LIMIT),
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(crate) fn cuCtxSetLimit(limit: u32, value: usize) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    let default = default_limit(limit)?;
    let before = process.context(id)?.limits.get(&limit).copied().unwrap_or(default);
    let unit = process.context(id)?.unit;
    // Stacks are of every thread the card can hold; heap and printf buffer are one.
    let threads = u64::from(process.machine.sms(unit))
        * u64::try_from(process.machine.card(unit).model.threads_per_sm).unwrap_or(0);
    let room = |value: u64| match limit {
        STACK => value.saturating_mul(threads),
        PRINTF_FIFO | MALLOC_HEAP => value,
        _ => 0,
    };
    process.recharge(id, room(before), room(value as u64))?;
    if let Some(context) = process.contexts.get_mut(&id) {
        context.limits.insert(limit, value as u64);
    }
    Ok(())
}

const STACK: u32 = 0;
const PRINTF_FIFO: u32 = 1;
const MALLOC_HEAP: u32 = 2;

pub(crate) fn cuCtxGetCacheConfig(pconfig: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    put(pconfig, process.context(id)?.cache_config)
}

pub(crate) fn cuCtxSetCacheConfig(config: u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    if config > 3 {
        return Err(Error::INVALID_VALUE);
    }
    if let Some(context) = process.contexts.get_mut(&id) {
        context.cache_config = config;
    }
    Ok(())
}

pub(crate) fn cuCtxGetSharedMemConfig(pConfig: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    put(pConfig, process.context(id)?.shared_config)
}

pub(crate) fn cuCtxSetSharedMemConfig(config: u32) -> Answer {
    let mut process = enter()?;
    process.current()?;
    if config > 2 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuCtxGetStreamPriorityRange(leastPriority: *mut i32, greatestPriority: *mut i32) -> Answer {
    let mut process = enter()?;
    process.current()?;
    offer(leastPriority, 0);
    offer(greatestPriority, -5);
    Ok(())
}

pub(crate) fn cuCtxResetPersistingL2Cache() -> Answer {
    let mut process = enter()?;
    process.current().map(drop)
}

pub(crate) fn cuCtxEnablePeerAccess(peerContext: u64, Flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    if Flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (mine, theirs) = (process.context(id)?.unit, process.context(peerContext)?.unit);
    if mine == theirs {
        return Err(Error::PEER_ACCESS_UNSUPPORTED);
    }
    if mine.instance_index().is_some() || theirs.instance_index().is_some() {
        return Err(Error::PEER_ACCESS_UNSUPPORTED);
    }
    let peers = &mut process.contexts.get_mut(&id).ok_or(Error::INVALID_CONTEXT)?.peers;
    if peers.contains(&peerContext) {
        return Err(Error::PEER_ACCESS_ALREADY_ENABLED);
    }
    peers.push(peerContext);
    Ok(())
}

pub(crate) fn cuCtxDisablePeerAccess(peerContext: u64) -> Answer {
    let mut process = enter()?;
    let id = process.current()?;
    process.context(peerContext)?;
    let peers = &mut process.contexts.get_mut(&id).ok_or(Error::INVALID_CONTEXT)?.peers;
    let before = peers.len();
    peers.retain(|&p| p != peerContext);
    if peers.len() == before { Err(Error::PEER_ACCESS_NOT_ENABLED) } else { Ok(()) }
}

//! Green contexts: contexts that use only some of a device's multiprocessors.

use crate::abi::{Answer, CUdevResource, Error};
use crate::api::device::on_device;
use crate::api::stream::HIGHEST;
use crate::call::{array, get, put};
use crate::engine::Work;
use crate::op::Op;
use crate::process::enter;

/// Multiprocessors come in groups of this many on Hopper, of two before.
fn alignment(capability: i32) -> u32 {
    if capability >= 9 { 8 } else { 2 }
}

const SM: u32 = 1;

fn resource(sms: u32, step: u32) -> CUdevResource {
    CUdevResource { kind: SM, pad: [0; 92], sms, min: step, alignment: step, oversize: [0; 36] }
}

pub(crate) fn cuDeviceGetDevResource(device: i32, resource_out: *mut CUdevResource, kind: u32) -> Answer {
    let (process, _, unit) = on_device(device)?;
    if kind != SM {
        return Err(Error(914));
    }
    let step = alignment(process.machine.card(unit).model.capability.0);
    put(resource_out, resource(process.machine.sms(unit), step))
}

pub(crate) fn cuCtxGetDevResource(hCtx: u64, resource_out: *mut CUdevResource, kind: u32) -> Answer {
    let process = enter()?;
    let context = process.context(hCtx)?;
    if kind != SM {
        return Err(Error(914));
    }
    let step = alignment(process.machine.card(context.unit).model.capability.0);
    let sms = context.green.map_or(process.machine.sms(context.unit), |(count, _)| count);
    put(resource_out, resource(sms, step))
}

pub(crate) fn cuGreenCtxGetDevResource(hCtx: u64, resource_out: *mut CUdevResource, kind: u32) -> Answer {
    green(hCtx)?;
    cuCtxGetDevResource(hCtx, resource_out, kind)
}

/// Checks that a handle is a green context's.
fn green(id: u64) -> Answer {
    let process = enter()?;
    process.context(id)?.green.map(drop).ok_or(Error::INVALID_CONTEXT)
}

pub(crate) fn cuDevSmResourceSplitByCount(
    result: *mut CUdevResource,
    nbGroups: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    useFlags: u32,
    minCount: u32,
) -> Answer {
    drop(enter()?);
    let whole = get(input)?;
    let wanted = get(nbGroups)?;
    const IGNORE_COSCHEDULING: u32 = 1;
    if whole.kind != SM || useFlags > 3 || wanted == 0 {
        return Err(Error(914));
    }
    let step = if useFlags & IGNORE_COSCHEDULING != 0 { 2 } else { whole.alignment.max(1) };
    let size = minCount.max(whole.min.min(step)).next_multiple_of(step).max(step);
    let groups = (whole.sms / size).min(wanted);
    if groups == 0 {
        return Err(Error(915));
    }
    if !result.is_null() {
        for i in 0..groups as usize {
            // SAFETY: the program has room for as many groups as it asked for.
            put(unsafe { result.add(i) }, resource(size, step))?;
        }
    }
    put(nbGroups, groups)?;
    if !remaining.is_null() {
        put(remaining, resource(whole.sms - groups * size, step))?;
    }
    Ok(())
}

pub(crate) fn cuDevResourceGenerateDesc(phDesc: *mut u64, resources: *mut CUdevResource, nbResources: u32) -> Answer {
    let mut process = enter()?;
    let list = array(resources, nbResources as usize)?;
    if list.is_empty() || list.iter().any(|r| r.kind != SM || r.sms == 0) {
        return Err(Error(914));
    }
    let id = process.handle();
    process.partitions.insert(id, list.iter().map(|r| r.sms).sum());
    put(phDesc, id)
}

pub(crate) fn cuGreenCtxCreate(phCtx: *mut u64, desc: u64, dev: i32, flags: u32) -> Answer {
    let (mut process, index, _) = on_device(dev)?;
    const DEFAULT_STREAM: u32 = 1;
    let sms = *process.partitions.get(&desc).ok_or(Error::INVALID_VALUE)?;
    if phCtx.is_null() || flags != DEFAULT_STREAM {
        return Err(Error::INVALID_VALUE);
    }
    let primary = match process.devices[index].primary {
        Some(primary) => primary,
        None => {
            let flags = process.devices[index].primary_flags;
            let primary = process.create_context(index, flags, true)?;
            process.devices[index].primary = Some(primary);
            primary
        }
    };
    process.devices[index].retained += 1;
    let id = process.create_green(index, sms, primary)?;
    put(phCtx, id)
}

pub(crate) fn cuGreenCtxDestroy(hCtx: u64) -> Answer {
    green(hCtx)?;
    let mut process = enter()?;
    let device = process.context(hCtx)?.device;
    process.destroy_context(hCtx)?;
    drop(process);
    crate::api::context::cuDevicePrimaryCtxRelease_v2(i32::try_from(device).unwrap_or(0))
}

pub(crate) fn cuCtxFromGreenCtx(pContext: *mut u64, hCtx: u64) -> Answer {
    green(hCtx)?;
    put(pContext, hCtx)
}

pub(crate) fn cuGreenCtxGetId(greenCtx: u64, greenCtxId: *mut u64) -> Answer {
    green(greenCtx)?;
    crate::api::context::cuCtxGetId(greenCtx, greenCtxId)
}

pub(crate) fn cuGreenCtxStreamCreate(phStream: *mut u64, greenCtx: u64, flags: u32, priority: i32) -> Answer {
    green(greenCtx)?;
    let mut process = enter()?;
    const NON_BLOCKING: u32 = 1;
    if phStream.is_null() || flags != NON_BLOCKING {
        return Err(Error::INVALID_VALUE);
    }
    let (id, unit) = (process.handle(), process.context(greenCtx)?.unit);
    process.engine.add_stream(id, greenCtx, unit, false, priority.clamp(HIGHEST, 0), flags);
    put(phStream, id)
}

pub(crate) fn cuStreamGetGreenCtx(hStream: u64, phCtx: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let context = process.engine.stream(id).map_or(0, |s| s.context);
    let is_green = process.context(context)?.green.is_some();
    put(phCtx, if is_green { context } else { 0 })
}

pub(crate) fn cuStreamGetCtx_v2(hStream: u64, pCtx: *mut u64, pGreenCtx: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let context = process.engine.stream(id).map_or(0, |s| s.context);
    let is_green = process.context(context)?.green.is_some();
    put(pCtx, if is_green { 0 } else { context })?;
    put(pGreenCtx, if is_green { context } else { 0 })
}

/// Records an event that stands for everything submitted to a context so far.
pub(crate) fn cuCtxRecordEvent(hCtx: u64, hEvent: u64) -> Answer {
    let mut process = enter()?;
    process.usable(hCtx)?;
    let legacy = process.context(hCtx)?.legacy;
    if process.events.get(hEvent).ok_or(Error::INVALID_HANDLE)?.context != hCtx {
        return Err(Error::INVALID_HANDLE);
    }
    let after = process.engine.marks_of(hCtx);
    process.submit(legacy, Work::Nothing, after);
    process.enqueue(legacy, Op::Record(hEvent))
}

/// Everything submitted to a context from now on waits for an event.
pub(crate) fn cuCtxWaitEvent(hCtx: u64, hEvent: u64) -> Answer {
    let mut process = enter()?;
    process.usable(hCtx)?;
    process.events.get(hEvent).ok_or(Error::INVALID_HANDLE)?;
    for stream in process.engine.streams_of(hCtx) {
        process.enqueue(stream, Op::Await(hEvent))?;
    }
    Ok(())
}

pub(crate) fn cuGreenCtxRecordEvent(hCtx: u64, hEvent: u64) -> Answer {
    green(hCtx)?;
    cuCtxRecordEvent(hCtx, hEvent)
}

pub(crate) fn cuGreenCtxWaitEvent(hCtx: u64, hEvent: u64) -> Answer {
    green(hCtx)?;
    cuCtxWaitEvent(hCtx, hEvent)
}

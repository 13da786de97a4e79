//! Streams: their life, order between them, words they wait for and write, functions they call.

use crate::abi::{Answer, CUstreamAttrValue_v1, CUstreamBatchMemOpParams, Error};
use crate::call::{array, get, put};
use crate::engine::{StreamId, Work};
use crate::memory::On;
use crate::op::Op;
use crate::process::{self, enter};

/// The highest priority; the lowest is 0.
pub(crate) const HIGHEST: i32 = -5;

pub(crate) fn cuStreamCreate(phStream: *mut u64, Flags: u32) -> Answer {
    create(phStream, Flags, 0)
}

pub(crate) fn cuStreamCreateWithPriority(phStream: *mut u64, flags: u32, priority: i32) -> Answer {
    create(phStream, flags, priority)
}

fn create(place: *mut u64, flags: u32, priority: i32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if place.is_null() || flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    let (id, unit) = (process.handle(), process.context(context)?.unit);
    process.engine.add_stream(id, context, unit, flags & 1 == 0, priority.clamp(HIGHEST, 0), flags);
    put(place, id)
}

pub(crate) fn cuStreamDestroy_v2(hStream: u64) -> Answer {
    let mut process = enter()?;
    if hStream <= 2 || process.engine.stream(hStream).is_none() {
        return Err(Error::INVALID_HANDLE);
    }
    process.engine.remove_stream(hStream);
    Ok(())
}

pub(crate) fn cuStreamGetPriority(hStream: u64, priority: *mut i32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    put(priority, process.engine.stream(id).map_or(0, |s| s.priority))
}

pub(crate) fn cuStreamGetFlags(hStream: u64, flags: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    put(flags, process.engine.stream(id).map_or(0, |s| s.flags))
}

pub(crate) fn cuStreamGetId(hStream: u64, streamId: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    put(streamId, id)
}

pub(crate) fn cuStreamGetCtx(hStream: u64, pctx: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    put(pctx, process.engine.stream(id).map_or(0, |s| s.context))
}

pub(crate) fn cuStreamGetDevice(hStream: u64, device: *mut i32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let context = process.engine.stream(id).map_or(0, |s| s.context);
    put(device, i32::try_from(process.context(context)?.device).unwrap_or(0))
}

pub(crate) fn cuStreamQuery(hStream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    process.step(divvy_fakedriver::sys::now());
    process.guard_wait(id)?;
    let id = process.resolve_stream(if hStream <= 2 { hStream } else { id })?;
    if process.engine.is_idle(id) { Ok(()) } else { Err(Error::NOT_READY) }
}

pub(crate) fn cuStreamSynchronize(hStream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    synchronize(process, id).map(drop)
}

/// Waits until everything submitted to a stream so far is done.
pub(crate) fn synchronize(mut process: process::Locked, id: StreamId) -> Result<process::Locked, Error> {
    let (context, unit) = process.engine.stream(id).map(|s| (s.context, s.unit)).ok_or(Error::INVALID_HANDLE)?;
    process.guard_wait(id)?;
    let mark = process.engine.mark(id);
    let (mut process, ()) = process::wait(process, |p| p.engine.is_done(mark).then_some(()));
    process.usable(context)?;
    let (machine, seat) = (process.machine, process.seat);
    process.memory.release_beyond_thresholds(&On { machine, seat: &seat, unit, context });
    Ok(process)
}

pub(crate) fn cuStreamWaitEvent(hStream: u64, hEvent: u64, Flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if Flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    process.events.get(hEvent).ok_or(Error::INVALID_HANDLE)?;
    if process.graphs.has_captures() && process.await_captured(id, hEvent)? {
        return Ok(());
    }
    process.enqueue(id, Op::Await(hEvent))
}

pub(crate) fn cuLaunchHostFunc(hStream: u64, function: u64, userData: *mut core::ffi::c_void) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if function == 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.enqueue(id, Op::Host { function, data: userData as u64 })
}

pub(crate) fn cuStreamAddCallback(hStream: u64, callback: u64, userData: *mut core::ffi::c_void, flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if callback == 0 || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.guard_wait(id)?;
    let work = Work::Call { function: callback, data: userData as u64, callback_of: Some(hStream) };
    process.submit(id, work, Vec::new());
    Ok(())
}

/// One memory operation in a stream.
fn word(stream: u64, operation: u32, address: u64, value: u64, flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    let op = CUstreamBatchMemOpParams { operation, flags: 0, address, value, more_flags: flags, alias: 0, pad: 0 };
    process.enqueue(id, Op::Words(vec![op]))
}

/// The first forms have to be switched on in the kernel's part of the driver, which nobody does.
pub(crate) fn cuStreamWaitValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuStreamWaitValue64(_stream: u64, _addr: u64, _value: u64, _flags: u32) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuStreamWriteValue32(_stream: u64, _addr: u64, _value: u32, _flags: u32) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuStreamWriteValue64(_stream: u64, _addr: u64, _value: u64, _flags: u32) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuStreamBatchMemOp(
    _stream: u64,
    _count: u32,
    _paramArray: *mut CUstreamBatchMemOpParams,
    _flags: u32,
) -> Answer {
    drop(enter()?);
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn cuStreamWaitValue32_v2(stream: u64, addr: u64, value: u32, flags: u32) -> Answer {
    word(stream, 1, addr, value.into(), flags)
}

pub(crate) fn cuStreamWaitValue64_v2(stream: u64, addr: u64, value: u64, flags: u32) -> Answer {
    word(stream, 4, addr, value, flags)
}

pub(crate) fn cuStreamWriteValue32_v2(stream: u64, addr: u64, value: u32, flags: u32) -> Answer {
    word(stream, 2, addr, value.into(), flags)
}

pub(crate) fn cuStreamWriteValue64_v2(stream: u64, addr: u64, value: u64, flags: u32) -> Answer {
    word(stream, 5, addr, value, flags)
}

pub(crate) fn cuStreamBatchMemOp_v2(
    stream: u64,
    count: u32,
    paramArray: *mut CUstreamBatchMemOpParams,
    flags: u32,
) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if flags != 0 || count > 256 {
        return Err(Error::INVALID_VALUE);
    }
    let operations = array(paramArray, count as usize)?;
    process.enqueue(id, Op::Words(operations))
}

const PRIORITY: u32 = 8;

pub(crate) fn cuStreamGetAttribute(hStream: u64, attr: u32, value_out: *mut CUstreamAttrValue_v1) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let mut value = [0; 8];
    match attr {
        PRIORITY => {
            let priority = process.engine.stream(id).map_or(0, |s| s.priority);
            value[0] = u64::from(priority.cast_unsigned());
        }
        1 | 3 | 9 | 10 => {}
        _ => return Err(Error::INVALID_VALUE),
    }
    put(value_out, CUstreamAttrValue_v1 { value })
}

pub(crate) fn cuStreamSetAttribute(hStream: u64, attr: u32, value: *const CUstreamAttrValue_v1) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let wanted = get(value)?;
    match attr {
        PRIORITY => {
            let priority = (wanted.value[0] as u32).cast_signed();
            process.engine.set_priority(id, priority.clamp(HIGHEST, 0));
            Ok(())
        }
        1 | 3 | 9 | 10 => Ok(()),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(crate) fn cuStreamCopyAttributes(dst: u64, src: u64) -> Answer {
    let mut process = enter()?;
    let (to, from) = (process.resolve_stream(dst)?, process.resolve_stream(src)?);
    let priority = process.engine.stream(from).map_or(0, |s| s.priority);
    process.engine.set_priority(to, priority);
    Ok(())
}

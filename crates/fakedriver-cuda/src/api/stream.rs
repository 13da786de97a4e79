//! Streams: their life, order between them, words they wait for and write, functions they call.

use crate::abi::{Answer, CUstreamBatchMemOpParams, Error};
use crate::call::{array, put};
use crate::engine::{StreamId, Until, Work};
use crate::process::{self, Process, enter};

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
    let id = process.resolve_stream(if hStream <= 2 { hStream } else { id })?;
    if process.engine.is_idle(id) { Ok(()) } else { Err(Error::NOT_READY) }
}

pub(crate) fn cuStreamSynchronize(hStream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    synchronize(process, id).map(drop)
}

/// Waits until everything submitted to a stream so far is done.
pub(crate) fn synchronize(process: process::Locked, id: StreamId) -> Result<process::Locked, Error> {
    let context = process.engine.stream(id).ok_or(Error::INVALID_HANDLE)?.context;
    let mark = process.engine.mark(id);
    let (mut process, ()) = process::wait(process, |p| p.engine.is_done(mark).then_some(()));
    process.usable(context)?;
    Ok(process)
}

pub(crate) fn cuStreamWaitEvent(hStream: u64, hEvent: u64, Flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if Flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    let event = process.events.get(hEvent).ok_or(Error::INVALID_HANDLE)?;
    if let Some(mark) = event.mark.filter(|_| !event.is_reached()) {
        process.submit(id, Work::Nothing, vec![mark]);
    }
    Ok(())
}

pub(crate) fn cuLaunchHostFunc(hStream: u64, function: u64, userData: *mut core::ffi::c_void) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if function == 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.submit(id, Work::Call { function, data: userData as u64, callback_of: None }, Vec::new());
    Ok(())
}

pub(crate) fn cuStreamAddCallback(hStream: u64, callback: u64, userData: *mut core::ffi::c_void, flags: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if callback == 0 || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    process.submit(
        id,
        Work::Call { function: callback, data: userData as u64, callback_of: Some(hStream) },
        Vec::new(),
    );
    Ok(())
}

/// What the low bits of a wait's flags mean.
fn until(flags: u32) -> Result<Until, Error> {
    const FLUSH: u32 = 1 << 30;
    Ok(match flags & !FLUSH {
        0 => Until::AtLeast,
        1 => Until::Equal,
        2 => Until::And,
        3 => Until::Nor,
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// The work of waiting for a word, if the address is one the device can see.
fn wait_work(process: &Process, address: u64, wide: bool, value: u64, flags: u32) -> Result<Work, Error> {
    let until = until(flags)?;
    check_word(process, address, wide)?;
    Ok(Work::Wait { address, wide, value, until })
}

fn check_word(process: &Process, address: u64, wide: bool) -> Answer {
    let size = if wide { 8 } else { 4 };
    if !address.is_multiple_of(size) || !process.memory.is_watchable(address, size) {
        Err(Error::INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn write_work(process: &Process, address: u64, wide: bool, value: u64, flags: u32) -> Result<Work, Error> {
    if flags & !1 != 0 {
        return Err(Error::INVALID_VALUE);
    }
    check_word(process, address, wide)?;
    Ok(Work::Instant(Box::new(move |p: &mut Process| p.memory.write_word(address, wide, value))))
}

fn submit_one(stream: u64, make: impl FnOnce(&Process) -> Result<Work, Error>) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    let work = make(&process)?;
    process.submit(id, work, Vec::new());
    Ok(())
}

pub(crate) fn cuStreamWaitValue32_v2(stream: u64, addr: u64, value: u32, flags: u32) -> Answer {
    submit_one(stream, |p| wait_work(p, addr, false, value.into(), flags))
}

pub(crate) fn cuStreamWaitValue64_v2(stream: u64, addr: u64, value: u64, flags: u32) -> Answer {
    submit_one(stream, |p| wait_work(p, addr, true, value, flags))
}

pub(crate) fn cuStreamWriteValue32_v2(stream: u64, addr: u64, value: u32, flags: u32) -> Answer {
    submit_one(stream, |p| write_work(p, addr, false, value.into(), flags))
}

pub(crate) fn cuStreamWriteValue64_v2(stream: u64, addr: u64, value: u64, flags: u32) -> Answer {
    submit_one(stream, |p| write_work(p, addr, true, value, flags))
}

/// The works a batch of memory operations stands for.
pub(crate) fn batch_works(process: &Process, operations: &[CUstreamBatchMemOpParams]) -> Result<Vec<Work>, Error> {
    operations
        .iter()
        .map(|op| match op.operation {
            1 => wait_work(process, op.address, false, op.value & 0xffff_ffff, op.more_flags),
            4 => wait_work(process, op.address, true, op.value, op.more_flags),
            2 => write_work(process, op.address, false, op.value & 0xffff_ffff, op.more_flags),
            5 => write_work(process, op.address, true, op.value, op.more_flags),
            3 | 6 => Ok(Work::Nothing),
            _ => Err(Error::INVALID_VALUE),
        })
        .collect()
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
    for work in batch_works(&process, &operations)? {
        process.submit(id, work, Vec::new());
    }
    Ok(())
}

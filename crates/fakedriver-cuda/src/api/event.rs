//! Events.

use crate::abi::{Answer, Error};
use crate::call::put;
use crate::op::Op;
use crate::process::{self, Process, enter};

const DISABLE_TIMING: u32 = 2;

pub(crate) fn cuEventCreate(phEvent: *mut u64, Flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    const INTERPROCESS: u32 = 4;
    if phEvent.is_null() || Flags & !7 != 0 || (Flags & INTERPROCESS != 0 && Flags & DISABLE_TIMING == 0) {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.events.add(id, context, Flags);
    put(phEvent, id)
}

pub(crate) fn cuEventDestroy_v2(hEvent: u64) -> Answer {
    let mut process = enter()?;
    if process.events.remove(hEvent) { Ok(()) } else { Err(Error::INVALID_HANDLE) }
}

pub(crate) fn cuEventRecord(hEvent: u64, hStream: u64) -> Answer {
    record(hEvent, hStream, 0)
}

pub(crate) fn cuEventRecordWithFlags(hEvent: u64, hStream: u64, flags: u32) -> Answer {
    record(hEvent, hStream, flags)
}

fn record(event: u64, stream: u64, flags: u32) -> Answer {
    let mut process = enter()?;
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    let stream = process.resolve_stream(stream)?;
    let of_stream = process.engine.stream(stream).map_or(0, |s| s.context);
    let of_event = process.events.get(event).ok_or(Error::INVALID_HANDLE)?.context;
    if of_stream != of_event {
        return Err(Error::INVALID_HANDLE);
    }
    process.enqueue(stream, Op::Record(event))
}

/// An event that was recorded in a capture cannot be asked about.
fn not_captured(process: &mut Process, event: u64) -> Result<u64, Error> {
    let known = process.events.get(event).ok_or(Error::INVALID_HANDLE)?;
    let (context, captured) = (known.context, known.captured.is_some());
    if captured {
        let spoiled: Vec<_> = process.graphs.captures.values_mut().collect();
        spoiled.into_iter().for_each(|c| c.invalid = true);
        return Err(Error::CAPTURED_EVENT);
    }
    Ok(context)
}

pub(crate) fn cuEventQuery(hEvent: u64) -> Answer {
    let mut process = enter()?;
    let context = not_captured(&mut process, hEvent).map_err(|e| match e {
        Error::CAPTURED_EVENT => Error::INVALID_VALUE,
        other => other,
    })?;
    process.step(divvy_fakedriver::sys::now());
    process.usable(context)?;
    let reached = process.events.get(hEvent).is_some_and(|e| e.is_reached());
    if reached { Ok(()) } else { Err(Error::NOT_READY) }
}

pub(crate) fn cuEventSynchronize(hEvent: u64) -> Answer {
    let mut process = enter()?;
    let context = not_captured(&mut process, hEvent)?;
    process.usable(context)?;
    let broke = move |p: &Process| p.contexts.get(&context).is_none_or(|c| c.error.is_some());
    let (mut process, ()) =
        process::wait(process, |p| (broke(p) || p.events.get(hEvent).is_none_or(|e| e.is_reached())).then_some(()));
    process.usable(context)
}

pub(crate) fn cuEventElapsedTime_v2(pMilliseconds: *mut f32, hStart: u64, hEnd: u64) -> Answer {
    let mut process = enter()?;
    process.step(divvy_fakedriver::sys::now());
    let mut look = |id: u64| {
        let event = process.events.get(id).ok_or(Error::INVALID_HANDLE)?;
        if event.flags & DISABLE_TIMING != 0 || !event.is_recorded() {
            return Err(Error::INVALID_HANDLE);
        }
        Ok((event.is_reached(), event.at()))
    };
    let (start, end) = (look(hStart)?, look(hEnd)?);
    if !start.0 || !end.0 {
        return Err(Error::NOT_READY);
    }
    let difference = end.1 as i64 - start.1 as i64;
    put(pMilliseconds, difference as f32 / 1e6)
}

/// The same for callers of before 12.8.
pub(crate) fn cuEventElapsedTime(pMilliseconds: *mut f32, hStart: u64, hEnd: u64) -> Answer {
    cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd)
}

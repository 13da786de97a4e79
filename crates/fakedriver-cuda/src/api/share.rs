//! Sharing between processes: memory and events by handle.

use crate::abi::{Answer, CUipcEventHandle_v1, CUipcMemHandle_v1, Error};
use crate::call::put;
use crate::memory::On;
use crate::memory::shared::Ticket;
use crate::process::enter;

pub(crate) fn cuIpcGetMemHandle(pHandle: *mut CUipcMemHandle_v1, dptr: u64) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if pHandle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let (machine, seat, unit) = process.on(context)?;
    let ticket = process.memory.export(&On { machine, seat: &seat, unit, context }, dptr)?;
    put(pHandle, CUipcMemHandle_v1 { bytes: ticket.pack() })
}

pub(crate) fn cuIpcOpenMemHandle_v2(pdptr: *mut u64, handle: CUipcMemHandle_v1, Flags: u32) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if pdptr.is_null() || Flags != 1 {
        return Err(Error::INVALID_VALUE);
    }
    let ticket = Ticket::unpack(&handle.bytes)?;
    // A process cannot open what it exported itself.
    if ticket.pid == std::process::id() && ticket.seat as usize == process.seat.index() {
        return Err(Error::INVALID_CONTEXT);
    }
    let (machine, seat, unit) = process.on(context)?;
    let region = process.memory.import(&On { machine, seat: &seat, unit, context }, &ticket)?;
    put(pdptr, region.base)
}

pub(crate) fn cuIpcCloseMemHandle(dptr: u64) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    let mut process = crate::context::settle(process, context)?;
    process.memory.close_import(dptr)
}

const INTERPROCESS: u32 = 4;

pub(crate) fn cuIpcGetEventHandle(pHandle: *mut CUipcEventHandle_v1, event: u64) -> Answer {
    let mut process = enter()?;
    let known = process.events.get(event).ok_or(Error::INVALID_HANDLE)?;
    if known.flags & INTERPROCESS == 0 || pHandle.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let (context, shared) = (known.context, known.shared().is_some());
    let (machine, seat, unit) = process.on(context)?;
    let seat_number = u32::try_from(seat.index()).unwrap_or(0);
    let ticket = Ticket { seat: seat_number, number: event, offset: 0, size: 8, span: 4096, pid: std::process::id() };
    if !shared {
        let words = process.memory.share_words(&On { machine, seat: &seat, unit, context }, &ticket, true)?;
        if let Some(known) = process.events.get(event) {
            known.share(words);
        }
    }
    put(pHandle, CUipcEventHandle_v1 { bytes: ticket.pack() })
}

pub(crate) fn cuIpcOpenEventHandle(phEvent: *mut u64, handle: CUipcEventHandle_v1) -> Answer {
    let mut process = enter()?;
    let context = process.current()?;
    if phEvent.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let ticket = Ticket::unpack(&handle.bytes)?;
    if ticket.pid == std::process::id() && ticket.seat as usize == process.seat.index() {
        return Err(Error::INVALID_CONTEXT);
    }
    let (machine, seat, unit) = process.on(context)?;
    let words = process.memory.share_words(&On { machine, seat: &seat, unit, context }, &ticket, false)?;
    let id = process.handle();
    // As the exporter made it: for other processes, without timing.
    process.events.add(id, context, INTERPROCESS | 2);
    if let Some(event) = process.events.get(id) {
        event.share(words);
    }
    put(phEvent, id)
}

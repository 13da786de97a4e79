//! Sharing between processes: memory and events by handle.

use crate::abi::{Answer, CUipcMemHandle_v1, Error};
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
    let mut process = crate::context::synchronize(process, context)?;
    process.memory.close_import(dptr)
}

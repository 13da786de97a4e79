//! Contexts, and which one is current in a thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

use divvy_fakedriver::machine::{Setting, Unit};

use crate::abi::{Answer, Error};
use crate::call;
use crate::engine::StreamId;
use crate::handles::Handles;
use crate::memory::On;
use crate::process::{Locked, Process};

/// The handle of a context.
pub(crate) type ContextId = u64;

pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) unit: Unit,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    /// Made by `cuGreenCtxCreate` for so many multiprocessors, over this primary context.
    pub(crate) green: Option<(u32, ContextId)>,
    /// The stream that "stream 0" means.
    pub(crate) legacy: StreamId,
    /// What it broke with; every later call answers it.
    pub(crate) error: Option<Error>,
    /// The default streams of threads that asked for their own.
    per_thread: Handles<StreamId>,
    pub(crate) limits: HashMap<u32, u64>,
    pub(crate) cache_config: u32,
    pub(crate) shared_config: u32,
    /// Contexts whose memory it may use.
    pub(crate) peers: Vec<ContextId>,
    /// Bytes of the card it takes itself.
    charge: u64,
    pub(crate) api_version: u32,
    pub(crate) id: u64,
}

thread_local! {
    static STACK: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

/// The current context of this thread.
pub(crate) fn current() -> Option<ContextId> {
    STACK.with_borrow(|s| s.last().copied()).filter(|&c| c != 0)
}

/// Replaces the current context of this thread; 0 means none.
pub(crate) fn set_current(id: ContextId) {
    STACK.with_borrow_mut(|s| {
        s.pop();
        if id != 0 {
            s.push(id);
        }
    });
}

pub(crate) fn push_current(id: ContextId) {
    STACK.with_borrow_mut(|s| s.push(id));
}

pub(crate) fn pop_current() -> Option<ContextId> {
    STACK.with_borrow_mut(Vec::pop)
}

/// Takes a destroyed context off the top of the stack.
pub(crate) fn forget_current(id: ContextId) {
    STACK.with_borrow_mut(|s| {
        if s.last() == Some(&id) {
            s.pop();
        }
    });
}

fn thread_number() -> u64 {
    // SAFETY: asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) }.cast_unsigned()
}

impl Context {
    fn new(device: usize, unit: Unit, legacy: StreamId, id: ContextId, green: Option<(u32, ContextId)>) -> Self {
        Self {
            device,
            unit,
            flags: 0,
            primary: false,
            green,
            legacy,
            error: None,
            per_thread: Handles::default(),
            limits: HashMap::new(),
            cache_config: 0,
            shared_config: 1,
            peers: Vec::new(),
            charge: 0,
            api_version: 3020,
            id: (id - 0x5600_0000_1000) / 0x10,
        }
    }
}

impl Process {
    /// The current context, unless it broke.
    pub(crate) fn current(&mut self) -> Result<ContextId, Error> {
        let id = current().ok_or(Error::INVALID_CONTEXT)?;
        self.usable(id)?;
        Ok(id)
    }

    /// Checks that a context exists, did not break, and its card is on the bus.
    pub(crate) fn usable(&mut self, id: ContextId) -> Answer {
        let context = self.contexts.get(&id).ok_or(Error::CONTEXT_IS_DESTROYED)?;
        if let Some(error) = context.error {
            return Err(error);
        }
        if self.machine.is_lost(context.unit.card_index()) {
            self.break_context(id, Error::UNKNOWN);
            return Err(Error::UNKNOWN);
        }
        Ok(())
    }

    pub(crate) fn context(&self, id: ContextId) -> Result<&Context, Error> {
        self.contexts.get(&id).ok_or(Error::INVALID_CONTEXT)
    }

    /// Where memory is taken for a context.
    pub(crate) fn on(
        &self,
        id: ContextId,
    ) -> Result<(&'static divvy_fakedriver::machine::Machine, divvy_fakedriver::machine::Seat, Unit), Error> {
        Ok((self.machine, self.seat, self.context(id)?.unit))
    }

    /// Makes a context on a device.
    pub(crate) fn create_context(&mut self, device: usize, flags: u32, primary: bool) -> Result<ContextId, Error> {
        let unit = self.devices.get(device).ok_or(Error::INVALID_DEVICE)?.unit;
        let card = unit.card_index();
        if self.machine.is_lost(card) {
            return Err(Error::UNKNOWN);
        }
        let mode =
            self.machine.setting(card, Setting::ComputeMode).map_or(self.machine.card(unit).compute_mode, |m| m as i32);
        let taken = || self.machine.tenants(unit).iter().any(|t| t.seat != self.seat.index());
        if mode == 2 || (mode == 3 && taken()) {
            return Err(Error::DEVICE_UNAVAILABLE);
        }
        let charge = self.machine.spec.context;
        let (machine, seat) = (self.machine, self.seat);
        On { machine, seat: &seat, unit, context: 0 }.charge(charge)?;
        seat.account(unit).contexts.fetch_add(1, SeqCst);
        self.start_executor();
        let (id, legacy) = (self.handle(), self.handle());
        self.engine.add_stream(legacy, id, unit, true, 0, 0);
        let mut context = Context::new(device, unit, legacy, id, None);
        (context.flags, context.primary, context.charge) = (flags, primary, charge);
        self.contexts.insert(id, context);
        Ok(id)
    }

    /// Makes a green context over the primary one: it takes no memory of its own.
    pub(crate) fn create_green(&mut self, device: usize, sms: u32, primary: ContextId) -> Result<ContextId, Error> {
        let unit = self.devices.get(device).ok_or(Error::INVALID_DEVICE)?.unit;
        let (id, legacy) = (self.handle(), self.handle());
        self.engine.add_stream(legacy, id, unit, true, 0, 0);
        self.contexts.insert(id, Context::new(device, unit, legacy, id, Some((sms, primary))));
        Ok(id)
    }

    /// A context takes more or less of the card for itself than before.
    pub(crate) fn recharge(&mut self, id: ContextId, before: u64, after: u64) -> Answer {
        let (machine, seat, unit) = self.on(id)?;
        let on = On { machine, seat: &seat, unit, context: id };
        if after > before {
            on.charge(after - before)?;
        }
        let context = self.contexts.get_mut(&id).ok_or(Error::INVALID_CONTEXT)?;
        let less = before.saturating_sub(after).min(context.charge);
        context.charge = context.charge + after.saturating_sub(before) - less;
        on.credit(less);
        Ok(())
    }

    /// Takes a context down with everything in it. What it has queued is dropped.
    pub(crate) fn destroy_context(&mut self, id: ContextId) -> Answer {
        let context = self.contexts.remove(&id).ok_or(Error::INVALID_CONTEXT)?;
        let (machine, seat) = (self.machine, self.seat);
        self.engine.drop_context(id);
        self.events.drop_context(id);
        self.kernels.drop_context(id);
        self.release_memory(id);
        On { machine, seat: &seat, unit: context.unit, context: id }.credit(context.charge);
        if context.green.is_none() {
            seat.account(context.unit).contexts.fetch_sub(1, SeqCst);
        }
        self.step(divvy_fakedriver::sys::now());
        Ok(())
    }

    fn release_memory(&mut self, id: ContextId) {
        let (machine, seat) = (self.machine, self.seat);
        for region in self.memory.of_context(id) {
            // Whatever kind it is, one of them is its own.
            let _ = self.memory.free(machine, &seat, region.base);
            let _ = self.memory.unregister_host(region.base);
            let _ = self.memory.free_host(region.base);
        }
    }

    /// A fault on the card: the context answers nothing but this error from now on.
    pub(crate) fn break_context(&mut self, id: ContextId, error: Error) {
        if let Some(context) = self.contexts.get_mut(&id) {
            context.error.get_or_insert(error);
            self.engine.abort(id);
        }
    }

    /// The legacy default stream of the context a stream belongs to.
    pub(crate) fn legacy_stream_of(&self, stream: StreamId) -> StreamId {
        let context = self.engine.stream(stream).map_or(0, |s| s.context);
        self.contexts.get(&context).map_or(0, |c| c.legacy)
    }

    /// The stream a caller's handle means: 0 and 1 the legacy default stream, 2 the thread's own.
    pub(crate) fn resolve_stream(&mut self, handle: u64) -> Result<StreamId, Error> {
        let own = handle == 2 || (handle == 0 && call::per_thread());
        if handle > 2 {
            let context = self.engine.stream(handle).ok_or(Error::INVALID_HANDLE)?.context;
            self.usable(context)?;
            return Ok(handle);
        }
        let id = self.current()?;
        if !own {
            return Ok(self.context(id)?.legacy);
        }
        let thread = thread_number();
        if let Some(&stream) = self.context(id)?.per_thread.get(&thread) {
            return Ok(stream);
        }
        let (stream, unit) = (self.handle(), self.context(id)?.unit);
        self.engine.add_stream(stream, id, unit, true, 0, 0);
        if let Some(context) = self.contexts.get_mut(&id) {
            context.per_thread.insert(thread, stream);
        }
        Ok(stream)
    }
}

/// Waits until everything submitted to a context so far is done, for a program that asks for that.
pub(crate) fn synchronize(mut process: Locked, id: ContextId) -> Result<Locked, Error> {
    process.guard_captures_of(id)?;
    settle(process, id)
}

/// The same for calls that wait without being asked to; captures do not mind.
pub(crate) fn settle(process: Locked, id: ContextId) -> Result<Locked, Error> {
    let marks = process.engine.marks_of(id);
    let (mut process, ()) = crate::process::wait(process, |p| marks.iter().all(|&m| p.engine.is_done(m)).then_some(()));
    process.usable(id)?;
    let (machine, seat, unit) = process.on(id)?;
    process.memory.release_beyond_thresholds(&On { machine, seat: &seat, unit, context: id });
    Ok(process)
}

//! Contexts: what they take before the program has allocated anything, and what goes with them when they go.

use core::ffi::c_void;

use crate::books::{self, Account, Block, Charge, Charged, Kind};
use crate::cuda::real;
use crate::cuda::types::{CUdevice, CUresult, SUCCESS};
use crate::gate::{self, Wait};
use crate::lock::Lock;
use crate::map::Map;
use crate::process::{Member, of_container};

/// The contexts of a process. None when all zero.
pub(crate) struct Contexts {
    /// What was charged for the primary context of each device, and its handle.
    primary: [Lock<Primary>; divvy_shm::MAX_DEVICES],
    /// What was charged for each other one.
    others: Map<Block>,
}

#[derive(Clone, Copy)]
struct Primary {
    handle: u64,
    bytes: u64,
    charged: bool,
}

/// The primary context of a device is wanted; the first to want it makes it.
///
/// # Safety
/// `out` is null or where the driver puts the context.
pub(crate) unsafe fn retain(out: *const *mut c_void, ordinal: CUdevice, go: impl Fn() -> CUresult) -> CUresult {
    let (member, device) = match books::of_device(ordinal) {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    // The lock is never held over a call to the driver: a profiler may come back to us from inside it.
    let place = &member.process.contexts.primary[device];
    let exists = active(ordinal);
    let known = *place.lock();
    if known.charged && exists {
        return go();
    }
    if known.charged {
        forget_primary(member, device); // reset behind our back
    }
    let bytes = member.gate().limits(device).map_or(0, |l| l.context_bytes);
    let charge = match Charge::make(member, device, Kind::Context, bytes) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    if status != SUCCESS {
        charge.cancel();
        return status;
    }
    // SAFETY: the driver has just written it.
    let handle = unsafe { out.as_ref() }.map_or(0, |c| *c as u64);
    let mut primary = place.lock();
    if primary.charged {
        drop(primary);
        charge.cancel(); // another thread was first
        return status;
    }
    *primary = Primary { handle, bytes: charge.keep(), charged: true };
    drop(primary);
    gate::context_created(handle);
    status
}

/// The primary context of a device is released, or reset: it may be gone afterwards.
pub(crate) fn release(ordinal: CUdevice, go: impl Fn() -> CUresult) -> CUresult {
    let Account::Of(member, device, _) = books::of_device(ordinal) else { return go() };
    gate::before_sync(Wait::Context);
    let status = go();
    if !active(ordinal) {
        forget_primary(member, device);
    }
    status
}

/// A context of the program's own.
///
/// # Safety
/// `out` is null or where the driver puts the context.
pub(crate) unsafe fn create(out: *const *mut c_void, ordinal: CUdevice, go: impl Fn() -> CUresult) -> CUresult {
    let (member, device) = match books::of_device(ordinal) {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let bytes = member.gate().limits(device).map_or(0, |l| l.context_bytes);
    let charge = match Charge::make(member, device, Kind::Context, bytes) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    // SAFETY: null, or the driver has just written it.
    match unsafe { out.as_ref() } {
        Some(context) if status == SUCCESS => {
            let place = Charged::Device(device as u8, Kind::Context);
            let block = Block { bytes: charge.keep(), context: *context as u64, place };
            if let Some(stale) = member.process.contexts.others.insert(*context as u64, block) {
                books::settle(member, stale);
            }
            gate::context_created(*context as u64);
        }
        _ => charge.cancel(),
    }
    status
}

/// A context goes, and everything in it.
pub(crate) fn destroy(context: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let Some(member) = of_container() else { return go() };
    gate::before_sync(Wait::Context);
    let known = member.process.contexts.others.remove(context as u64);
    let status = go();
    match known {
        Some(block) if status == SUCCESS => {
            empty(member, context as u64);
            books::settle(member, block);
            gate::context_destroyed(context as u64);
        }
        Some(block) => drop(member.process.contexts.others.insert(context as u64, block)),
        None => {}
    }
    status
}

/// A limit of the current context: stacks and heaps are taken when a kernel first needs them, where no call can be refused any more.
pub(crate) fn set_limit(limit: u32, value: u64, go: impl Fn() -> CUresult) -> CUresult {
    const STACK: u32 = 0;
    const HEAP: u32 = 2;
    let bytes = match limit {
        STACK => value.saturating_mul(resident_threads()),
        HEAP => value,
        _ => return go(),
    };
    super::memory::impossible(bytes).unwrap_or_else(go)
}

/// How many threads the current device runs at once, each with a stack of its own.
fn resident_threads() -> u64 {
    const MULTIPROCESSORS: u32 = 16;
    const THREADS_PER_MULTIPROCESSOR: u32 = 39;
    let (Some(device), Some(ask)) = (real::cuCtxGetDevice(), real::cuDeviceGetAttribute()) else { return 0 };
    let mut ordinal = 0;
    // SAFETY: a place for the number.
    if unsafe { device(&mut ordinal) } != SUCCESS {
        return 0;
    }
    let attribute = |which| {
        let mut value = 0i32;
        // SAFETY: a place for the number.
        match unsafe { ask(&mut value, which, ordinal) } {
            SUCCESS => u64::try_from(value).unwrap_or(0),
            _ => 0,
        }
    };
    attribute(MULTIPROCESSORS).saturating_mul(attribute(THREADS_PER_MULTIPROCESSOR))
}

/// Whether a device's primary context exists.
fn active(ordinal: CUdevice) -> bool {
    let (mut flags, mut active) = (0u32, 0i32);
    // SAFETY: places for both numbers.
    real::cuDevicePrimaryCtxGetState().is_some_and(|ask| unsafe { ask(ordinal, &mut flags, &mut active) } == SUCCESS)
        && active != 0
}

/// The primary context of a device is gone, if there was one.
fn forget_primary(member: Member, device: usize) {
    let gone = {
        let mut primary = member.process.contexts.primary[device].lock();
        core::mem::replace(&mut *primary, Primary { handle: 0, bytes: 0, charged: false })
    };
    if gone.charged {
        gate::context_destroyed(gone.handle);
        empty(member, gone.handle);
        books::credit(member, device, Kind::Context, gone.bytes);
    }
}

/// Everything that was in a context went with it.
fn empty(member: Member, context: u64) {
    if context != 0 {
        member.forget_context(context);
        member.blocks().drain(|_, block| block.context == context, |block| books::settle(member, block));
        member.process.arrays.drain(|_, block| block.context == context, |block| books::settle(member, block));
    }
}

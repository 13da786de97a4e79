//! Linear memory: plain, pitched and managed; and freeing whatever has an address.

use super::{Out, pool};
use crate::books::{self, Account, Block, Charge, Charged, Kind};
use crate::cuda::real;
use crate::cuda::types::{CUresult, OUT_OF_MEMORY, SUCCESS};
use crate::gate::{self, Wait};
use crate::process::of_container;

/// Memory of the current device.
///
/// # Safety
/// `out` is null or where the driver puts the address.
pub(crate) unsafe fn alloc(out: impl Into<Out>, bytes: u64, kind: Kind, go: impl Fn() -> CUresult) -> CUresult {
    let (member, device, context) = match books::current() {
        Account::Of(member, device, context) => (member, device, context),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let charge = match Charge::make(member, device, kind, bytes) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    if status != SUCCESS {
        charge.cancel();
        return status;
    }
    // SAFETY: the driver has just written it.
    charge.hold(unsafe { out.into().get() }, context);
    status
}

/// What the driver makes rows a multiple of, as far as anybody has seen; the charge is put right once the driver has spoken.
const ROW: u64 = 512;

/// Rows of memory, of a length the driver chooses.
///
/// # Safety
/// `out` and `pitch` are null or where the driver puts the address and the length of a row.
pub(crate) unsafe fn alloc_pitch(
    out: impl Into<Out>,
    pitch: impl Into<Out>,
    width: u64,
    height: u64,
    go: impl Fn() -> CUresult,
) -> CUresult {
    let (member, device, context) = match books::current() {
        Account::Of(member, device, context) => (member, device, context),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let guess = width.checked_next_multiple_of(ROW).and_then(|row| row.checked_mul(height)).unwrap_or(u64::MAX);
    let charge = match Charge::make(member, device, Kind::Linear, guess) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    if status != SUCCESS {
        charge.cancel();
        return status;
    }
    // SAFETY: the driver has just written both.
    let (address, row) = unsafe { (out.into().get(), pitch.into().get()) };
    let taken = row.saturating_mul(height);
    if taken == guess || row == 0 {
        charge.hold(address, context);
        return status;
    }
    charge.cancel();
    match Charge::make(member, device, Kind::Linear, taken) {
        Ok(charge) => charge.hold(address, context),
        Err(refused) => {
            if let Some(free) = real::cuMemFree_v2() {
                // SAFETY: the driver has just given it, and nobody else knows it.
                unsafe { free(address) };
            }
            return refused;
        }
    }
    status
}

/// Frees memory at once. An address we do not know is the driver's business alone.
pub(crate) fn free(address: u64, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Context);
    give_back(address, go)
}

/// Frees memory when a stream gets there.
pub(crate) fn free_async(address: u64, go: impl Fn() -> CUresult) -> CUresult {
    give_back(address, go)
}

fn give_back(address: u64, go: impl Fn() -> CUresult) -> CUresult {
    let Some(member) = of_container() else { return go() };
    // Out of the books first: once the driver has freed it, another thread may be given the same address.
    let Some(block) = member.blocks().remove(address) else { return go() };
    let status = go();
    if status != SUCCESS {
        member.blocks().insert(address, block);
        return status;
    }
    match block {
        Block { place: Charged::Device(_, Kind::Pool), context: pool, bytes } => pool::returned(member, pool, bytes),
        block => books::settle(member, block),
    }
    status
}

/// Memory that would be needed beyond what may be: refused before the driver commits to it.
pub(crate) fn impossible(bytes: u64) -> Option<CUresult> {
    let Account::Of(member, device, _) = books::current() else { return None };
    let limit = member.gate().limits(device)?;
    (limit.enforcement.holds() && bytes > limit.memory).then_some(OUT_OF_MEMORY)
}

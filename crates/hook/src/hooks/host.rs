//! Pinned host memory: counted, shown, and not limited; but never our own pages.

use core::ffi::c_void;

use crate::books::{self, Block, Charged};
use crate::cuda::types::{CUresult, INVALID_VALUE, SUCCESS};
use crate::gate::{self, Wait};
use crate::process::of_container;

/// Host memory from the driver.
///
/// # Safety
/// `out` is null or where the driver puts the address.
pub(crate) unsafe fn alloc(out: *const *mut c_void, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    // SAFETY: null, or the driver has just written it.
    let address = unsafe { out.as_ref() }.filter(|_| status == SUCCESS).map_or(0, |p| *p as u64);
    hold(address, bytes);
    status
}

/// The program's own memory, made known to the driver.
pub(crate) fn register(address: *mut c_void, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    if gate::holds(address as u64, bytes) {
        return INVALID_VALUE;
    }
    let status = go();
    if status == SUCCESS {
        hold(address as u64, bytes);
    }
    status
}

fn hold(address: u64, bytes: u64) {
    let Some(member) = of_container() else { return };
    if address == 0 {
        return;
    }
    books::host_charge(member, bytes);
    if let Some(stale) = member.blocks().insert(address, Block { bytes, context: 0, place: Charged::Host }) {
        books::settle(member, stale);
    }
}

/// Host memory goes back, or is no longer known to the driver.
pub(crate) fn free(address: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Context);
    let Some(member) = of_container() else { return go() };
    if !address.is_null() && gate::holds(address as u64, 1) {
        return INVALID_VALUE;
    }
    let Some(block) = member.blocks().remove(address as u64) else { return go() };
    let status = go();
    if status == SUCCESS {
        books::settle(member, block);
    } else {
        member.blocks().insert(address as u64, block);
    }
    status
}

//! Virtual memory management: physical memory by handles, addresses by mappings.
//!
//! Physical memory lives as long as anything refers to it: a handle (made, retained, imported back) or a mapping. It is charged
//! once, when it is made, and credited when the last of them is gone, in whichever order they go.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::books::{self, Account, Block, Charge, Charged, Kind};
use crate::cuda::types::{CUmemAllocationProp_v1, CUresult, LOCATION_DEVICE, SUCCESS};
use crate::gate::{self, Wait};
use crate::lock::Lock;
use crate::map::{Keep, Map};
use crate::process::{Member, of_container};

/// What a process knows of physical memory. Nothing when all zero.
pub(crate) struct Physical {
    /// Several maps change together.
    order: Lock<()>,
    last: AtomicU64,
    pieces: Map<Piece>,
    by_handle: Map<u64>,
    by_address: Map<Mapping>,
}

#[derive(Clone, Copy)]
struct Piece {
    block: Block,
    handles: u32,
    mappings: u32,
}

#[derive(Clone, Copy)]
struct Mapping {
    /// The piece behind it; 0 for memory that is not ours to account for.
    piece: u64,
    bytes: u64,
}

/// Physical memory is made.
///
/// # Safety
/// `out` is null or where the driver puts the handle; `properties` is null or the description.
pub(crate) unsafe fn create(
    out: *const u64,
    bytes: u64,
    properties: *const CUmemAllocationProp_v1,
    go: impl Fn() -> CUresult,
) -> CUresult {
    // SAFETY: by contract.
    let Some(location) = (unsafe { properties.as_ref() }).map(|p| p.location) else { return go() };
    if location.kind != LOCATION_DEVICE {
        let status = go();
        let member = of_container().filter(|_| status == SUCCESS);
        // SAFETY: null, or the driver has just written it.
        if let (Some(member), Some(&handle)) = (member, unsafe { out.as_ref() }) {
            books::host_charge(member, bytes);
            made(member, handle, Block { bytes, context: 0, place: Charged::Host });
        }
        return status;
    }
    // No context is needed for this call, so the device is the one named, not the current one.
    let (member, device) = match books::of_device(location.id) {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let charge = match Charge::make(member, device, Kind::Vmm, bytes) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    // SAFETY: null, or the driver has just written it.
    match unsafe { out.as_ref() } {
        Some(&handle) if status == SUCCESS => {
            let bytes = charge.keep();
            made(member, handle, Block { bytes, context: 0, place: Charged::Device(device as u8, Kind::Vmm) });
        }
        _ => charge.cancel(),
    }
    status
}

fn made(member: Member, handle: u64, block: Block) {
    let physical = &member.process.physical;
    let _order = physical.order.lock();
    let piece = physical.last.fetch_add(1, Ordering::Relaxed) + 1;
    physical.pieces.insert(piece, Piece { block, handles: 1, mappings: 0 });
    if let Some(stale) = physical.by_handle.insert(handle, piece) {
        // The driver gave the handle again, so the old one is gone.
        unrefer(member, stale, |piece| piece.handles = 0);
    }
}

/// Takes references from a piece; it is credited with the last. The caller holds the order.
fn unrefer(member: Member, piece: u64, change: impl FnOnce(&mut Piece)) {
    let gone = member.process.physical.pieces.change(piece, |piece| {
        change(piece);
        let last = piece.handles == 0 && piece.mappings == 0;
        (if last { Keep::No } else { Keep::Yes }, last.then_some(piece.block))
    });
    if let Some(Some(block)) = gone {
        books::settle(member, block);
    }
}

fn refer(member: Member, piece: u64, change: impl FnOnce(&mut Piece)) {
    member.process.physical.pieces.change(piece, |piece| {
        change(piece);
        (Keep::Yes, ())
    });
}

/// A handle is given up.
pub(crate) fn release(handle: u64, go: impl Fn() -> CUresult) -> CUresult {
    let Some(member) = of_container() else { return go() };
    let physical = &member.process.physical;
    // Once the driver has let go of the handle another thread may be given the same: so the name goes first, the memory after.
    let known = {
        let _order = physical.order.lock();
        let piece = physical.by_handle.get(handle);
        let last = piece.and_then(|p| physical.pieces.get(p)).is_some_and(|p| p.handles <= 1);
        if last {
            physical.by_handle.remove(handle);
        }
        piece.map(|piece| (piece, last))
    };
    let status = go();
    let Some((piece, last)) = known else { return status };
    let _order = physical.order.lock();
    if status == SUCCESS {
        unrefer(member, piece, |p| p.handles = p.handles.saturating_sub(1));
    } else if last {
        physical.by_handle.insert(handle, piece);
    }
    status
}

/// A handle comes from somewhere else: another process, or this one. Memory of others is charged to those who made it.
///
/// # Safety
/// `out` is null or where the driver puts the handle.
pub(crate) unsafe fn import(out: *const u64, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    // SAFETY: null, or the driver has just written it.
    if let (Some(member), SUCCESS, Some(&handle)) = (of_container(), status, unsafe { out.as_ref() }) {
        let physical = &member.process.physical;
        let _order = physical.order.lock();
        if let Some(piece) = physical.by_handle.get(handle) {
            refer(member, piece, |p| p.handles += 1);
        }
    }
    status
}

/// The handle behind a mapped address is wanted once more.
///
/// # Safety
/// `out` is null or where the driver puts the handle.
pub(crate) unsafe fn retain(out: *const u64, address: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    // SAFETY: null, or the driver has just written it.
    if let (Some(member), SUCCESS, Some(&handle)) = (of_container(), status, unsafe { out.as_ref() }) {
        let physical = &member.process.physical;
        let _order = physical.order.lock();
        let mapped = || physical.by_address.get(address as u64).map(|m| m.piece).filter(|&p| p != 0);
        if let Some(piece) = physical.by_handle.get(handle).or_else(mapped) {
            physical.by_handle.insert(handle, piece);
            refer(member, piece, |p| p.handles += 1);
        }
    }
    status
}

/// Physical memory gets an address.
pub(crate) fn map(address: u64, bytes: u64, handle: u64, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let (Some(member), SUCCESS) = (of_container(), status) {
        let physical = &member.process.physical;
        let _order = physical.order.lock();
        let piece = physical.by_handle.get(handle).unwrap_or(0);
        refer(member, piece, |p| p.mappings += 1);
        if let Some(stale) = physical.by_address.insert(address, Mapping { piece, bytes }) {
            unrefer(member, stale.piece, |p| p.mappings = p.mappings.saturating_sub(1));
        }
    }
    status
}

/// Addresses lose their memory: one mapping, or several that lie side by side.
pub(crate) fn unmap(address: u64, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Context);
    let status = go();
    if let (Some(member), SUCCESS) = (of_container(), status) {
        let physical = &member.process.physical;
        let _order = physical.order.lock();
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let Some(mapping) = physical.by_address.remove(at) else { break };
            unrefer(member, mapping.piece, |p| p.mappings = p.mappings.saturating_sub(1));
            at = at.saturating_add(mapping.bytes.max(1));
        }
    }
    status
}

//! Memory of a card: the same story as the driver's own calls tell.

use super::devices::Card;
use super::types::{SUCCESS, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};
use crate::hooks::report::{Memory, seen};
use crate::process::of_container;

/// What the container is shown instead of what NVML said.
fn shown(device: nvmlDevice_t, total: u64, free: u64) -> Option<Memory> {
    let member = of_container()?;
    match member.card(device)? {
        Card::Granted(place) => Some(seen(member, place, Memory { total, free })),
        Card::Parent | Card::Foreign => None,
    }
}

/// Memory, first form.
///
/// # Safety
/// `memory` is null or where NVML puts the numbers.
pub(crate) unsafe fn info(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    if let (SUCCESS, Some(memory)) = (status, unsafe { memory.as_mut() })
        && let Some(seen) = shown(device, memory.total, memory.free)
    {
        *memory = nvmlMemory_t { total: seen.total, free: seen.free, used: seen.used() };
    }
    status
}

/// Memory, second form: what the driver keeps for itself is part of the card, not of the container.
///
/// # Safety
/// `memory` is null or where NVML puts the numbers.
pub(crate) unsafe fn info_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    if let (SUCCESS, Some(memory)) = (status, unsafe { memory.as_mut() }) {
        let before = Memory { total: memory.total, free: memory.free };
        match shown(device, before.total, before.free) {
            Some(seen) if seen != before => {
                memory.total = seen.total;
                memory.reserved = 0;
                memory.free = seen.free;
                memory.used = seen.used();
            }
            _ => {}
        }
    }
    status
}

//! What a program is told about memory: the container's, in every place that says something about it.

use super::{Out, pool};
use crate::books::{self, Account};
use crate::cuda::real;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::liveness;
use crate::process::Member;

/// Memory of a device as a container sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

impl Memory {
    /// What is not free.
    pub(crate) fn used(self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// The one story: the limit is the total, and free is what is left of it or of the card, whichever is less.
fn story(limit: u64, used: u64, card: Memory) -> Memory {
    let total = limit.min(card.total);
    Memory { total, free: total.saturating_sub(used).min(card.free) }
}

/// What the container is shown of a card.
pub(crate) fn seen(member: Member, device: usize, card: Memory) -> Memory {
    match member.gate.limits(device) {
        Some(limits) if limits.enforcement.holds() && !limits.whole_card => {
            story(limits.memory, member.ledger.used(device), card)
        }
        _ => card,
    }
}

/// Free and total memory of the current device.
///
/// # Safety
/// Both are null or where the driver puts the numbers.
pub(crate) unsafe fn info(free: impl Into<Out>, total: impl Into<Out>, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    let Account::Of(member, device, _) = books::current() else { return status };
    if status != SUCCESS {
        return status;
    }
    // The caller may have asked for one of the two only, or in 32 bits.
    let (mut card_free, mut card_total) = (0usize, 0usize);
    match real::cuMemGetInfo_v2() {
        // SAFETY: places for both numbers.
        Some(ask) if unsafe { ask(&mut card_free, &mut card_total) } == SUCCESS => {}
        _ => return status,
    }
    pool::look_again(member);
    liveness::reap_the_dead(member.ledger, liveness::ASKED_NS);
    let seen = seen(member, device, Memory { total: card_total as u64, free: card_free as u64 });
    // SAFETY: by contract.
    unsafe {
        free.into().set(seen.free);
        total.into().set(seen.total);
    }
    status
}

/// Total memory of a device.
///
/// # Safety
/// `bytes` is null or where the driver puts the number.
pub(crate) unsafe fn total(bytes: impl Into<Out>, ordinal: i32, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    let Account::Of(member, device, _) = books::of_device(ordinal) else { return status };
    if status == SUCCESS {
        let mut card = 0usize;
        // SAFETY: a place for the number.
        if real::cuDeviceTotalMem_v2().is_some_and(|ask| unsafe { ask(&mut card, ordinal) } == SUCCESS) {
            let card = Memory { total: card as u64, free: card as u64 };
            // SAFETY: by contract.
            unsafe { bytes.into().set(seen(member, device, card).total) };
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_limit_and_free_what_is_left_of_it_or_of_the_card() {
        let card = Memory { total: 140, free: 100 };
        assert_eq!(story(10, 4, card), Memory { total: 10, free: 6 });
        assert_eq!(story(10, 12, card), Memory { total: 10, free: 0 });
        assert_eq!(story(120, 4, card), Memory { total: 120, free: 100 });
        assert_eq!(story(200, 0, card), card);
        assert_eq!(story(120, 4, card).used(), 20);
    }
}

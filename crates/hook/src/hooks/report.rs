//! What a program is told about memory: the container's, in every place that says something about it.

use core::sync::atomic::{AtomicU64, Ordering};

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
    match member.gate().limits(device) {
        Some(limits) if limits.enforcement.holds() && !limits.whole_card => {
            story(limits.memory, member.ledger().used(device), card)
        }
        _ => card,
    }
}

/// What the driver last said about a card. Nothing when all zero.
pub(crate) struct LastSeen {
    at_ns: AtomicU64,
    total: AtomicU64,
    free: AtomicU64,
}

/// For so long it is good enough, unless this process has allocated or freed since.
const GOOD_FOR_NS: u64 = 10_000_000;

impl LastSeen {
    fn get(&self) -> Option<Memory> {
        let at = self.at_ns.load(Ordering::Acquire);
        let card = Memory { total: self.total.load(Ordering::Relaxed), free: self.free.load(Ordering::Relaxed) };
        (at != 0 && coarse_ns().saturating_sub(at) < GOOD_FOR_NS).then_some(card)
    }

    fn set(&self, card: Memory) {
        self.total.store(card.total, Ordering::Relaxed);
        self.free.store(card.free, Ordering::Relaxed);
        self.at_ns.store(coarse_ns(), Ordering::Release);
    }

    /// This process changed something.
    #[inline]
    pub(crate) fn forget(&self) {
        self.at_ns.store(0, Ordering::Relaxed);
    }
}

/// A clock that is read in a few nanoseconds and steps in milliseconds.
fn coarse_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Free and total memory of the current device.
///
/// # Safety
/// Both are null or where the driver puts the numbers.
pub(crate) unsafe fn info(free: impl Into<Out>, total: impl Into<Out>, go: impl Fn() -> CUresult) -> CUresult {
    let (free, total) = (free.into(), total.into());
    let Account::Of(member, device, _) = books::current() else { return go() };
    let last = &member.process.books.last_seen[device];
    let both = free.is_wide() && total.is_wide();
    let card = match last.get().filter(|_| both) {
        Some(card) => card,
        None => {
            let status = go();
            if status != SUCCESS {
                return status;
            }
            let card = if both {
                // SAFETY: the driver has just written both.
                unsafe { Memory { total: total.get(), free: free.get() } }
            } else {
                // The caller asked for one of the two only, or in 32 bits.
                match ask() {
                    Some(card) => card,
                    None => return status,
                }
            };
            last.set(card);
            card
        }
    };
    pool::look_again(member);
    liveness::reap_the_dead(member.ledger(), liveness::ASKED_NS);
    let seen = seen(member, device, card);
    // SAFETY: by contract.
    unsafe {
        free.set(seen.free);
        total.set(seen.total);
    }
    SUCCESS
}

fn ask() -> Option<Memory> {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: places for both numbers.
    (unsafe { real::cuMemGetInfo_v2()?(&mut free, &mut total) } == SUCCESS)
        .then_some(Memory { total: total as u64, free: free as u64 })
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

//! Slots: one per living process that uses the machine, and the memory it holds.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::layout::{Account, FIRST_SLOT_BYTE, SlotCell, UNITS_PER_CARD};
use super::{Machine, Unit};
use crate::sys;

/// This process's place in the machine. Given back by the kernel when the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    pub(super) index: usize,
    slot: &'static SlotCell,
}

/// A process that uses a unit, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Which seat it has.
    pub seat: usize,
    /// Its pid, as far out as this process can know it: the host's, if we or anybody on the host looked.
    pub pid: u32,
    /// Bytes it holds.
    pub used: u64,
    /// The most bytes it held.
    pub peak: u64,
    /// Nanoseconds it was busy.
    pub busy: u64,
    /// Contexts it has.
    pub contexts: i64,
    /// Since when it is here, wall clock.
    pub since: u64,
    /// Its program.
    pub name: String,
}

/// Sixteen random bytes the kernel gives each program image; half of them are enough to know ourselves by.
fn token() -> u64 {
    // SAFETY: AT_RANDOM, where present, points at sixteen bytes that live as long as the process.
    unsafe {
        let at = libc::getauxval(libc::AT_RANDOM) as *const u64;
        if at.is_null() { 1 } else { at.read_unaligned() | 1 }
    }
}

impl Machine {
    /// Takes a seat for this process; `None` when all are taken by the living.
    pub fn sit(&self) -> Option<Seat> {
        let pid = std::process::id();
        for (index, slot) in self.layout.slots.iter().enumerate() {
            if self.is_mine(slot) || !sys::try_lock(self.file, FIRST_SLOT_BYTE + index as u64) {
                continue;
            }
            self.layout.slots_used.fetch_max(u32::try_from(index + 1).unwrap_or(0), SeqCst);
            slot.wipe(self.spec.cards.len() * UNITS_PER_CARD);
            for unit in &self.layout.units {
                unit.waiting[index / 64].fetch_and(!(1 << (index % 64)), SeqCst);
            }
            slot.pid.store(pid, SeqCst);
            slot.token.store(token(), SeqCst);
            slot.namespace.store(sys::pid_namespace(), SeqCst);
            slot.since.store(sys::wall_clock(), SeqCst);
            let name = std::env::current_exe().map_or_else(|_| String::from("?"), |p| p.to_string_lossy().into_owned());
            slot.name.write(&name);
            slot.taken.store(1, SeqCst);
            return Some(Seat { index, slot });
        }
        None
    }

    /// Whether another library in this very process has the slot: record locks do not tell us that.
    fn is_mine(&self, slot: &SlotCell) -> bool {
        slot.taken.load(SeqCst) == 1
            && slot.token.load(SeqCst) == token()
            && slot.pid.load(SeqCst) == std::process::id()
    }

    /// The living owner's pid, as well as we can know it.
    fn owner(&self, index: usize) -> Option<u32> {
        let slot = &self.layout.slots[index];
        if slot.taken.load(SeqCst) == 0 {
            return None;
        }
        let (own, known) = (slot.pid.load(SeqCst), slot.host_pid.load(SeqCst));
        let best = if known == 0 { own } else { known };
        if self.is_mine(slot) {
            return Some(best);
        }
        let seen = sys::lock_holder(self.file, FIRST_SLOT_BYTE + index as u64)?;
        if seen == 0 {
            return Some(best);
        }
        if slot.namespace.load(SeqCst) != sys::pid_namespace() {
            slot.host_pid.store(seen, SeqCst);
        }
        Some(seen)
    }

    /// The seats that were ever taken.
    pub(super) fn seats(&self) -> std::ops::Range<usize> {
        0..(self.layout.slots_used.load(SeqCst) as usize).min(self.layout.slots.len())
    }

    pub(super) fn is_alive(&self, index: usize) -> bool {
        self.owner(index).is_some()
    }

    pub(super) fn is_stopped(&self, index: usize) -> bool {
        self.owner(index).is_some_and(sys::is_stopped)
    }

    /// The processes that have a context on the unit.
    #[must_use]
    pub fn tenants(&self, unit: Unit) -> Vec<Tenant> {
        let on_it = |a: &Account| a.contexts.load(SeqCst) > 0;
        self.seats()
            .filter(|&i| on_it(&self.layout.slots[i].accounts[unit.0]))
            .filter_map(|i| self.tenant(unit, i))
            .collect()
    }

    /// One process by its seat, with a context or without, if it lives.
    #[must_use]
    pub fn tenant(&self, unit: Unit, seat: usize) -> Option<Tenant> {
        let (pid, slot) = (self.owner(seat)?, &self.layout.slots[seat]);
        let account = &slot.accounts[unit.0];
        Some(Tenant {
            seat,
            pid,
            used: account.used.load(SeqCst),
            peak: account.peak.load(SeqCst),
            busy: account.busy.load(SeqCst),
            contexts: account.contexts.load(SeqCst),
            since: slot.since.load(SeqCst),
            name: slot.name.read(),
        })
    }

    /// The account of a seat on a unit.
    #[must_use]
    pub fn account(&self, unit: Unit, seat: usize) -> &'static Account {
        &self.layout.slots[seat].accounts[unit.0]
    }

    /// Bytes of the unit that living processes hold, together.
    #[must_use]
    pub fn used(&self, unit: Unit) -> u64 {
        self.sum(unit, |a| a.used.load(SeqCst))
    }

    fn sum(&self, unit: Unit, of: impl Fn(&Account) -> u64) -> u64 {
        let held =
            self.seats().map(|i| (i, of(&self.layout.slots[i].accounts[unit.0]))).filter(|&(_, bytes)| bytes > 0);
        held.filter(|&(i, _)| self.is_alive(i)).map(|(_, bytes)| bytes).sum()
    }

    /// Takes bytes of a unit for the process, or says that there are not so many left.
    ///
    /// No lock: the wish is published first and then compared with what everybody holds and wishes. Two wishes that fit one
    /// by one but not together may both see too little; so a refused one steps back and tries again before it gives up.
    pub fn take(&self, seat: &Seat, unit: Unit, bytes: u64) -> bool {
        let account = seat.account(unit);
        for attempt in 0..4u64 {
            account.pending.store(bytes, SeqCst);
            let total = self.sum(unit, |a| a.used.load(SeqCst).saturating_add(a.pending.load(SeqCst)));
            let fits = total <= self.usable(unit);
            if fits {
                let held = account.used.load(SeqCst) + bytes;
                account.used.store(held, SeqCst);
                account.peak.fetch_max(held, SeqCst);
            }
            account.pending.store(0, SeqCst);
            if fits {
                return true;
            }
            if self.used(unit).saturating_add(bytes) > self.usable(unit) {
                return false;
            }
            let rest = 20 * (1 + (seat.index as u64 + attempt * 7) % 13);
            std::thread::sleep(std::time::Duration::from_micros(rest));
        }
        false
    }

    /// Gives bytes back.
    pub fn give(&self, seat: &Seat, unit: Unit, bytes: u64) {
        let account = seat.account(unit);
        account.used.store(account.used.load(SeqCst).saturating_sub(bytes), SeqCst);
    }
}

impl Seat {
    /// Which seat it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// What this process has on a unit.
    #[must_use]
    pub fn account(&self, unit: Unit) -> &'static Account {
        &self.slot.accounts[unit.0]
    }

    /// The word this process's threads sleep on.
    #[must_use]
    pub fn bell(&self) -> &'static AtomicU32 {
        &self.slot.bell
    }

    /// Wakes this process's threads.
    pub fn ring(&self) {
        self.slot.ring();
    }
}

impl SlotCell {
    pub(super) fn ring(&self) {
        self.bell.fetch_add(1, SeqCst);
        sys::futex_wake(&self.bell);
    }

    /// Forgets the former owner. Only what it touched, so that the file stays sparse.
    fn wipe(&self, units: usize) {
        self.taken.store(0, SeqCst);
        self.host_pid.store(0, SeqCst);
        for account in &self.accounts[..units] {
            let counters: [&AtomicU64; 7] = [
                &account.used,
                &account.pending,
                &account.peak,
                &account.busy,
                &account.kernels,
                &account.waits_since,
                &account.lost_turn_at,
            ];
            counters.into_iter().filter(|c| c.load(Relaxed) != 0).for_each(|c| c.store(0, SeqCst));
            if account.contexts.load(Relaxed) != 0 {
                account.contexts.store(0, SeqCst);
            }
            for bucket in account.buckets.iter().filter(|b| b.number.load(Relaxed) != 0) {
                bucket.number.store(0, SeqCst);
                bucket.busy.store(0, SeqCst);
            }
        }
    }
}

//! Device memory: reserve first, then allocate, so that two processes cannot pass the same limit together.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{Counters, Ledger, ProcessId, add, take};

/// What device memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Kind {
    /// Plain allocations.
    Linear = 0,
    /// Managed memory.
    Managed = 1,
    /// Handles of the virtual memory management calls.
    Vmm = 2,
    /// What pools reserve.
    Pool = 3,
    /// Arrays.
    Array = 4,
    /// What graphs reserve.
    Graph = 5,
    /// Contexts, as the library estimates them.
    Context = 6,
    /// What the agent saw on the card beyond all that. The agent's alone.
    Overhead = 7,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All of them.
    pub const ALL: [Kind; Kind::COUNT] =
        [Kind::Linear, Kind::Managed, Kind::Vmm, Kind::Pool, Kind::Array, Kind::Graph, Kind::Context, Kind::Overhead];
}

/// A reservation that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// What is in use, by all processes of the container.
    pub used: u64,
}

impl Ledger {
    /// Books `bytes` for the container if that stays within `limit`. To be followed by [`Ledger::hold`], or by
    /// [`Ledger::unreserve`] when the driver refuses.
    pub fn reserve(&self, device: usize, bytes: u64, limit: u64) -> Result<(), OverLimit> {
        let Some(totals) = self.totals.0.get(device) else { return Err(OverLimit { used: u64::MAX }) };
        let mut used = totals.used.load(Acquire);
        loop {
            let Some(sum) = used.checked_add(bytes).filter(|&sum| sum <= limit) else {
                totals.refused.fetch_add(1, Relaxed);
                return Err(OverLimit { used });
            };
            match totals.used.compare_exchange_weak(used, sum, AcqRel, Acquire) {
                Ok(_) => {
                    totals.peak.fetch_max(sum, Relaxed);
                    return Ok(());
                }
                Err(now) => used = now,
            }
        }
    }

    /// Books `bytes` whether they fit or not: memory that is already taken.
    pub fn reserve_unchecked(&self, device: usize, bytes: u64) {
        if let Some(totals) = self.totals.0.get(device) {
            add(&totals.used, bytes);
            totals.peak.fetch_max(totals.used.load(Relaxed), Relaxed);
        }
    }

    /// Takes a reservation back.
    pub fn unreserve(&self, device: usize, bytes: u64) {
        if let Some(totals) = self.totals.0.get(device) {
            take(&totals.used, bytes);
        }
    }

    /// A reservation became memory of this process.
    pub fn hold(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            add(&counters.held[kind as usize], bytes);
        }
    }

    /// The process gave memory back.
    pub fn release(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            take(&counters.held[kind as usize], bytes);
        }
        self.unreserve(device, bytes);
    }

    /// What all processes of the container use on a device.
    pub fn used(&self, device: usize) -> u64 {
        self.totals.0.get(device).map_or(0, |t| t.used.load(Acquire))
    }

    /// The most they ever used at once.
    pub fn peak(&self, device: usize) -> u64 {
        self.totals.0.get(device).map_or(0, |t| t.peak.load(Relaxed))
    }

    /// Reservations refused, by all processes.
    pub fn refused(&self, device: usize) -> u64 {
        self.totals.0.get(device).map_or(0, |t| t.refused.load(Relaxed))
    }

    /// What one process holds of one kind.
    pub fn held(&self, id: ProcessId, device: usize, kind: Kind) -> u64 {
        self.counters(device, id.slot()).map_or(0, |c| c.held[kind as usize].load(Relaxed))
    }

    /// What one process holds in all on a device.
    pub fn held_in_all(&self, id: ProcessId, device: usize) -> u64 {
        self.counters(device, id.slot()).map_or(0, sum)
    }

    /// The agent says what a process has on the card beyond what it booked; the container's total moves with it.
    pub fn set_overhead(&self, id: ProcessId, device: usize, bytes: u64) {
        let Some(counters) = self.counters(device, id.slot()) else { return };
        let before = counters.held[Kind::Overhead as usize].swap(bytes, AcqRel);
        if bytes >= before {
            self.reserve_unchecked(device, bytes - before);
        } else {
            self.unreserve(device, before - bytes);
        }
    }

    /// How far the container's total is from the sum over its processes: what a process that was killed between reserving and
    /// holding left behind, or what is being allocated this moment.
    pub fn drift(&self, device: usize) -> i64 {
        let held = (0..self.processes_high())
            .filter_map(|i| self.counters(device, i))
            .fold(0u64, |total, counters| total.saturating_add(sum(counters)));
        i64::try_from(i128::from(self.used(device)) - i128::from(held)).unwrap_or(i64::MAX)
    }

    /// Puts the total right by `drift`, if it is still `used`: the agent does so after it saw the same pair twice, a while apart.
    pub fn settle(&self, device: usize, used: u64, drift: i64) -> bool {
        let Some(totals) = self.totals.0.get(device) else { return false };
        let right = u64::try_from((i128::from(used) - i128::from(drift)).max(0)).unwrap_or(u64::MAX);
        totals.used.compare_exchange(used, right, AcqRel, Relaxed).is_ok()
    }

    /// Host memory pinned through the driver, per process: shown, not limited.
    pub fn set_host_bytes(&self, id: ProcessId, device: usize, bytes: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            counters.host.store(bytes, Relaxed);
        }
    }

    /// Host memory pinned by a process.
    pub fn host_bytes(&self, id: ProcessId, device: usize) -> u64 {
        self.counters(device, id.slot()).map_or(0, |c| c.host.load(Relaxed))
    }

    /// Everything a dead process held is free again.
    pub(super) fn release_all(&self, device: usize, slot: usize) {
        let Some(counters) = self.counters(device, slot) else { return };
        for held in &counters.held {
            self.unreserve(device, held.swap(0, AcqRel));
        }
        self.clear_counters(device, slot);
    }

    /// A new owner begins at zero.
    pub(super) fn clear_counters(&self, device: usize, slot: usize) {
        let Some(counters) = self.counters(device, slot) else { return };
        let rest = [&counters.host, &counters.launches, &counters.chunks, &counters.refused, &counters.throttled_ns];
        for counter in counters.held.iter().chain(rest) {
            // Looking first: a page that nobody touched stays a hole in the file.
            if counter.load(Relaxed) != 0 {
                counter.store(0, Relaxed);
            }
        }
    }

    pub(super) fn counters(&self, device: usize, slot: usize) -> Option<&Counters> {
        self.area(device)?.counters.get(slot)
    }
}

fn sum(counters: &Counters) -> u64 {
    counters.held.iter().fold(0, |total, held| total.saturating_add(held.load(Relaxed)))
}

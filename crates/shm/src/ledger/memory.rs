//! Device memory: a process books what it is about to allocate and then looks at the sum over all processes, so that two of them
//! cannot pass a limit together.
//!
//! There is no total anywhere, only one cell per process, and the total is their sum: a process that is killed at any instant
//! leaves exactly its own cell behind, which goes with its slot. Nothing can drift, and nothing has to be put right.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use super::{Charges, Counters, Ledger, ProcessId, add, take};

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

/// A charge that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// What is in use, by all processes of the container.
    pub used: u64,
}

/// How often a charge that failed only because of others' unfinished charges is tried again: some times at once, for they take
/// nanoseconds, and then some times after letting others run, for whoever makes one may have been stopped half-way.
const AT_ONCE: u32 = 64;
const PATIENCE: u32 = 256;

impl Ledger {
    /// Books `bytes` for a process if the container stays within `limit`; to be taken back by [`Ledger::credit`] if the driver
    /// refuses them.
    pub fn charge(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64, limit: u64) -> Result<(), OverLimit> {
        let (Some(charges), Some(totals)) = (self.charges.get(device), self.totals.0.get(device)) else {
            return Err(OverLimit { used: u64::MAX });
        };
        let (Some(asked), Some(own)) = (charges.asked.get(id.slot()), charges.held.get(id.slot())) else {
            return Err(OverLimit { used: u64::MAX });
        };
        // Far from the limit a small charge needs no care: it is booked at once, and taken back in the unlikely case that the sum
        // says no after all.
        if bytes <= limit / 64 {
            let comfortable = limit - limit / 8;
            if self.sums(charges).0.saturating_add(bytes) <= comfortable {
                own.fetch_add(bytes, SeqCst);
                let sum = self.sums(charges).0;
                if sum <= limit {
                    self.booked(id, device, kind, bytes, sum);
                    return Ok(());
                }
                take(own, bytes);
            }
        }
        for attempt in 0..PATIENCE {
            // Other threads of this process may be asking too.
            asked.fetch_add(bytes, SeqCst);
            let (held, asking) = self.sums(charges);
            let sum = held.saturating_add(asking);
            if sum <= limit {
                own.fetch_add(bytes, SeqCst);
                take(asked, bytes);
                self.booked(id, device, kind, bytes, sum);
                return Ok(());
            }
            take(asked, bytes);
            if held.saturating_add(bytes) > limit {
                totals.refused.fetch_add(1, Relaxed);
                return Err(OverLimit { used: held });
            }
            // It would fit but for charges that are being decided this moment. Lower slots come back sooner, so that of several
            // that stand in each other's way one gets through.
            if attempt < AT_ONCE {
                (0..attempt * (id.slot() as u32 % 8 + 1)).for_each(|_| spin_loop());
            } else {
                // SAFETY: takes no arguments.
                unsafe { libc::sched_yield() };
            }
        }
        totals.refused.fetch_add(1, Relaxed);
        Err(OverLimit { used: self.used(device) })
    }

    /// Books `bytes` whether they fit or not: memory that is already taken.
    pub fn charge_unchecked(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64) {
        let Some(own) = self.charges.get(device).and_then(|c| c.held.get(id.slot())) else { return };
        add(own, bytes);
        self.booked(id, device, kind, bytes, self.used(device));
    }

    /// The process gave memory back, or the driver refused it.
    pub fn credit(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            take(&counters.held[kind as usize], bytes);
        }
        if let Some(own) = self.charges.get(device).and_then(|c| c.held.get(id.slot())) {
            take(own, bytes);
        }
    }

    /// What all processes of the container use on a device.
    pub fn used(&self, device: usize) -> u64 {
        self.charges.get(device).map_or(0, |charges| self.sums(charges).0)
    }

    /// The most they ever used at once.
    pub fn peak(&self, device: usize) -> u64 {
        self.totals.0.get(device).map_or(0, |t| t.peak.load(Relaxed))
    }

    /// Charges refused, to all processes.
    pub fn refused(&self, device: usize) -> u64 {
        self.totals.0.get(device).map_or(0, |t| t.refused.load(Relaxed))
    }

    /// What one process holds of one kind.
    pub fn held(&self, id: ProcessId, device: usize, kind: Kind) -> u64 {
        self.counters(device, id.slot()).map_or(0, |c| c.held[kind as usize].load(Relaxed))
    }

    /// What one process holds in all on a device.
    pub fn held_in_all(&self, id: ProcessId, device: usize) -> u64 {
        self.charges.get(device).and_then(|c| c.held.get(id.slot())).map_or(0, |held| held.load(Relaxed))
    }

    /// The agent says what a process has on the card beyond what it booked; the container's total moves with it.
    pub fn set_overhead(&self, id: ProcessId, device: usize, bytes: u64) {
        let Some(counters) = self.counters(device, id.slot()) else { return };
        let Some(own) = self.charges.get(device).and_then(|c| c.held.get(id.slot())) else { return };
        let before = counters.held[Kind::Overhead as usize].swap(bytes, AcqRel);
        if bytes >= before {
            add(own, bytes - before);
        } else {
            take(own, before - bytes);
        }
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

    /// Everything a dead process held is free again, and a new owner begins at zero.
    pub(super) fn clear_counters(&self, device: usize, slot: usize) {
        let (Some(counters), Some(charges)) = (self.counters(device, slot), self.charges.get(device)) else { return };
        let rest = [&counters.host, &counters.launches, &counters.chunks, &counters.refused, &counters.throttled_ns];
        let cells = [&charges.held[slot], &charges.asked[slot]];
        for counter in counters.held.iter().chain(rest).chain(cells) {
            // Looking first: a page that nobody touched stays a hole in the file.
            if counter.load(Relaxed) != 0 {
                counter.store(0, SeqCst);
            }
        }
    }

    pub(super) fn counters(&self, device: usize, slot: usize) -> Option<&Counters> {
        self.area(device)?.counters.get(slot)
    }

    /// What is held and what is being asked for, by all processes.
    #[inline]
    fn sums(&self, charges: &Charges) -> (u64, u64) {
        let high = self.processes_high();
        let sum = |cells: &[core::sync::atomic::AtomicU64]| {
            cells[..high].iter().fold(0u64, |sum, cell| sum.saturating_add(cell.load(SeqCst)))
        };
        // Asked before held: a charge moves from the one to the other by being added there first, so it is seen at least once.
        let asked = sum(&charges.asked);
        (sum(&charges.held), asked)
    }

    /// For people to look at: what a process holds by kind, and the most there ever was.
    fn booked(&self, id: ProcessId, device: usize, kind: Kind, bytes: u64, sum: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            add(&counters.held[kind as usize], bytes);
        }
        if let Some(totals) = self.totals.0.get(device).filter(|t| sum > t.peak.load(Relaxed)) {
            totals.peak.fetch_max(sum, Relaxed);
        }
    }
}

//! Stream slots: how much work a stream was given and how much of it the GPU has finished, in units (a kernel launch is one).
//!
//! A chunk is some launches between a wait on the gate and a write to the completion word. What the write stores is the number of
//! units submitted so far, so that three words tell everything: `submitted`, `ended` (what `submitted` was when the last chunk was
//! closed) and the completion word. Numbers go on when a slot changes hands, and a slot is given out again only when the GPU is
//! through with it, so a late write of the last owner cannot be mistaken.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{Ledger, ProcessId, StreamSlot};
use crate::MAX_STREAMS;

/// A stream slot on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    device: u8,
    slot: u16,
}

impl StreamId {
    /// The device's place in the container.
    pub fn device(self) -> usize {
        usize::from(self.device)
    }

    /// The place, below [`MAX_STREAMS`].
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// The completion word's offset in [`Ledger::completions_area`].
    pub fn completion_offset(self) -> usize {
        self.slot() * size_of::<AtomicU32>()
    }
}

/// The words of one stream, for the library's launch path.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'a> {
    slot: &'a StreamSlot,
    completed: &'a AtomicU32,
}

impl core::fmt::Debug for StreamSlot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StreamSlot")
            .field("submitted", &self.submitted)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Marks<'_> {
    /// Work goes into the stream: counted before the launch, so that the books are never behind the GPU. What was submitted before.
    #[inline]
    pub fn submit(&self, units: u32) -> u32 {
        self.slot.submitted.fetch_add(units, Release)
    }

    /// Everything submitted so far.
    #[inline]
    pub fn submitted(&self) -> u32 {
        self.slot.submitted.load(Acquire)
    }

    /// What was submitted when the last chunk was closed.
    #[inline]
    pub fn ended(&self) -> u32 {
        self.slot.ended.load(Acquire)
    }

    /// A chunk is closed after `submitted` units, which the stream is going to write to the completion word.
    #[inline]
    pub fn end(&self, submitted: u32) {
        self.slot.ended.store(submitted, Release);
    }

    /// The CPU says how far the stream is, where the GPU cannot.
    pub fn complete(&self, submitted: u32) {
        self.completed.store(submitted, Release);
    }

    /// Units that are in closed chunks and not finished.
    pub fn queued(&self) -> u32 {
        let (completed, ended) = (self.completed.load(Acquire), self.slot.ended.load(Acquire));
        behind(ended, completed)
    }

    /// What the GPU wrote last.
    pub fn completed(&self) -> u32 {
        self.completed.load(Acquire)
    }

    /// Everything given to this stream is over, and the GPU will write no more: its context is gone.
    pub fn write_off(&self) {
        let submitted = self.slot.submitted.load(Acquire);
        self.slot.ended.store(submitted, Release);
        self.completed.store(submitted, Release);
    }
}

/// In a slot's owner: the stream is destroyed, and the slot may be taken once the GPU is through with it.
const RETIRED: u32 = 1 << 31;

/// How far `completed` is behind `ended`; a completion that is ahead (mischief, or a torn page) counts as none behind.
fn behind(ended: u32, completed: u32) -> u32 {
    let distance = ended.wrapping_sub(completed);
    if distance > u32::MAX / 2 { 0 } else { distance }
}

/// What a container has queued on a device, in units, summed over its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// In closed chunks and not finished.
    pub queued: u32,
    /// In chunks that are still being filled.
    pub filling: u32,
    /// Streams with something queued or being filled: each has at most one chunk in flight.
    pub streams: u32,
    /// Finished since the beginning; wraps round.
    pub completed: u32,
    /// Submitted since the beginning; wraps round.
    pub submitted: u32,
}

impl Ledger {
    /// Takes a stream slot for a process. `None` when all are taken: such a stream shares the gate, and is not metered on its own.
    pub fn claim_stream(&self, owner: ProcessId, device: usize) -> Option<StreamId> {
        let (area, totals) = (self.area(device)?, self.totals.0.get(device)?);
        let mark = owner.slot() as u32 + 1;
        for (i, slot) in area.streams.iter().enumerate() {
            let seen = slot.owner.load(Acquire);
            let submitted = slot.submitted.load(Relaxed);
            let idle = submitted == slot.ended.load(Relaxed) && submitted == area.completions.0[i].load(Acquire);
            // A retired slot whose chunks the GPU still has stays its last owner's, for whom it is written off if that one dies.
            let takable = seen == 0 || (seen & RETIRED != 0 && idle);
            if !takable || slot.owner.compare_exchange(seen, mark, AcqRel, Relaxed).is_err() {
                continue;
            }
            totals.streams_high.fetch_max(i as u32 + 1, Release);
            return Some(StreamId { device: device as u8, slot: i as u16 });
        }
        None
    }

    /// Gives a stream slot back. What is queued on it goes on counting until the GPU is through with it.
    pub fn free_stream(&self, id: StreamId) {
        if let Some(slot) = self.area(id.device()).and_then(|a| a.streams.get(id.slot())) {
            slot.owner.fetch_or(RETIRED, AcqRel);
        }
    }

    /// The words of a stream.
    pub fn marks(&self, id: StreamId) -> Option<Marks<'_>> {
        let area = self.area(id.device())?;
        Some(Marks { slot: area.streams.get(id.slot())?, completed: area.completions.0.get(id.slot())? })
    }

    /// What the container has queued on a device. Bounded by the layout, whatever the tenant wrote.
    pub fn backlog(&self, device: usize) -> Backlog {
        let mut sum = Backlog::default();
        let (Some(area), Some(totals)) = (self.area(device), self.totals.0.get(device)) else { return sum };
        let high = (totals.streams_high.load(Acquire) as usize).min(MAX_STREAMS);
        for (slot, completed) in area.streams[..high].iter().zip(&area.completions.0) {
            // The order matters: work that is submitted, ends and completes between the loads must not look like work undone.
            let completed = completed.load(Acquire);
            let ended = slot.ended.load(Acquire);
            let submitted = slot.submitted.load(Acquire);
            let (queued, filling) = (behind(ended, completed), behind(submitted, ended));
            sum.queued = sum.queued.saturating_add(queued);
            sum.filling = sum.filling.saturating_add(filling);
            sum.streams += u32::from(queued > 0 || filling > 0);
            sum.completed = sum.completed.wrapping_add(completed);
            sum.submitted = sum.submitted.wrapping_add(submitted);
        }
        sum
    }

    /// A dead process has no streams: the GPU dropped its work with it.
    pub(super) fn free_streams_of(&self, device: usize, process: usize) {
        let (Some(area), Some(totals)) = (self.area(device), self.totals.0.get(device)) else { return };
        let high = (totals.streams_high.load(Acquire) as usize).min(MAX_STREAMS);
        for (slot, completed) in area.streams[..high].iter().zip(&area.completions.0) {
            if slot.owner.load(Acquire) & !RETIRED != process as u32 + 1 {
                continue;
            }
            Marks { slot, completed }.write_off();
            slot.owner.store(0, Release);
        }
    }

    /// Counts launches and chunks of a process, for people to look at.
    pub fn count_launches(&self, id: ProcessId, device: usize, launches: u64, chunks: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            counters.launches.fetch_add(launches, Relaxed);
            counters.chunks.fetch_add(chunks, Relaxed);
        }
    }

    /// Launches and chunks of a process.
    pub fn launches(&self, id: ProcessId, device: usize) -> (u64, u64) {
        self.counters(device, id.slot()).map_or((0, 0), |c| (c.launches.load(Relaxed), c.chunks.load(Relaxed)))
    }

    /// Time a thread of a process waited in the CPU gate.
    pub fn add_throttled(&self, id: ProcessId, device: usize, ns: u64) {
        if let Some(counters) = self.counters(device, id.slot()) {
            counters.throttled_ns.fetch_add(ns, Relaxed);
        }
    }

    /// Allocations of a process that were refused.
    pub fn add_refused(&self, id: ProcessId, device: usize) {
        if let Some(counters) = self.counters(device, id.slot()) {
            counters.refused.fetch_add(1, Relaxed);
        }
    }
}

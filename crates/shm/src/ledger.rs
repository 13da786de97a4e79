//! The ledger file: which processes of a container use the GPU, what memory they hold, and how far their streams got.
//!
//! The tenant can write it, so the agent believes nothing in it: counts are clamped, loops are bounded by the layout, and what a
//! tenant writes wrongly harms that tenant alone. The completion words are written by the GPU at the end of each chunk; they lie in
//! pages of their own, to be registered with the driver.
//!
//! Slots are taken by compare-and-swap without locks, never move, and carry a generation, so that a process that was stopped
//! half-way cannot wake up in somebody else's slot. They are given back by one [`Reaper`] at a time.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use crate::header::{Header, LEDGER_MAGIC};
use crate::shared::Shared;
use crate::text::{Fill, Text};
use crate::{MAX_DEVICES, MAX_PROCESSES, MAX_STREAMS};

#[cfg(feature = "std")]
mod file;
mod memory;
mod process;
mod reaping;
mod stream;

#[cfg(feature = "std")]
pub use file::LedgerFile;
pub use memory::{Kind, OverLimit};
pub use process::{Newcomer, Process, ProcessId, State};
pub use reaping::Reaper;
pub use stream::{Backlog, Marks, StreamId};

#[repr(C, align(4096))]
struct Front {
    header: Header,
    /// One more than the highest process slot ever taken.
    processes_high: AtomicU32,
}

/// What all processes of a container share on a device.
#[repr(C, align(64))]
struct Totals {
    peak: AtomicU64,
    refused: AtomicU64,
    /// One more than the highest stream slot ever taken.
    streams_high: AtomicU32,
}

#[repr(C, align(4096))]
struct AllTotals([Totals; MAX_DEVICES]);

/// The memory of a device, one cell per process: what it holds, and what it is asking for this moment. The container's use is the
/// sum. Eight cells lie on a line, so the sum over a few processes is a load or two.
#[repr(C, align(4096))]
struct Charges {
    held: [AtomicU64; MAX_PROCESSES],
    asked: [AtomicU64; MAX_PROCESSES],
}

#[repr(C, align(256))]
struct ProcessSlot {
    /// Generation and [`State`] in one word.
    state: AtomicU64,
    token: AtomicU64,
    start_time: AtomicU64,
    pid: AtomicU32,
    host_pid: AtomicU32,
    flags: AtomicU32,
    name: Text<2>,
    /// The pid namespace that `pid` is of.
    namespace: AtomicU64,
}

/// What one process holds and did on one device. Written by that process alone, except `overhead`, which is the agent's.
#[repr(C, align(128))]
struct Counters {
    held: [AtomicU64; Kind::COUNT],
    host: AtomicU64,
    launches: AtomicU64,
    chunks: AtomicU64,
    refused: AtomicU64,
    throttled_ns: AtomicU64,
}

#[repr(C, align(64))]
struct StreamSlot {
    /// 0, or one more than the process slot that owns it; the highest bit is set once the stream is destroyed.
    owner: AtomicU32,
    /// Units of work submitted.
    submitted: AtomicU32,
    /// What `submitted` was when the last chunk was closed.
    ended: AtomicU32,
}

/// Written by the GPU: what `ended` was when the last chunk it finished was closed.
#[repr(C, align(4096))]
struct Completions([AtomicU32; MAX_STREAMS]);

#[repr(C, align(4096))]
struct DeviceArea {
    counters: [Counters; MAX_PROCESSES],
    streams: [StreamSlot; MAX_STREAMS],
    completions: Completions,
    fill: Fill<{ (64 << 10) - size_of::<Completions>() }>,
}

const AREAS_AT: usize = 1 << 20;
const AREA: usize = 256 << 10;
const CHARGES_AT: usize = size_of::<Front>() + size_of::<AllTotals>() + MAX_PROCESSES * size_of::<ProcessSlot>();
const CHARGES_END: usize = CHARGES_AT + MAX_DEVICES * size_of::<Charges>();

/// The file.
#[repr(C)]
pub struct Ledger {
    front: Front,
    totals: AllTotals,
    processes: [ProcessSlot; MAX_PROCESSES],
    charges: [Charges; MAX_DEVICES],
    fill: Fill<{ AREAS_AT - CHARGES_END }>,
    areas: [DeviceArea; MAX_DEVICES],
}

// SAFETY: integers in atomics throughout.
unsafe impl Shared for Ledger {}

const SIZE: usize = AREAS_AT + MAX_DEVICES * AREA;
const _: () = assert!(size_of::<Ledger>() == SIZE && core::mem::offset_of!(Ledger, areas) == AREAS_AT);
const _: () = assert!(core::mem::offset_of!(Ledger, charges) == CHARGES_AT && size_of::<Charges>() == 16 << 10);
const _: () = assert!(size_of::<ProcessSlot>() == 256 && size_of::<Counters>() == 128 && size_of::<StreamSlot>() == 64);
const _: () = assert!(size_of::<DeviceArea>() == AREA && align_of::<Ledger>() == 4096);
// Registered with the driver: whole pages even where a page is 64 KiB.
const _: () = assert!(core::mem::offset_of!(DeviceArea, completions).is_multiple_of(64 << 10));

impl core::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ledger").field("used", &self.used(0)).finish_non_exhaustive()
    }
}

impl Ledger {
    fn area(&self, device: usize) -> Option<&DeviceArea> {
        self.areas.get(device)
    }

    /// Process slots that may be in use. A tenant's lie is cut to the layout.
    fn processes_high(&self) -> usize {
        (self.front.processes_high.load(Relaxed) as usize).min(MAX_PROCESSES)
    }

    /// Is the header still what the agent wrote?
    pub fn is_sound(&self) -> bool {
        self.front.header.check(LEDGER_MAGIC, SIZE as u64).is_ok()
    }

    /// Address and length of a device's completion words, to be registered with the driver.
    pub fn completions_area(&self, device: usize) -> Option<(*const u8, usize)> {
        let area = self.area(device)?;
        let len = if page_size() > size_of::<Completions>() { 64 << 10 } else { size_of::<Completions>() };
        Some((core::ptr::from_ref(&area.completions).cast(), len))
    }
}

fn page_size() -> usize {
    // SAFETY: asks the C library for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Adds without wrapping round: a hostile counter stays a number.
fn add(counter: &AtomicU64, n: u64) {
    let _ = counter.fetch_update(Relaxed, Relaxed, |old| Some(old.saturating_add(n)));
}

/// Takes away without falling below zero.
fn take(counter: &AtomicU64, n: u64) {
    let _ = counter.fetch_update(Acquire, Acquire, |old| Some(old.saturating_sub(n)));
}

#[cfg(test)]
mod tests;

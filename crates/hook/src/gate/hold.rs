//! The gate on the CPU, where streams cannot wait: a launch is held until the gate opens, and the program may run ahead of the GPU by
//! two chunks. Events say how far a stream is, and the CPU writes it down.

use core::ffi::c_void;
use core::ptr::null_mut;

use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::CLOSED;

use super::stream::Known;
use crate::cuda::real;
use crate::cuda::types::{CUstream, SUCCESS};
use crate::process::Member;

const NO_TIMING: u32 = 2;
/// A wait is looked at again after this time, in case nobody wakes us.
const NAP_NS: i64 = 50_000_000;
/// So many chunks a program may be ahead of the card while several of its streams work and wait for each other.
const AHEAD: u32 = 4;
/// How often is looked at how far the card is.
const LOOK_NS: i64 = 20_000;
/// When neither the arbiter nor the keeper gave a sign of life for so long, nobody is going to open the gate.
const GIVEN_UP_NS: u64 = 1_000_000_000;

/// Marks in a stream whose chunks the CPU has to see to. None when all zero.
#[derive(Default)]
pub(crate) struct Events {
    /// Events and what had been submitted when they were recorded, the older first.
    marks: [Mark; 2],
    used: usize,
}

#[derive(Clone, Copy)]
struct Mark {
    event: *mut c_void,
    submitted: u32,
}

impl Default for Mark {
    fn default() -> Self {
        Mark { event: null_mut(), submitted: 0 }
    }
}

// SAFETY: events belong to the process, not to a thread.
unsafe impl Send for Events {}

impl Events {
    /// Its stream is gone. The events themselves go with the context.
    pub(crate) fn forget(&mut self) {
        self.used = 0;
    }

    /// Puts a mark into the stream, after so much was submitted.
    fn record(&mut self, stream: CUstream, submitted: u32) -> bool {
        let Some(mark) = self.marks.get_mut(self.used) else { return false };
        let (Some(create), Some(record)) = (real::cuEventCreate(), real::cuEventRecord()) else { return false };
        // SAFETY: a place for the event, which then is one of the program's process; its stream is the caller's.
        unsafe {
            if mark.event.is_null() && create(&mut mark.event, NO_TIMING) != SUCCESS {
                return false;
            }
            if record(mark.event, stream) != SUCCESS {
                return false;
            }
        }
        mark.submitted = submitted;
        self.used += 1;
        true
    }

    /// Waits for the oldest mark; what had been submitted by then.
    fn wait_for_oldest(&mut self) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let oldest = self.marks[0];
        if let Some(wait) = real::cuEventSynchronize() {
            // SAFETY: an event of ours that was recorded.
            unsafe { wait(oldest.event) };
        }
        self.marks.rotate_left(1);
        self.used -= 1;
        Some(oldest.submitted)
    }
}

/// Ends the open chunk, waits for the one before it, and for the gate.
pub(super) fn cross(member: Member, known: &'static Known, stream: CUstream, before: u32, hold: bool) {
    let Some((_, marks)) = &known.facts().metered else { return };
    let fill = before.wrapping_sub(marks.ended());
    if fill > 0 {
        let mut events = known.events.lock();
        if events.used == 2
            && let Some(submitted) = events.wait_for_oldest()
        {
            marks.complete(submitted);
        }
        if events.record(stream, before) {
            marks.end(before);
        }
    } else {
        member.process.streams.chunk_opened();
    }
    if hold {
        wait(member, known);
    }
    known.begins();
}

/// Somebody is about to wait for the GPU: so do we, and write down that it is done.
pub(super) fn close(known: &'static Known, submitted: u32) {
    let Some((_, marks)) = &known.facts().metered else { return };
    let mut events = known.events.lock();
    while events.used == 2 {
        if let Some(done) = events.wait_for_oldest() {
            marks.complete(done);
        }
    }
    if !events.record(known.facts().stream, submitted) {
        return;
    }
    marks.end(submitted);
    while let Some(done) = events.wait_for_oldest() {
        marks.complete(done);
    }
}

/// Waits until the stream is no more than some chunks ahead of the card, which says itself how far it is, and until the gate is open.
pub(super) fn keep_back(member: Member, known: &'static Known) {
    let Some((_, marks)) = &known.facts().metered else { return };
    if let Some(id) = member.id() {
        member.ledger().set_cpu_gate(id);
    }
    let most = known.facts().gate.chunk_units().max(1).saturating_mul(AHEAD);
    let (mut moved, mut queued) = (monotonic_ns(), marks.queued());
    while queued > most && monotonic_ns().saturating_sub(moved) < GIVEN_UP_NS {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        // SAFETY: a time, and nothing to write to.
        unsafe { libc::nanosleep(&raw const nap, null_mut()) };
        let now = marks.queued();
        if now != queued {
            (moved, queued) = (monotonic_ns(), now);
        }
    }
    wait(member, known);
}

/// Waits until the gate is open, or until there is nobody left to open it.
pub(super) fn wait(member: Member, known: &'static Known) {
    let gate = known.facts().gate;
    if gate.is_open() {
        return;
    }
    let began = monotonic_ns();
    while !gate.is_open() {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP_NS };
        // SAFETY: the word is mapped for as long as the process lives; the kernel only compares it.
        unsafe { libc::syscall(libc::SYS_futex, gate.word().as_ptr(), libc::FUTEX_WAIT, CLOSED, &raw const nap) };
        let sign = member.gate().arbiter_beat().max(member.gate().keeper_beat()).max(began);
        if monotonic_ns().saturating_sub(sign) > GIVEN_UP_NS {
            break;
        }
    }
    if let Some(id) = member.id() {
        member.ledger().add_throttled(id, known.facts().device, monotonic_ns().saturating_sub(began));
    }
}

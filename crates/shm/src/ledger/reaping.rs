//! Giving back what the dead held, one reaper at a time.
//!
//! Whoever gives back a slot wipes it and frees it, and may be killed or stopped anywhere in between. Two who did so at once could
//! wipe what a new owner has booked since, and a slot whose reaper died would stay taken. So the ledger file itself is locked
//! meanwhile: the kernel takes the lock from the dead, and who gets it may finish what it finds begun.

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::process::{State, pack};
use super::{Ledger, ProcessId};
use crate::{MAX_DEVICES, clock};

/// The right to give back slots of one ledger. Nobody else has it while this lives.
#[derive(Debug)]
pub struct Reaper {
    file: c_int,
}

impl Reaper {
    /// Waits at most that long: whoever has the right needs it for microseconds, unless it was stopped.
    pub fn of(ledger_file: &CStr, patience_ns: u64) -> Option<Reaper> {
        let mode = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        // SAFETY: the path ends with a zero.
        let file = unsafe { libc::open(ledger_file.as_ptr(), mode) };
        if file < 0 {
            return None;
        }
        let since = clock::monotonic_ns();
        loop {
            // SAFETY: an open descriptor.
            if unsafe { libc::flock(file, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Some(Reaper { file });
            }
            if clock::monotonic_ns().saturating_sub(since) >= patience_ns {
                // SAFETY: ours, and not used again.
                unsafe { libc::close(file) };
                return None;
            }
            // SAFETY: takes no arguments.
            unsafe { libc::sched_yield() };
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Unlocked by name: a child that was forked meanwhile has the descriptor too.
        // SAFETY: ours, and not used again.
        unsafe {
            libc::flock(self.file, libc::LOCK_UN);
            libc::close(self.file);
        }
    }
}

impl Ledger {
    /// Gives a slot back, and everything that is still booked on it; also one that a reaper before us left half given back.
    /// `true` if it was there to be given back.
    pub fn reap_process(&self, reaper: &Reaper, id: ProcessId) -> bool {
        let begun = self.begin_reaping(reaper, id);
        if begun {
            self.finish_reaping(id);
        }
        begun
    }

    /// The slot is nobody's from now on, and what it holds is not given back yet. A reaper that dies here leaves it so.
    pub fn begin_reaping(&self, _: &Reaper, id: ProcessId) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        let reaping = pack(id.generation(), State::Reaping);
        [State::Live, State::Reaping]
            .into_iter()
            .any(|from| slot.state.compare_exchange(pack(id.generation(), from), reaping, AcqRel, Relaxed).is_ok())
    }

    fn finish_reaping(&self, id: ProcessId) {
        let Some(slot) = self.slot(id) else { return };
        for device in 0..MAX_DEVICES {
            self.clear_counters(device, id.slot());
            self.free_streams_of(device, id.slot());
        }
        let (reaping, free) = (pack(id.generation(), State::Reaping), pack(id.generation(), State::Free));
        let _ = slot.state.compare_exchange(reaping, free, AcqRel, Relaxed);
    }
}

//! Process slots: taken by the library at a process's first CUDA call, completed by the agent, given back by whoever sees the
//! process dead ([`super::Reaper`]).

use alloc::string::String;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{Ledger, ProcessSlot};
use crate::{MAX_DEVICES, MAX_PROCESSES};

/// What a process slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Nobody's.
    Free = 0,
    /// Being taken.
    Claiming = 1,
    /// A process's.
    Live = 2,
    /// Its process is dead and what it held is being given back.
    Reaping = 3,
}

const STATE_BITS: u64 = 8;

pub(super) fn pack(generation: u64, state: State) -> u64 {
    (generation << STATE_BITS) | state as u64
}

fn unpack(raw: u64) -> (u64, State) {
    let state = match raw & ((1 << STATE_BITS) - 1) {
        1 => State::Claiming,
        2 => State::Live,
        3 => State::Reaping,
        // Nonsense is somebody's mischief in the tenant's own file; the slot may be used again.
        _ => State::Free,
    };
    (raw >> STATE_BITS, state)
}

/// A slot held by a process: its place and the generation under which it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    slot: u16,
    generation: u64,
}

impl ProcessId {
    /// The place, below [`MAX_PROCESSES`].
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// The generation under which it was taken.
    pub fn generation(self) -> u64 {
        self.generation
    }

    /// As a frame carries it; `None` for a place that does not exist.
    pub fn from_parts(slot: u32, generation: u64) -> Option<ProcessId> {
        let slot = u16::try_from(slot).ok().filter(|&s| usize::from(s) < MAX_PROCESSES)?;
        Some(ProcessId { slot, generation })
    }
}

/// A process as its slot shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its slot.
    pub id: ProcessId,
    /// What the slot is doing.
    pub state: State,
    /// The pid the process knows itself by.
    pub pid: u32,
    /// The pid on the node, once the agent knows.
    pub host_pid: u32,
    /// When it started, in clock ticks since boot, as `/proc/PID/stat` says.
    pub start_time: u64,
    /// The inode of the pid namespace that `pid` is of; 0 if the process could not tell.
    pub namespace: u64,
    /// A number the process drew, which its forked children do not share.
    pub token: u64,
    /// Launches of this process are held by the CPU gate, because streams cannot wait on this card or driver.
    pub cpu_gate: bool,
    /// The command's name.
    pub name: String,
}

/// How a process introduces itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newcomer<'a> {
    /// The pid the process knows itself by.
    pub pid: u32,
    /// When it started, in clock ticks since boot; 0 if /proc does not say. By this and the namespace its neighbours can tell that
    /// it is dead, should the agent be away.
    pub start_time: u64,
    /// The inode of its pid namespace; 0 if /proc does not say.
    pub namespace: u64,
    /// A number it drew.
    pub token: u64,
    /// The command's name.
    pub name: &'a str,
}

const CPU_GATE: u32 = 1;

impl Ledger {
    /// Takes a slot for a process. `None` when all are taken.
    pub fn claim_process(&self, who: &Newcomer<'_>) -> Option<ProcessId> {
        for (i, slot) in self.processes.iter().enumerate() {
            let seen = slot.state.load(Acquire);
            let (generation, state) = unpack(seen);
            if state != State::Free {
                continue;
            }
            let generation = generation.wrapping_add(1) & (u64::MAX >> STATE_BITS);
            let claiming = pack(generation, State::Claiming);
            if slot.state.compare_exchange(seen, claiming, AcqRel, Relaxed).is_err() {
                continue;
            }
            self.front.processes_high.fetch_max(i as u32 + 1, Relaxed);
            slot.pid.store(who.pid, Relaxed);
            slot.host_pid.store(0, Relaxed);
            slot.start_time.store(who.start_time, Relaxed);
            slot.namespace.store(who.namespace, Relaxed);
            slot.token.store(who.token, Relaxed);
            slot.flags.store(0, Relaxed);
            slot.name.store(who.name);
            for device in 0..MAX_DEVICES {
                self.clear_counters(device, i);
            }
            // Fails only if somebody scribbled over it: nobody gives back a slot that is being taken.
            if slot.state.compare_exchange(claiming, pack(generation, State::Live), AcqRel, Relaxed).is_ok() {
                return ProcessId::from_parts(i as u32, generation);
            }
        }
        None
    }

    /// The slot, if it is still held under that generation and alive.
    pub fn process(&self, id: ProcessId) -> Option<Process> {
        self.process_at(id.slot()).filter(|p| p.id == id && p.state == State::Live)
    }

    /// Everything that is not free.
    pub fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        (0..self.processes_high()).filter_map(|i| self.process_at(i))
    }

    fn process_at(&self, i: usize) -> Option<Process> {
        let slot = self.processes.get(i)?;
        let (generation, state) = unpack(slot.state.load(Acquire));
        (state != State::Free).then(|| Process {
            id: ProcessId { slot: i as u16, generation },
            state,
            pid: slot.pid.load(Relaxed),
            host_pid: slot.host_pid.load(Relaxed),
            namespace: slot.namespace.load(Relaxed),
            start_time: slot.start_time.load(Relaxed),
            token: slot.token.load(Relaxed),
            cpu_gate: slot.flags.load(Relaxed) & CPU_GATE != 0,
            name: slot.name.load(),
        })
    }

    /// The agent says who the process is on the node.
    pub fn identify_process(&self, id: ProcessId, host_pid: u32, start_time: u64) -> bool {
        if self.process(id).is_none() {
            return false;
        }
        let Some(slot) = self.slot(id) else { return false };
        slot.start_time.store(start_time, Relaxed);
        slot.host_pid.store(host_pid, Release);
        true
    }

    /// The library says that launches of this process are held by the CPU gate.
    pub fn set_cpu_gate(&self, id: ProcessId) {
        if let Some(slot) = self.slot(id) {
            slot.flags.fetch_or(CPU_GATE, Relaxed);
        }
    }

    /// Does any process wait in the CPU gate?
    pub fn any_cpu_gate(&self) -> bool {
        self.processes[..self.processes_high()]
            .iter()
            .any(|s| unpack(s.state.load(Relaxed)).1 == State::Live && s.flags.load(Relaxed) & CPU_GATE != 0)
    }

    pub(super) fn slot(&self, id: ProcessId) -> Option<&ProcessSlot> {
        self.processes.get(id.slot())
    }
}

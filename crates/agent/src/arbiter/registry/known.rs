//! Which process holds which slot, as the kernel said it. The ledger says so too, and the tenant can write the ledger: what is kept
//! here is what the agent goes by.
//!
//! A process is known once, however many slots name it, and its end is told by a descriptor. Descriptors are bounded for each container
//! and for all of them; the end of a process that has none is found by looking at `/proc`.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use divvy_shm::ledger::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

use super::start_time;

/// Processes of one container whose end is told at once; the end of the others is found within one sweep. Training with many data
/// loaders has a few dozen. Twice as many let one container take twice as much of what all of them have.
const HANDLES_EACH: usize = 64;
/// The part of this process's descriptors that may be handles: connections, pages, the runtime and the API server need the rest. With
/// twice as many and the usual limit of 1024 there would not be enough for connections.
const PART_OF_DESCRIPTORS: u64 = 4;

/// A process in a slot.
struct Entry {
    generation: u64,
    pid: u32,
    start: u64,
    /// Ready to be read when the process has ended.
    handle: Option<OwnedFd>,
}

impl Entry {
    fn has_ended(&self) -> bool {
        match &self.handle {
            Some(handle) => {
                let mut fd = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
                poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
            }
            None => start_time(self.pid) != Some(self.start),
        }
    }
}

/// The slots of each container whose processes are known.
pub(super) struct Known {
    containers: BTreeMap<PathBuf, BTreeMap<usize, Entry>>,
    most_handles: usize,
}

impl Known {
    /// Nobody.
    pub(super) fn new() -> Known {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u16::MAX));
        let most_handles = usize::try_from(descriptors / PART_OF_DESCRIPTORS).unwrap_or(usize::MAX);
        Known { containers: BTreeMap::new(), most_handles }
    }

    /// Whose ends are waited for.
    pub(super) fn handles(&self) -> impl Iterator<Item = &OwnedFd> {
        self.containers.values().flat_map(BTreeMap::values).filter_map(|entry| entry.handle.as_ref())
    }

    /// Is it known who holds this slot?
    pub(super) fn has(&self, container: &Path, id: ProcessId) -> bool {
        self.containers.get(container).and_then(|c| c.get(&id.slot())).is_some_and(|e| e.generation == id.generation())
    }

    /// Is this process known to hold a slot of the container?
    pub(super) fn has_pid(&self, container: &Path, pid: u32) -> bool {
        self.containers.get(container).is_some_and(|c| c.values().any(|entry| entry.pid == pid))
    }

    /// The kernel says that the slot is held by this process. Whatever slot it held before it holds no longer.
    pub(super) fn add(&mut self, container: &Path, id: ProcessId, pid: u32, start: u64) {
        let entries = self.containers.entry(container.to_owned()).or_default();
        entries.retain(|slot, entry| *slot != id.slot() && entry.pid != pid);
        let here = entries.values().filter(|entry| entry.handle.is_some()).count();
        let room = here < HANDLES_EACH && self.handles().count() < self.most_handles;
        let pid_of = |pid| i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = pid_of(pid).filter(|_| room).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        let entry = Entry { generation: id.generation(), pid, start, handle };
        self.containers.entry(container.to_owned()).or_default().insert(id.slot(), entry);
    }

    /// Forgets all other containers.
    pub(super) fn keep_containers(&mut self, containers: &HashSet<&PathBuf>) {
        self.containers.retain(|dir, _| containers.contains(dir));
    }

    /// Forgets what the container's ledger no longer says.
    pub(super) fn keep(&mut self, container: &Path, said: &HashSet<ProcessId>) {
        if let Some(entries) = self.containers.get_mut(container) {
            entries.retain(|slot, entry| identity(*slot, entry).is_some_and(|id| said.contains(&id)));
        }
    }

    /// Forgets processes that have ended, and says which slots they held: of those with a descriptor, and of the others where
    /// `others` says so.
    pub(super) fn take_ended(&mut self, others: bool) -> Vec<(PathBuf, ProcessId)> {
        let mut ended = Vec::new();
        for (dir, entries) in &mut self.containers {
            entries.retain(|slot, entry| {
                let has_ended = (others || entry.handle.is_some()) && entry.has_ended();
                if has_ended {
                    ended.extend(identity(*slot, entry).map(|id| (dir.clone(), id)));
                }
                !has_ended
            });
        }
        ended
    }
}

fn identity(slot: usize, entry: &Entry) -> Option<ProcessId> {
    ProcessId::from_parts(u32::try_from(slot).ok()?, entry.generation)
}

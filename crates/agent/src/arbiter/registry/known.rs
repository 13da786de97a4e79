//! Which process holds which slot, as the kernel said it. The ledger says so too, and the tenant can write the ledger: what is kept
//! here is what the agent goes by.
//!
//! A process is known once, however many slots name it, and its end is told by a descriptor. Descriptors are bounded for each container
//! and for all of them; the end of a process that has none is found by looking at `/proc`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use divvy_shm::ledger::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

use super::start_time;

/// Processes of one container whose end is told at once; the end of the others is found within one sweep. Training with many data
/// loaders has a few dozen. Twice as many let one container take twice as much of what all of them have.
const HANDLES_EACH: usize = 64;
/// The part of this process's descriptors that may be handles, and that may be connections: pages, the runtime and the API server need
/// the rest. With twice as many there would be no rest.
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

/// Which container each identified process is in, for others to ask.
#[derive(Clone, Debug, Default)]
pub struct Identified(Arc<Mutex<HashMap<u32, PathBuf>>>);

impl Identified {
    /// The container of a process that the registry has identified, and that has not ended.
    pub fn container(&self, pid: u32) -> Option<PathBuf> {
        self.lock().get(&pid).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots of each container whose processes are known.
pub(super) struct Known {
    containers: BTreeMap<PathBuf, BTreeMap<usize, Entry>>,
    most_handles: usize,
    identified: Identified,
}

/// How many descriptors of this process each of two things may take that tenants can make it open: handles, and connections.
pub(super) fn part_of_descriptors() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u16::MAX));
    usize::try_from(descriptors / PART_OF_DESCRIPTORS).unwrap_or(usize::MAX)
}

impl Known {
    /// Who is known, for others to ask.
    pub(super) fn identified(&self) -> Identified {
        self.identified.clone()
    }

    /// Nobody.
    pub(super) fn new() -> Known {
        Known { containers: BTreeMap::new(), most_handles: part_of_descriptors(), identified: Identified::default() }
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
        self.remove(container, |slot, entry| slot == id.slot() || entry.pid == pid);
        let entries = self.containers.entry(container.to_owned()).or_default();
        let here = entries.values().filter(|entry| entry.handle.is_some()).count();
        let room = here < HANDLES_EACH && self.handles().count() < self.most_handles;
        let pid_of = |pid| i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = pid_of(pid).filter(|_| room).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        let entry = Entry { generation: id.generation(), pid, start, handle };
        self.containers.entry(container.to_owned()).or_default().insert(id.slot(), entry);
        self.identified.lock().insert(pid, container.to_owned());
    }

    fn remove(&mut self, container: &Path, mut is_gone: impl FnMut(usize, &Entry) -> bool) {
        let Some(entries) = self.containers.get_mut(container) else { return };
        let mut identified = self.identified.lock();
        entries.retain(|slot, entry| {
            let gone = is_gone(*slot, entry);
            if gone && identified.get(&entry.pid).is_some_and(|dir| dir == container) {
                identified.remove(&entry.pid);
            }
            !gone
        });
        if entries.is_empty() {
            self.containers.remove(container);
        }
    }

    /// Forgets all other containers.
    pub(super) fn keep_containers(&mut self, containers: &HashSet<&PathBuf>) {
        let gone: Vec<PathBuf> = self.containers.keys().filter(|dir| !containers.contains(dir)).cloned().collect();
        gone.iter().for_each(|dir| self.remove(dir, |_, _| true));
    }

    /// Forgets what the container's ledger no longer says.
    pub(super) fn keep(&mut self, container: &Path, said: &HashSet<ProcessId>) {
        self.remove(container, |slot, entry| !identity(slot, entry).is_some_and(|id| said.contains(&id)));
    }

    /// Forgets processes that have ended, and says which slots they held: of those with a descriptor, and of the others where
    /// `others` says so.
    pub(super) fn take_ended(&mut self, others: bool) -> Vec<(PathBuf, ProcessId)> {
        let mut ended = Vec::new();
        for dir in self.containers.keys().cloned().collect::<Vec<_>>() {
            self.remove(&dir, |slot, entry| {
                let has_ended = (others || entry.handle.is_some()) && entry.has_ended();
                if has_ended {
                    ended.extend(identity(slot, entry).map(|id| (dir.clone(), id)));
                }
                has_ended
            });
        }
        ended
    }
}

fn identity(slot: usize, entry: &Entry) -> Option<ProcessId> {
    ProcessId::from_parts(u32::try_from(slot).ok()?, entry.generation)
}

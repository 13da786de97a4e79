//! Holds this node's containers to their shares: the arbiter and the registry of processes at work on the pages of every container
//! that holds something here, and a keeper beside them that outlives this process.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_core::id::{ContainerName, PodUid};
use divvy_limiter::Period;
use divvy_shm::place;
use rustix::fs::FlockOperation;

use crate::arbiter::registry::{Identified, Identify, Registry, Report};
use crate::arbiter::{Accounts, Arbiter, Container, Settings};
use crate::cgroup;
use crate::home::Home;
use crate::nonsense::Nonsense;
use crate::runtime::Runtime;

/// The runtime is asked at most so often who a new process might be.
const ASK: Duration = Duration::from_millis(200);

/// Arbiter, registry and keeper.
pub struct Hold {
    arbiter: Arbiter,
    registry: Registry,
    home: Home,
    keeper: Option<PathBuf>,
}

/// One container's folder, and who it is.
pub struct Place {
    /// Its pod.
    pub pod: PodUid,
    /// Its name.
    pub name: ContainerName,
    /// Is it done before the others of its pod begin?
    pub is_init: bool,
    /// Its folder.
    pub dir: PathBuf,
}

impl Hold {
    /// Starts with nobody to hold. `keeper` says whether to start a keeper where none runs; `report` hears what the library in a
    /// container reports.
    pub fn start(
        home: Home,
        runtime: Runtime,
        keeper: bool,
        nonsense: Nonsense,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Hold> {
        let socket = home.socket_dir().join(place::SOCKET);
        let registry = Registry::listen(vec![(socket, identify(home.clone(), runtime))], Vec::new(), nonsense, report)?;
        let lock = keeper.then(|| home.keeper_lock());
        let hold = Hold { arbiter: Arbiter::new(Settings::default()), registry, home, keeper: lock };
        hold.see_to_keeper();
        Ok(hold)
    }

    /// These are all the containers there are.
    pub fn update(&self, places: &[Place]) {
        let container = |place: &Place| Container {
            name: account(&place.pod, &place.name),
            dir: place.dir.clone(),
            is_init: place.is_init,
        };
        let containers: Vec<Container> = places.iter().map(container).collect();
        self.arbiter.set_containers(&containers);
        self.registry.set_containers(places.iter().map(|place| place.dir.clone()).collect());
        self.see_to_keeper();
    }

    /// What devices say about themselves: for how long each worked in which periods.
    pub fn hear(&self, said: &BTreeMap<String, Vec<Period>>) {
        self.arbiter.hear(said);
    }

    /// Which processes were identified, and where they are.
    pub fn identified(&self) -> Identified {
        self.registry.identified()
    }

    /// What containers used.
    pub fn accounts(&self) -> Accounts {
        self.arbiter.accounts()
    }

    /// Starts a keeper if none runs. It holds a lock for as long as it lives, so a keeper of an earlier agent is found by it.
    fn see_to_keeper(&self) {
        let Some(lock) = &self.keeper else { return };
        match try_lock(lock) {
            Ok(None) => {}
            Ok(Some(lock)) => {
                let started = start_keeper(&self.home.containers(), lock);
                if let Err(error) = started {
                    tracing::error!(%error, "no keeper: if this agent is stopped, gates may stay closed");
                }
            }
            Err(error) => tracing::error!(%error, "cannot tell whether a keeper runs"),
        }
    }
}

/// A container's name in the accounts.
pub fn account(uid: &PodUid, name: &ContainerName) -> String {
    format!("{uid}/{name}")
}

/// The lock, unless somebody has it.
fn try_lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file.into())),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The keeper gets the lock as its standard input: the lock lives as long as anybody has the descriptor, and we drop ours.
fn start_keeper(dir: &Path, lock: OwnedFd) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).arg("keeper").arg("--dir").arg(dir).stdin(Stdio::from(lock)).spawn()?;
    tracing::info!(pid = child.id(), "keeper started");
    // It outlives us; while we live, somebody has to collect it.
    std::thread::Builder::new().name("keeper".into()).spawn(move || {
        let ended = child.wait();
        tracing::warn!(?ended, "the keeper ended");
    })?;
    Ok(())
}

/// Which container a process is in: by its cgroup, and by what the runtime calls the container of that id.
pub(crate) fn identify(home: Home, runtime: Runtime) -> Identify {
    let handle = tokio::runtime::Handle::current();
    let known: Arc<Mutex<Names>> = Arc::default();
    Box::new(move |pid| {
        let place = cgroup::of(pid)?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.names.contains_key(&place.container) && known.asked.is_none_or(|at| at.elapsed() >= ASK) {
            known.asked = Some(Instant::now());
            if let Ok(names) = handle.block_on(runtime.by_id()) {
                known.names = names;
            }
        }
        let (uid, name) = known.names.get(&place.container)?;
        let dir = home.container(uid, name).ok()?;
        (*uid == place.pod && dir.join(place::GATE).exists()).then_some(dir)
    })
}

#[derive(Default)]
struct Names {
    names: HashMap<String, (PodUid, ContainerName)>,
    asked: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_somebody_holds_is_not_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = try_lock(&path).unwrap();
        assert!(first.is_some());
        assert!(try_lock(&path).unwrap().is_none());
        drop(first);
        assert!(try_lock(&path).unwrap().is_some());
    }
}

use divvy_shm::ledger::Newcomer;

use super::*;

/// A registry without its thread: the container `name` below `root` is where `inside` says that a process is.
fn desk(root: &Path, name: &str, inside: impl Fn(u32) -> bool + Send + 'static) -> (Desk, Guarded<Ledger>, PathBuf) {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let ledger = LedgerFile::create(&dir, 1).unwrap();
    let (socket, container) = (listener(&root.join(place::SOCKET)).unwrap(), dir.clone());
    let identify: Identify = Box::new(move |pid| inside(pid).then(|| container.clone()));
    let containers = Arc::new(Mutex::new(Arc::new(vec![dir.clone()])));
    let desk = Desk::new(vec![(socket, identify)], containers, Nonsense::default(), Box::new(|_| {}));
    (desk, ledger, dir)
}

/// Takes a slot, and writes into it as a tenant can that this is its process on the node.
fn claim(ledger: &Ledger, host_pid: u32, start: u64) -> ProcessId {
    let id = ledger.claim_process(&Newcomer { pid: 1, token: 1, name: "tenant", ..Default::default() }).unwrap();
    assert!(ledger.identify_process(id, host_pid, start));
    id
}

fn give_back(dir: &Path, ledger: &Ledger, ids: &[ProcessId]) {
    let reaper = LedgerFile::reaper(dir).unwrap();
    assert!(ids.iter().all(|id| ledger.reap_process(&reaper, *id)));
}

/// A process that does nothing, and ends with this.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(std::process::Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn start(&self) -> u64 {
        start_time(self.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Descriptors of this process by which it would be told that the process `pid` has ended.
fn handles_of(pid: u32) -> usize {
    let all = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let line = format!("Pid:\t{pid}");
    all.filter(|fd| std::fs::read_to_string(fd.path()).is_ok_and(|text| text.lines().any(|l| l == line))).count()
}

#[test]
fn a_ledger_full_of_processes_that_are_not_its_own_costs_no_descriptors() {
    let root = tempfile::tempdir().unwrap();
    let (mut desk, ledger, dir) = desk(root.path(), "a", |_| false);
    for _ in 0..5 {
        let ids: Vec<ProcessId> = (0..divvy_shm::MAX_PROCESSES).map(|_| claim(&ledger, 1, 0)).collect();
        (0..20).for_each(|_| desk.sweep());
        assert_eq!((handles_of(1), desk.known.handles().count()), (0, 0));
        give_back(&dir, &ledger, &ids);
    }
}

#[test]
fn slots_that_name_one_process_of_the_container_again_and_again_cost_one_descriptor() {
    let root = tempfile::tempdir().unwrap();
    let child = Sleeper::new();
    let (own, start) = (child.id(), child.start());
    let (mut desk, ledger, dir) = desk(root.path(), "a", move |pid| pid == own);
    for _ in 0..5 {
        let ids: Vec<ProcessId> = (0..divvy_shm::MAX_PROCESSES).map(|_| claim(&ledger, own, start)).collect();
        (0..20).for_each(|_| desk.sweep());
        assert_eq!((handles_of(own), desk.known.handles().count()), (1, 1));
        give_back(&dir, &ledger, &ids);
        desk.sweep();
        assert_eq!(handles_of(own), 0, "the ledger no longer says so");
    }
}

#[test]
fn a_crowd_is_reaped_though_few_of_it_have_a_descriptor() {
    let root = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..100).map(|_| Sleeper::new()).collect();
    let own: HashSet<u32> = children.iter().map(Sleeper::id).collect();
    let (mut desk, ledger, _) = desk(root.path(), "a", move |pid| own.contains(&pid));
    for child in &children {
        claim(&ledger, child.id(), child.start());
    }
    (0..2).for_each(|_| desk.sweep());
    let watched = desk.known.handles().count();
    assert!(watched > 0 && watched < children.len(), "{watched} of {}", children.len());
    drop(children);
    desk.bury();
    assert_eq!(ledger.processes().count(), 100 - watched, "those are told of at once");
    desk.sweep();
    assert_eq!(ledger.processes().count(), 0);
}

#[test]
fn a_process_of_another_container_is_not_watched_and_its_end_ends_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (own, neighbour) = (Sleeper::new(), Sleeper::new());
    let inside = own.id();
    let (mut desk, ledger, dir) = desk(root.path(), "a", move |pid| pid == inside);
    let mine = claim(&ledger, own.id(), own.start());
    let lie = claim(&ledger, neighbour.id(), neighbour.start());
    desk.sweep();
    assert!(desk.known.has(&dir, mine) && !desk.known.has(&dir, lie));
    // The tenant writes another process over its own: what the kernel said stays.
    assert!(ledger.identify_process(mine, neighbour.id(), 0));
    drop(neighbour);
    desk.sweep();
    assert!(ledger.process(mine).is_some() && ledger.process(lie).is_none());
    drop(own);
    desk.sweep();
    assert!(ledger.process(mine).is_none());
}

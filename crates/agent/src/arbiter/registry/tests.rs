use divvy_shm::frame::{EventKind, Hello};
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
    let told = [own.id(), neighbour.id()].map(|pid| desk.known.identified().container(pid));
    assert_eq!(told, [Some(dir.clone()), None], "nor does anybody else hear of it");
    // The tenant writes another process over its own: what the kernel said stays.
    assert!(ledger.identify_process(mine, neighbour.id(), 0));
    drop(neighbour);
    desk.sweep();
    assert!(ledger.process(mine).is_some() && ledger.process(lie).is_none());
    drop(own);
    desk.sweep();
    assert!(ledger.process(mine).is_none() && desk.known.identified().container(inside).is_none());
}

/// A registry without its thread, and two containers, whoever is in which by the socket it comes to.
struct Two {
    desk: Desk,
    root: tempfile::TempDir,
    ledgers: [Guarded<Ledger>; 2],
}

impl Two {
    fn new() -> Two {
        let root = tempfile::tempdir().unwrap();
        let dirs = ["a", "b"].map(|name| root.path().join(name));
        let ledgers = dirs.each_ref().map(|dir| {
            std::fs::create_dir_all(dir).unwrap();
            LedgerFile::create(dir, 1).unwrap()
        });
        let listeners = dirs.clone().map(|dir| -> (OwnedFd, Identify) {
            (listener(&dir.join(place::SOCKET)).unwrap(), Box::new(move |_| Some(dir.clone())))
        });
        let containers = Arc::new(Mutex::new(Arc::new(dirs.to_vec())));
        let desk = Desk::new(listeners.into(), containers, Nonsense::default(), Box::new(|_| {}));
        Two { desk, root, ledgers }
    }

    /// A connection to the socket of a container.
    fn call(&self, name: &str) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let address = net::SocketAddrUnix::new(self.root.path().join(name).join(place::SOCKET)).unwrap();
        net::connect(&socket, &address).unwrap();
        socket
    }

    /// Takes a slot, and says so.
    fn introduce(&self, socket: &OwnedFd, container: usize) {
        let who = Newcomer { pid: 1, token: 7, name: "tenant", ..Default::default() };
        let id = self.ledgers[container].claim_process(&who).unwrap();
        let (slot, generation) = (id.slot() as u32, id.generation());
        assert!(say(socket, &Message::Hello(Hello { slot, generation, pid: 1, token: 7, layout: 1 })));
    }

    fn connections_of(&self, name: &str) -> usize {
        self.desk.connections.iter().filter(|c| c.container == self.root.path().join(name)).count()
    }
}

/// Whether there was room for it.
fn say(socket: &OwnedFd, message: &Message) -> bool {
    let mut frame = [0; MAX_FRAME];
    let length = message.encode(&mut frame);
    net::send(socket, &frame[..length], SendFlags::NOSIGNAL).is_ok()
}

fn is_welcome(socket: &OwnedFd) -> bool {
    let mut frame = [0; MAX_FRAME];
    let heard = net::recv(socket, &mut frame, RecvFlags::empty()).map_or(0, |(length, _)| length);
    matches!(Message::decode(&frame[..heard]), Ok(Message::Welcome(Welcome { refused: 0, .. })))
}

#[test]
fn a_neighbour_is_heard_in_the_second_round_however_much_a_container_says() {
    let mut two = Two::new();
    let event = Message::Event(Event { kind: EventKind::Refused, device: 0, value: 1, more: 2 });
    let flood: Vec<OwnedFd> = (0..300).map(|_| two.call("a")).collect();
    let said: usize = flood.iter().map(|socket| (0..).take_while(|_| say(socket, &event)).count()).sum();
    let neighbour = two.call("b");
    two.introduce(&neighbour, 1);
    (0..2).for_each(|_| two.desk.serve(Duration::ZERO));
    assert!(is_welcome(&neighbour));
    assert!(two.connections_of("a") <= CONNECTIONS_EACH);
    // All but the twenty events that are handed on.
    let left_out = two.desk.nonsense.count(Socket::Agent);
    assert!(said > 20_000 && (500..4000).contains(&left_out), "{left_out} of {said}");
}

#[test]
fn of_many_processes_of_a_container_that_begin_at_once_none_goes_unheard() {
    let mut two = Two::new();
    let all: Vec<OwnedFd> = (0..1000).map(|_| two.call("a")).collect();
    all.iter().for_each(|socket| two.introduce(socket, 0));
    two.desk.serve(Duration::ZERO);
    assert_eq!(all.iter().filter(|socket| is_welcome(socket)).count(), 1000);
}

#[test]
fn when_there_are_too_many_connections_the_container_with_most_makes_room() {
    let mut two = Two::new();
    two.desk.most_connections = 80;
    let kept: Vec<OwnedFd> = ["a"; 60].into_iter().chain(["b"; 60]).map(|name| two.call(name)).collect();
    two.desk.serve(Duration::ZERO);
    assert_eq!((two.connections_of("a"), two.connections_of("b")), (40, 40));
    drop(kept);
}

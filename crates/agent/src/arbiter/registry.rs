//! Who is who: processes of containers introduce themselves at the agent's socket, and what dead ones left behind is given back.
//!
//! The kernel says who speaks (peer credentials), the caller of [`Registry::start`] says which container that process is in (its
//! cgroup, or the socket it came to), and the ledger's slot is checked against both. Who holds a slot the agent remembers itself
//! ([`known`]). A process that never introduced itself, or did so while the agent was away, is found by the pid that its slot names, if
//! the kernel says that this pid is in the container.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use divvy_shm::frame::{Event, MAX_FRAME, Message, PER_FRAME, SeenProcess, Welcome};
use divvy_shm::ledger::{Process, ProcessId, State};
use divvy_shm::map::Guarded;
use divvy_shm::{Ledger, LedgerFile, place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::home::ledger_of;
use crate::nonsense::{Nonsense, Socket};

mod known;
mod talk;

pub use known::Identified;
use known::Known;
pub(super) use talk::Talks;

/// Time between two looks for the dead that nobody told us about.
const SWEEP: Duration = Duration::from_millis(500);
/// How long a connection may stay; the library needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// More connections than that at once are not held: the container with most of them makes room. A process holds its own for
/// milliseconds, so that a hundred containers of five processes that begin at once find room.
const MOST_CONNECTIONS: usize = 512;
/// Nor more than that of one container: its oldest makes room. Four such containers are heard in a round, some 100 ms at the worst, for
/// which a process waits.
const CONNECTIONS_EACH: usize = 64;
/// Frames of one connection in one round. The library sends two, a greeting and an event.
const FRAMES_EACH: usize = 8;
/// New connections in one round: as many as the socket's queue holds.
const QUEUE: i32 = 1024;
/// Slots of one container in one sweep whose processes are looked for by the pids that they name: each costs two files under `/proc`.
/// After a restart of the agent a container of 1024 processes is known within 16 sweeps, 8 s. Twice as many double what a ledger full
/// of lies costs.
const LOOKED_FOR: usize = 64;

/// Which container a process is in, by its pid on the node: the folder with the container's pages.
pub type Identify = Box<dyn Fn(u32) -> Option<PathBuf> + Send>;

/// What a process reported: the folder of its container, its pid, and what happened.
pub type Report = (PathBuf, u32, Event);

/// The thread that listens. Dropping it ends it.
#[derive(Debug)]
pub struct Registry {
    stop: Arc<AtomicBool>,
    containers: Arc<Mutex<Arc<Vec<PathBuf>>>>,
    identified: Identified,
    thread: Option<JoinHandle<()>>,
}

impl Registry {
    /// Listens at `agent.sock` in each of the given folders; who comes to one is in the container of the other folder.
    pub fn start(folders: Vec<(PathBuf, PathBuf)>, nonsense: Nonsense) -> io::Result<Registry> {
        let containers = folders.iter().map(|(_, container)| container.clone()).collect();
        let listeners: Vec<(PathBuf, Identify)> = folders
            .into_iter()
            .map(|(at, container)| {
                let identify: Identify = Box::new(move |_| Some(container.clone()));
                (at.join(place::SOCKET), identify)
            })
            .collect();
        Registry::listen(listeners, containers, nonsense, |(container, pid, event)| {
            tracing::warn!(container = %container.display(), pid, ?event, "a container reports");
        })
    }

    /// Listens at the given sockets, each with its way to tell containers, and hands on what processes report.
    pub fn listen(
        sockets: Vec<(PathBuf, Identify)>,
        containers: Vec<PathBuf>,
        nonsense: Nonsense,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Registry> {
        let listeners = sockets
            .into_iter()
            .map(|(path, identify)| Ok((listener(&path)?, identify)))
            .collect::<io::Result<Vec<_>>>()?;
        let (stop, containers) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Arc::new(containers))));
        let mut desk = Desk::new(listeners, containers.clone(), nonsense, Box::new(report));
        let (asked, identified) = (stop.clone(), desk.known.identified());
        let thread = std::thread::Builder::new().name("registry".into()).spawn(move || {
            let mut swept: Option<Instant> = None;
            while !asked.load(Ordering::Relaxed) {
                if swept.is_none_or(|at| at.elapsed() >= SWEEP) {
                    desk.sweep();
                    swept = Some(Instant::now());
                }
                desk.serve(Duration::from_millis(100));
            }
        })?;
        Ok(Registry { stop, containers, identified, thread: Some(thread) })
    }

    /// Which processes were identified, and where they are.
    pub fn identified(&self) -> Identified {
        self.identified.clone()
    }

    /// These are all the containers there are.
    pub fn set_containers(&self, containers: Vec<PathBuf>) {
        *self.containers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(containers);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listener(path: &Path) -> io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    net::bind(&socket, &net::SocketAddrUnix::new(path)?)?;
    // Whatever user a container runs as may speak; who it is the kernel says.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    net::listen(&socket, QUEUE)?;
    Ok(socket)
}

struct Connection {
    socket: OwnedFd,
    pid: u32,
    container: PathBuf,
    since: Instant,
}

struct Desk {
    listeners: Vec<(OwnedFd, Identify)>,
    /// The oldest first.
    connections: Vec<Connection>,
    most_connections: usize,
    talks: Talks,
    known: Known,
    ledgers: HashMap<PathBuf, Guarded<Ledger>>,
    containers: Arc<Mutex<Arc<Vec<PathBuf>>>>,
    nonsense: Nonsense,
    report: Box<dyn Fn(Report) + Send>,
}

impl Desk {
    fn new(
        listeners: Vec<(OwnedFd, Identify)>,
        containers: Arc<Mutex<Arc<Vec<PathBuf>>>>,
        nonsense: Nonsense,
        report: Box<dyn Fn(Report) + Send>,
    ) -> Desk {
        Desk {
            listeners,
            connections: Vec::new(),
            most_connections: MOST_CONNECTIONS.min(known::part_of_descriptors()),
            talks: Talks::default(),
            known: Known::new(),
            ledgers: HashMap::new(),
            containers,
            nonsense,
            report,
        }
    }

    /// Waits for something to happen and sees to it.
    fn serve(&mut self, patience: Duration) {
        let ready = {
            // Who has said too much is not heard for a while, and fills nothing but its own buffers.
            let now = Instant::now();
            let heard = self.connections.iter().filter(|c| self.talks.may_speak(&c.container, now));
            let mut all: Vec<PollFd<'_>> = self
                .listeners
                .iter()
                .map(|(fd, _)| fd)
                .chain(heard.map(|c| &c.socket))
                .chain(self.known.handles())
                .map(|fd| PollFd::new(fd, PollFlags::IN))
                .collect();
            let time = Timespec { tv_sec: 0, tv_nsec: patience.as_nanos() as _ };
            poll(&mut all, Some(&time)).is_ok_and(|n| n > 0)
        };
        if ready {
            self.accept();
            self.answer();
            self.bury();
        }
        self.connections.retain(|c| c.since.elapsed() < PATIENCE);
    }

    fn accept(&mut self) {
        let listeners = std::mem::take(&mut self.listeners);
        for (listener, identify) in &listeners {
            for _ in 0..QUEUE {
                let Ok(socket) = net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
                    break;
                };
                let peer = net::sockopt::socket_peercred(&socket).map(|c| c.pid.as_raw_nonzero().get() as u32);
                match peer.ok().and_then(|pid| Some((pid, identify(pid)?))) {
                    Some((pid, container)) => self.admit(Connection { socket, pid, container, since: Instant::now() }),
                    None => self.nonsense.note(Socket::Agent, "a process that is in no container with a grant"),
                }
            }
        }
        self.listeners = listeners;
    }

    /// Holds one more connection, if its container may say something; another one makes room where it has to.
    fn admit(&mut self, connection: Connection) {
        if !self.talks.speak(&connection.container, connection.since) {
            self.nonsense.note(Socket::Agent, "more connections than a container may make");
            return;
        }
        let mut held: HashMap<&Path, usize> = HashMap::new();
        for c in &self.connections {
            *held.entry(&c.container).or_default() += 1;
        }
        let crowd = if held.get(&*connection.container).is_some_and(|n| *n >= CONNECTIONS_EACH) {
            Some(connection.container.clone())
        } else if self.connections.len() >= self.most_connections {
            let own = connection.container.as_path();
            held.into_iter()
                .max_by_key(|(container, n)| (*n, *container == own))
                .map(|(container, _)| container.to_owned())
        } else {
            None
        };
        if let Some(oldest) = crowd.and_then(|crowd| self.connections.iter().position(|c| c.container == crowd)) {
            // What it has said by now is answered: of many processes that begin at once none goes unheard.
            let oldest = self.connections.remove(oldest);
            if self.converse(&oldest) {
                self.nonsense.note(Socket::Agent, "more connections than a container may hold");
            }
        }
        self.connections.push(connection);
    }

    fn answer(&mut self) {
        let mut kept = Vec::new();
        for connection in std::mem::take(&mut self.connections) {
            if self.converse(&connection) {
                kept.push(connection);
            }
        }
        self.connections = kept;
    }

    /// What was said so far, as far as this round goes; `false` when the other side is done, or talks nonsense.
    fn converse(&mut self, connection: &Connection) -> bool {
        for _ in 0..FRAMES_EACH {
            let now = Instant::now();
            if !self.talks.may_speak(&connection.container, now) {
                return true;
            }
            let mut frame = [0u8; MAX_FRAME];
            let length = match net::recv(&connection.socket, &mut frame, RecvFlags::empty()) {
                Ok((_, 0)) => return false,
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
                Err(_) => return false,
            };
            self.talks.speak(&connection.container, now);
            let answer = match frame.get(..length).map(Message::decode) {
                Some(Ok(Message::Hello(hello))) => {
                    let id = ProcessId::from_parts(hello.slot, hello.generation);
                    let known = id.is_some_and(|id| self.register(connection, id, hello.token));
                    Message::Welcome(Welcome {
                        refused: if known { 0 } else { 2 },
                        host_pid: connection.pid,
                        generation: 0,
                    })
                }
                Some(Ok(Message::Query { device, from })) => self.list(&connection.container, device, from),
                Some(Ok(Message::Event(event))) => {
                    self.hand_on(connection, event, now);
                    continue;
                }
                Some(Err(divvy_shm::frame::FrameFault::Unknown)) => continue,
                _ => {
                    self.nonsense.note(Socket::Agent, "no message of the library's");
                    return false;
                }
            };
            let length = answer.encode(&mut frame);
            if net::send(&connection.socket, &frame[..length], SendFlags::NOSIGNAL).is_err() {
                return false;
            }
        }
        true
    }

    fn hand_on(&mut self, connection: &Connection, event: Event, now: Instant) {
        let Some(left_out) = self.talks.event(&connection.container, now) else {
            self.nonsense.note(Socket::Agent, "more events than a container may report");
            return;
        };
        if left_out > 0 {
            tracing::warn!(container = %connection.container.display(), left_out, "more reports than are logged");
        }
        (self.report)((connection.container.clone(), connection.pid, event));
    }

    fn register(&mut self, connection: &Connection, id: ProcessId, token: u64) -> bool {
        let Some(start) = start_time(connection.pid) else { return false };
        let Some(ledger) = self.ledger(&connection.container) else { return false };
        let own = ledger.process(id).is_some_and(|p| p.token == token);
        if !own || !ledger.identify_process(id, connection.pid, start) {
            return false;
        }
        self.known.add(&connection.container, id, connection.pid, start);
        true
    }

    fn list(&mut self, container: &Path, device: u32, from: u32) -> Message {
        let device = device as usize;
        let Some(ledger) = self.ledger(container) else { return Message::Processes { total: 0, listed: Vec::new() } };
        let all: Vec<SeenProcess> = ledger
            .processes()
            .filter(|p| p.state == State::Live && ledger.held_in_all(p.id, device) > 0)
            .map(|p| {
                let mut name = [0; 16];
                let length = p.name.len().min(15);
                name[..length].copy_from_slice(&p.name.as_bytes()[..length]);
                SeenProcess { pid: p.pid, utilisation: 0, memory: ledger.held_in_all(p.id, device), name, since_ns: 0 }
            })
            .collect();
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        Message::Processes { total, listed: all.into_iter().skip(from as usize).take(PER_FRAME).collect() }
    }

    /// Processes whose end was told.
    fn bury(&mut self) {
        for (container, id) in self.known.take_ended(false) {
            self.reap(&container, &[id]);
        }
    }

    /// If somebody else is at it this moment, the next sweep sees to what that one leaves.
    fn reap(&mut self, container: &Path, dead: &[ProcessId]) {
        if !dead.is_empty()
            && let Some(reaper) = LedgerFile::reaper(&ledger_of(container))
            && let Some(ledger) = self.ledger(container)
        {
            for id in dead {
                ledger.reap_process(&reaper, *id);
            }
        }
    }

    /// Looks at every slot of every container: reaps who is dead, finishes what a reaper that died began, watches who is not watched.
    fn sweep(&mut self) {
        let containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let there: HashSet<&PathBuf> = containers.iter().collect();
        self.ledgers.retain(|dir, ledger| there.contains(dir) && !ledger.is_broken());
        self.known.keep_containers(&there);
        self.talks.keep_containers(&there);
        for (container, id) in self.known.take_ended(true) {
            self.reap(&container, &[id]);
        }
        let namespace = own_namespace();
        for container in containers.iter() {
            let Some(ledger) = self.ledger(container) else { continue };
            let processes: Vec<Process> = ledger.processes().collect();
            let live = processes.iter().filter(|p| p.state == State::Live).map(|p| p.id).collect();
            self.known.keep(container, &live);
            let dead = self.look(container, &processes, namespace);
            self.reap(container, &dead);
        }
    }

    /// Looks for the processes of slots that nobody has introduced; says which slots are to be given back.
    fn look(&mut self, container: &Path, processes: &[Process], namespace: u64) -> Vec<ProcessId> {
        let mut dead: Vec<ProcessId> = processes.iter().filter(|p| p.state == State::Reaping).map(|p| p.id).collect();
        let named = |p: &Process| match p.host_pid {
            0 => Some(p.pid).filter(|_| namespace != 0 && p.namespace == namespace),
            pid => Some(pid),
        };
        let live = processes.iter().filter(|p| p.state == State::Live);
        let strangers: Vec<(&Process, u32)> = live
            .filter(|p| !self.known.has(container, p.id))
            .filter_map(|p| Some((p, named(p)?)))
            .take(LOOKED_FOR)
            .collect();
        for (process, pid) in strangers {
            match start_time(pid).filter(|start| process.start_time == 0 || *start == process.start_time) {
                None => dead.push(process.id),
                Some(start) => self.get_to_know(container, process.id, pid, start),
            }
        }
        dead
    }

    /// The slot names this process. That is believed of a process that the kernel says is in the container, and of one slot.
    fn get_to_know(&mut self, container: &Path, id: ProcessId, pid: u32, start: u64) {
        let is_here = || self.listeners.iter().any(|(_, identify)| identify(pid).as_deref() == Some(container));
        if !self.known.has_pid(container, pid)
            && is_here()
            && self.ledger(container).is_some_and(|ledger| ledger.identify_process(id, pid, start))
        {
            self.known.add(container, id, pid, start);
        }
    }

    fn ledger(&mut self, container: &Path) -> Option<&Guarded<Ledger>> {
        if !self.ledgers.contains_key(container) {
            let ledger = LedgerFile::open_guarded(&ledger_of(container)).ok()?;
            self.ledgers.insert(container.to_owned(), ledger);
        }
        self.ledgers.get(container)
    }
}

/// When a process started, in clock ticks since boot; `None` if it is dead, or a zombie.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in brackets and may hold anything; the state is the third field.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    // A first thread that ended is a zombie while others go on.
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    fields.nth(1)?.trim().parse().ok().filter(|_| !ended || threads > 1)
}

/// The inode of our pid namespace; 0 if nobody says.
fn own_namespace() -> u64 {
    namespace("/proc/self/ns/pid")
}

/// The inode of the pid namespace that a link names; 0 if nobody says.
pub(super) fn namespace(link: &str) -> u64 {
    let text = std::fs::read_link(link).unwrap_or_default().to_string_lossy().into_owned();
    text.strip_prefix("pid:[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;

//! Talking to the agent: who we are, and what it should know.
//!
//! Short and bounded, and never needed: the pages say everything, and a process works without the agent. Each time a connection is
//! made, used and closed, so that no descriptor of ours lies among the program's and none is inherited by its children.

use core::ffi::c_void;
use core::mem::{offset_of, zeroed};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use divvy_shm::clock::monotonic_ns;
use divvy_shm::frame::{Event, EventKind, Hello, MAX_FRAME, Message};
use divvy_shm::header::LAYOUT;

use crate::files;
use crate::process::Member;

/// How long all of one exchange may take.
const PATIENCE_NS: u64 = 100_000_000;
/// How soon a failed introduction is tried again.
const TRY_AGAIN_NS: u64 = 1_000_000_000;

/// What was said to the agent so far. Nothing when all zero.
pub(crate) struct Acquaintance {
    introduced: AtomicBool,
    tried_ns: AtomicU64,
    told_ns: AtomicU64,
}

impl Member {
    /// Says who this process is, unless the agent knows, or was just found to be away.
    #[inline]
    pub(crate) fn introduce(self) {
        if !self.process.agent.introduced.load(Ordering::Relaxed) {
            self.try_to_introduce();
        }
    }

    #[cold]
    fn try_to_introduce(self) {
        let acquaintance = &self.process.agent;
        if !due(&acquaintance.tried_ns, TRY_AGAIN_NS) {
            return;
        }
        let known =
            Line::open().is_some_and(|line| self.hello(&line) && matches!(line.hear(), Some(Message::Welcome(_))));
        acquaintance.introduced.store(known, Ordering::Relaxed);
    }

    /// Says that something happened; at most every tenth of a second, for a program can fail in a loop.
    #[cold]
    pub(crate) fn tell(self, kind: EventKind, device: usize, value: u64, more: u64) {
        if !due(&self.process.agent.told_ns, PATIENCE_NS) {
            return;
        }
        if let Some(line) = Line::open() {
            let device = u32::try_from(device).unwrap_or(u32::MAX);
            let _ = self.hello(&line) && line.say(&Message::Event(Event { kind, device, value, more }));
        }
    }

    fn hello(self, line: &Line) -> bool {
        let Some((id, pid, token)) = self.identity() else { return false };
        let hello = Hello { slot: id.slot() as u32, pid, generation: id.generation(), token, layout: LAYOUT };
        line.say(&Message::Hello(hello))
    }
}

/// Whether so much time has passed since this last said yes. For one thread at a time.
fn due(last: &AtomicU64, pause_ns: u64) -> bool {
    let (now, then) = (monotonic_ns(), last.load(Ordering::Relaxed));
    let rested = then == 0 || now.saturating_sub(then) >= pause_ns;
    rested && last.compare_exchange(then, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// A connection to the agent, which is given up when its time is over.
struct Line {
    socket: i32,
    deadline: u64,
}

impl Line {
    fn open() -> Option<Line> {
        let path = files::socket()?;
        // SAFETY: plain numbers; zero is valid.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if path.len() > address.sun_path.len() {
            return None;
        }
        for (to, from) in address.sun_path.iter_mut().zip(&path) {
            *to = *from as libc::c_char;
        }
        let length = offset_of!(libc::sockaddr_un, sun_path) + path.len();
        // SAFETY: takes numbers alone.
        let socket =
            unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if socket < 0 {
            return None;
        }
        let line = Line { socket, deadline: monotonic_ns().saturating_add(PATIENCE_NS) };
        loop {
            // SAFETY: the address is as long as said.
            let connected =
                unsafe { libc::connect(socket, (&raw const address).cast(), length as libc::socklen_t) } == 0;
            if connected {
                return Some(line);
            }
            // A crowd of processes may start at once and fill the agent's queue; everything else is final.
            if !matches!(files::errno(), libc::EAGAIN | libc::EINTR) || !line.pause() {
                return None;
            }
        }
    }

    /// Waits a millisecond; false when the time is over.
    fn pause(&self) -> bool {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: a time to sleep, and nowhere to put what is left of it.
        unsafe { libc::nanosleep(&pause, core::ptr::null_mut()) };
        monotonic_ns() < self.deadline
    }

    fn say(&self, message: &Message) -> bool {
        let mut frame = [0; MAX_FRAME];
        let length = message.encode(&mut frame);
        // SAFETY: the buffer is as long as said. No signal if the agent is gone.
        unsafe {
            libc::send(self.socket, frame.as_ptr().cast::<c_void>(), length, libc::MSG_NOSIGNAL) == length as isize
        }
    }

    fn hear(&self) -> Option<Message> {
        let left = self.deadline.saturating_sub(monotonic_ns()) / 1_000_000;
        let mut wait = libc::pollfd { fd: self.socket, events: libc::POLLIN, revents: 0 };
        let mut frame = [0u8; MAX_FRAME];
        // SAFETY: one descriptor, and a buffer as long as said.
        let got = unsafe {
            if libc::poll(&mut wait, 1, i32::try_from(left).unwrap_or(0)) != 1 {
                return None;
            }
            libc::recv(self.socket, frame.as_mut_ptr().cast::<c_void>(), frame.len(), 0)
        };
        Message::decode(frame.get(..usize::try_from(got).ok()?)?).ok()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.socket) };
    }
}

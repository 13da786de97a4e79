//! Nonsense on the agent's sockets: refused, counted for each socket, and told once for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where somebody can talk to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Where the library in a container introduces its process.
    Agent,
    /// Where the CRI shim asks.
    Desk,
    /// Where the kubelet asks.
    Plugin,
    /// Where the kubelet reaches the runtime through the CRI shim, which tells the agent.
    Cri,
    /// Where probes, metrics and the journal are read.
    Port,
}

impl Socket {
    const ALL: [Socket; 5] = [Socket::Agent, Socket::Desk, Socket::Plugin, Socket::Cri, Socket::Port];

    /// Its name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Socket::Agent => "agent",
            Socket::Desk => "desk",
            Socket::Plugin => "plugin",
            Socket::Cri => "cri",
            Socket::Port => "port",
        }
    }
}

/// How many visitors of each socket were turned away.
#[derive(Clone, Debug, Default)]
pub struct Nonsense(Arc<[AtomicU64; Socket::ALL.len()]>);

impl Nonsense {
    /// Somebody was turned away.
    pub fn note(&self, socket: Socket, what: &str) {
        if self.0[socket as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            let socket = socket.name();
            tracing::warn!(socket, what, "somebody talks nonsense to this socket; further nonsense is only counted");
        }
    }

    /// Somebody else has counted so many at a socket of its own.
    pub fn learn(&self, socket: Socket, count: u64) {
        self.0[socket as usize].store(count, Ordering::Relaxed);
    }

    /// How many were turned away at one socket.
    pub fn count(&self, socket: Socket) -> u64 {
        self.0[socket as usize].load(Ordering::Relaxed)
    }

    /// How many were turned away at each.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Socket::ALL.into_iter().map(|socket| (socket.name(), self.count(socket)))
    }
}

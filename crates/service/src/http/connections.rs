//! The connections of a port: in which phase each is, since when, and which one ends when there are too many or one takes too long.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::limits::{Limits, Times};

/// A connection is left this long before it makes room for another, so that a burst of honest callers does not end itself.
const GRACE: Duration = Duration::from_millis(250);
/// Between two looks for room.
const AGAIN: Duration = Duration::from_millis(10);

/// Who acts next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer: it has yet to say what it wants.
    Head,
    /// The peer: it was answered, and may ask again.
    Idle,
    /// The peer: it sends a body.
    Body,
    /// We do: we make the answer.
    Work,
    /// We send an answer.
    Answer,
    /// We send an answer without an end.
    Stream,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// The peer takes nothing of what we send since then.
    stalled: Option<Instant>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    from: IpAddr,
    state: Mutex<State>,
    ended: Notify,
}

impl Connection {
    fn new(from: IpAddr) -> Connection {
        let state = State { phase: Phase::Head, since: Instant::now(), stalled: None };
        Connection { from, state: Mutex::new(state), ended: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next phase begins.
    pub(super) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        (state.phase, state.since) = (phase, Instant::now());
    }

    /// The peer sent something.
    pub(super) fn heard(&self) {
        let mut state = self.state();
        if state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::Head, Instant::now());
        }
    }

    /// The peer took something of what we sent, or nothing.
    pub(super) fn sent(&self, something: bool) {
        let mut state = self.state();
        if something {
            state.stalled = None;
        } else {
            state.stalled.get_or_insert_with(Instant::now);
        }
    }

    /// Resolves when the connection is to end.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Since when nothing happens because of the peer.
    fn waits_since(&self) -> Option<Instant> {
        let state = self.state();
        match state.phase {
            Phase::Head | Phase::Idle | Phase::Body => Some(state.since),
            Phase::Work | Phase::Answer | Phase::Stream => state.stalled,
        }
    }

    fn is_overdue(&self, times: &Times) -> bool {
        let state = self.state();
        let within = match state.phase {
            Phase::Head => Some(times.head),
            Phase::Idle => Some(times.idle),
            Phase::Body => Some(times.body),
            Phase::Work => Some(times.work),
            Phase::Answer => Some(times.answer),
            Phase::Stream => None,
        };
        within.is_some_and(|within| state.since.elapsed() > within)
            || state.stalled.is_some_and(|since| since.elapsed() > times.stall)
    }
}

/// All connections of a port.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    by_number: BTreeMap<u64, Arc<Connection>>,
    next: u64,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one. It counts until what is returned is dropped.
    pub(super) fn add(self: &Arc<Connections>, from: IpAddr) -> Member {
        let mut open = self.open();
        let (number, connection) = (open.next, Arc::new(Connection::new(from)));
        open.next += 1;
        open.by_number.insert(number, connection.clone());
        Member { all: self.clone(), number, connection }
    }

    /// Resolves when there is room for one more, which another may have to make.
    pub(super) async fn room(&self, limits: &Limits) {
        while !self.has_room(limits) {
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn has_room(&self, limits: &Limits) -> bool {
        let mut open = self.open();
        if open.by_number.len() < limits.connections {
            return true;
        }
        let Some(number) = open.in_the_way() else { return false };
        if let Some(connection) = open.by_number.remove(&number) {
            connection.ended.notify_one();
        }
        true
    }

    /// Ends those that took too long.
    pub(super) fn end_overdue(&self, times: &Times) {
        for connection in self.open().by_number.values().filter(|connection| connection.is_overdue(times)) {
            connection.ended.notify_one();
        }
    }

    /// Until there is none.
    pub(super) async fn none(&self) {
        while !self.open().by_number.is_empty() {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

impl Open {
    /// The one that makes room: of those that wait for their peer, one of the address that has the most connections, and of those the one
    /// that has waited longest, as soon as it has waited a moment. So a flood from one place ends its own connections before anybody
    /// else's.
    fn in_the_way(&self) -> Option<u64> {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.by_number.values() {
            *of_address.entry(connection.from).or_default() += 1;
        }
        let waiting = self.by_number.iter().filter_map(|(number, connection)| {
            Some((of_address[&connection.from], connection.waits_since()?.elapsed(), *number))
        });
        waiting.max().filter(|(_, waits, _)| *waits >= GRACE).map(|(_, _, number)| number)
    }
}

/// A connection that counts.
#[derive(Debug)]
pub(super) struct Member {
    all: Arc<Connections>,
    number: u64,
    /// The connection.
    pub(super) connection: Arc<Connection>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.all.open().by_number.remove(&self.number);
    }
}

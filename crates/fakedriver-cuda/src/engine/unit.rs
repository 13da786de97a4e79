//! One unit as this process sees it: what of ours runs there, what is in line, and whether it is our turn.

use divvy_fakedriver::machine::{Machine, Seat, Turn, Unit};

use super::StreamId;

/// A kernel that wants to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) stream: StreamId,
    pub(crate) ready: u64,
    pub(crate) time: u64,
    pub(crate) width: u32,
    pub(crate) priority: i32,
}

struct Run {
    stream: StreamId,
    left: u64,
    width: u32,
}

pub(crate) struct UnitSim {
    pub(crate) unit: Unit,
    /// Up to here everything has been played.
    cursor: u64,
    /// Our turn, if we have it.
    turn: Option<Turn>,
    /// Somebody ended our turn for us, then.
    lost_at: Option<u64>,
    running: Vec<Run>,
    line: Vec<Wish>,
}

impl UnitSim {
    pub(crate) fn new(unit: Unit) -> Self {
        Self { unit, cursor: 0, turn: None, lost_at: None, running: Vec::new(), line: Vec::new() }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.turn.is_some() && !self.running.is_empty()
    }

    fn wants(&self) -> bool {
        !self.running.is_empty() || !self.line.is_empty()
    }

    /// Puts a kernel in line: higher priority (a lower number) first, then who was ready first.
    pub(crate) fn line_up(&mut self, wish: Wish) {
        let before = |other: &Wish| (other.priority, other.ready) <= (wish.priority, wish.ready);
        let at = self.line.iter().position(|other| !before(other)).unwrap_or(self.line.len());
        self.line.insert(at, wish);
    }

    /// Drops whatever a stream has here.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.running.retain(|r| r.stream != stream);
        self.line.retain(|w| w.stream != stream);
    }

    /// Looks whether somebody ended our turn while we slept.
    pub(crate) fn notice_loss(&mut self, machine: &Machine, seat: &Seat) {
        if let Some(turn) = self.turn
            && self.lost_at.is_none()
            && machine.turn(self.unit) != turn
        {
            self.lost_at = Some(machine.lost_at(seat, self.unit, turn.since).max(self.cursor));
        }
    }

    /// When our turn ends, as things are.
    fn end_of_turn(&self, machine: &Machine) -> Option<u64> {
        self.lost_at.or_else(|| machine.slice_end(self.unit, self.turn?).map(|end| end.max(self.cursor)))
    }

    /// The next moment at which something changes here.
    pub(crate) fn next_due(&self, machine: &Machine) -> Option<u64> {
        if self.turn.is_none() {
            // In line with others: we are rung when it is our turn, but look after an owner that does not move.
            return if self.wants() { machine.patience(self.unit) } else { None };
        }
        if !self.wants() {
            return None;
        }
        let ends = self.running.iter().map(|r| self.cursor + r.left).min();
        let begins = self.line.first().map(|w| w.ready).filter(|&ready| ready > self.cursor);
        ends.into_iter().chain(begins).chain(self.end_of_turn(machine)).min()
    }

    fn room(&self, machine: &Machine) -> u32 {
        machine.sms(self.unit).saturating_sub(self.running.iter().map(|r| r.width).sum())
    }

    /// Begins what is ready and fits. In order: a wide kernel is not overtaken for ever by narrow ones.
    fn begin(&mut self, machine: &Machine) {
        while let Some(wish) = self.line.first().copied() {
            let width = wish.width.clamp(1, machine.sms(self.unit));
            if wish.ready > self.cursor || (width > self.room(machine) && !self.running.is_empty()) {
                break;
            }
            self.line.remove(0);
            self.running.push(Run { stream: wish.stream, left: wish.time, width });
        }
    }

    /// Plays up to a moment, and says what ended then.
    pub(crate) fn advance(&mut self, machine: &Machine, seat: &Seat, to: u64) -> Vec<(StreamId, u64)> {
        let mut ended = Vec::new();
        let Some(turn) = self.turn else {
            if self.wants() {
                machine.relieve(self.unit, to);
                self.ask(machine, seat);
            }
            return ended;
        };
        if to > self.cursor {
            if !self.running.is_empty() {
                machine.book(seat, self.unit, self.cursor, to);
                for run in &mut self.running {
                    run.left = run.left.saturating_sub(to - self.cursor);
                }
            }
            self.cursor = to;
        }
        self.running.retain(|run| {
            if run.left == 0 {
                ended.push((run.stream, to));
            }
            run.left > 0
        });
        if self.end_of_turn(machine).is_some_and(|end| end <= self.cursor) {
            if self.lost_at.take().is_none() {
                if self.wants() || !ended.is_empty() {
                    machine.stand_in_line(seat, self.unit, self.cursor);
                }
                machine.end_turn(self.unit, turn, self.cursor);
            }
            self.turn = None;
            self.ask(machine, seat);
        }
        ended
    }

    /// Asks for the turn if there is something to run.
    fn ask(&mut self, machine: &Machine, seat: &Seat) {
        if self.turn.is_some() || !self.wants() {
            return;
        }
        let ready =
            if self.running.is_empty() { self.line.iter().map(|w| w.ready).min().unwrap_or(0) } else { self.cursor };
        if let Some(since) = machine.ask_turn(seat, self.unit, ready.max(self.cursor)) {
            self.turn = Some(machine.turn(self.unit)).filter(|t| t.owner == Some(seat.index()));
            self.cursor = self.cursor.max(since);
            self.begin(machine);
        }
    }

    /// Begins what can begin; for that, asks for the turn if we have it not.
    pub(crate) fn begin_or_ask(&mut self, machine: &Machine, seat: &Seat) {
        if self.turn.is_some() {
            self.begin(machine);
        } else {
            self.ask(machine, seat);
        }
    }

    /// After a step: books what runs, so that others see it; gives up a turn or a place in line that nothing of ours needs.
    pub(crate) fn rest(&mut self, machine: &Machine, seat: &Seat, now: u64) {
        if self.wants() {
            if self.is_running() && now > self.cursor {
                machine.book(seat, self.unit, self.cursor, now);
                self.running.iter_mut().for_each(|r| r.left = r.left.saturating_sub(now - self.cursor));
                self.cursor = now;
            }
            return;
        }
        machine.leave_line(seat, self.unit);
        let turn = machine.turn(self.unit);
        if turn.owner == Some(seat.index()) {
            machine.end_turn(self.unit, turn, self.cursor.max(turn.since));
        }
        self.turn = None;
        self.lost_at = None;
    }
}

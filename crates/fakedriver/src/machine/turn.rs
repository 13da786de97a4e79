//! Turns: whose work a unit runs now.
//!
//! One word per unit holds the owner and the time its turn began (or nobody, and since when). Times are *ideal*: a turn ends
//! when its slice is over, not when a late thread notices, and the next one begins there. So each process may run its part
//! of the simulation after the fact, and the shares are exact however loaded the host is.
//!
//! An owner gives its turn up when it has nothing to run, or at the end of its slice if somebody waits. Turns go round by seat.
//! If an owner is stopped, dead or just late, any waiter ends its turn for it, at the time it should have ended. One that is stopped
//! is out of the line until it goes on: it could not use its turns, and the others would pay for them.

use std::sync::atomic::Ordering::SeqCst;

use super::layout::SLOTS;
use super::{Machine, Seat, Unit};

const SEAT_BITS: u32 = 10;
const TIME_BITS: u32 = 64 - SEAT_BITS;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// How long after its end an owner may hold on to a turn before a waiter takes it, in nanoseconds.
const GRACE: u64 = 2_000_000;

/// What a unit's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose turn it is.
    pub owner: Option<usize>,
    /// Since when; for nobody's turn, since when it is nobody's.
    pub since: u64,
}

impl Turn {
    fn pack(self) -> u64 {
        let owner = self.owner.map_or(0, |seat| seat as u64 + 1);
        owner << TIME_BITS | (self.since & TIME_MASK)
    }

    fn unpack(word: u64) -> Self {
        let owner = (word >> TIME_BITS) as usize;
        Self { owner: owner.checked_sub(1), since: word & TIME_MASK }
    }
}

const _: () = assert!(SLOTS < 1 << SEAT_BITS);

impl Machine {
    /// Whose turn it is on a unit.
    #[must_use]
    pub fn turn(&self, unit: Unit) -> Turn {
        Turn::unpack(self.layout.units[unit.0].turn.load(SeqCst))
    }

    /// How often turns went from one process to another.
    #[must_use]
    pub fn switches(&self, unit: Unit) -> u64 {
        self.layout.units[unit.0].switches.load(SeqCst)
    }

    fn swap(&self, unit: Unit, old: Turn, new: Turn) -> bool {
        self.layout.units[unit.0].turn.compare_exchange(old.pack(), new.pack(), SeqCst, SeqCst).is_ok()
    }

    /// Asks for the turn on behalf of work that is ready since `ready`. Answers when the turn began if it is ours now;
    /// otherwise we are in line, and our bell rings when it comes.
    pub fn ask_turn(&self, seat: &Seat, unit: Unit, ready: u64) -> Option<u64> {
        loop {
            let turn = self.turn(unit);
            match turn.owner {
                Some(owner) if owner == seat.index => {
                    self.leave_line(seat, unit);
                    return Some(turn.since);
                }
                None => {
                    let since = turn.since.max(ready);
                    if self.swap(unit, turn, Turn { owner: Some(seat.index), since }) {
                        self.leave_line(seat, unit);
                        return Some(since);
                    }
                }
                Some(owner) => {
                    if self.is_in_line(seat.index, unit) {
                        return None;
                    }
                    self.stand_in_line(seat, unit, ready);
                    // The owner sleeps until its own work ends; now it has to watch its slice.
                    self.layout.slots[owner].ring();
                    // The turn may have been given up just before we stood in line: look once more.
                }
            }
        }
    }

    /// Stands in line for the turn.
    pub fn stand_in_line(&self, seat: &Seat, unit: Unit, since: u64) {
        seat.account(unit).waits_since.store(since, SeqCst);
        self.layout.units[unit.0].waiting[seat.index / 64].fetch_or(1 << (seat.index % 64), SeqCst);
    }

    /// Steps out of the line.
    pub fn leave_line(&self, seat: &Seat, unit: Unit) {
        if self.is_in_line(seat.index, unit) {
            self.layout.units[unit.0].waiting[seat.index / 64].fetch_and(!(1 << (seat.index % 64)), SeqCst);
        }
    }

    fn is_in_line(&self, seat: usize, unit: Unit) -> bool {
        self.layout.units[unit.0].waiting[seat / 64].load(SeqCst) & (1 << (seat % 64)) != 0
    }

    /// Those in line after a seat, in the order in which the turn comes to them.
    fn line(&self, unit: Unit, after: usize) -> impl Iterator<Item = usize> {
        let words: Vec<u64> = self.layout.units[unit.0].waiting.iter().map(|w| w.load(SeqCst)).collect();
        (1..SLOTS).map(move |i| (after + i) % SLOTS).filter(move |seat| words[seat / 64] & (1 << (seat % 64)) != 0)
    }

    /// When the turn that began at `since` ends, if somebody is in line for the next.
    #[must_use]
    pub fn slice_end(&self, unit: Unit, turn: Turn) -> Option<u64> {
        let owner = turn.owner?;
        if self.layout.units[unit.0].waiting.iter().all(|w| w.load(SeqCst) == 0) {
            return None;
        }
        let first = self.line(unit, owner).map(|s| self.account(unit, s).waits_since.load(SeqCst)).min()?;
        Some((turn.since + self.spec.slice).max(first))
    }

    /// Ends a turn at a time: the next in line begins there, or nobody has it. False if the turn was no longer that one.
    pub fn end_turn(&self, unit: Unit, turn: Turn, at: u64) -> bool {
        let Some(owner) = turn.owner else { return false };
        let nobody_waits = self.layout.units[unit.0].waiting.iter().all(|w| w.load(SeqCst) == 0);
        let next = if nobody_waits { None } else { self.line(unit, owner).find(|&seat| self.is_alive(seat)) };
        let new = match next {
            None => Turn { owner: None, since: at },
            Some(seat) => {
                let ready = self.account(unit, seat).waits_since.load(SeqCst);
                Turn { owner: Some(seat), since: ready.max(at) + self.spec.switch }
            }
        };
        let ended = self.swap(unit, turn, new);
        if let (true, Some(seat)) = (ended, next) {
            self.layout.units[unit.0].switches.fetch_add(1, SeqCst);
            self.layout.slots[seat].ring();
        }
        ended
    }

    /// When a waiter should look again whether the owner holds on for too long.
    #[must_use]
    pub fn patience(&self, unit: Unit) -> Option<u64> {
        self.slice_end(unit, self.turn(unit)).map(|end| end + GRACE)
    }

    /// Ends the turn of an owner that should have ended it itself a while ago.
    pub fn relieve(&self, unit: Unit, now: u64) {
        let turn = self.turn(unit);
        let (Some(owner), Some(end)) = (turn.owner, self.slice_end(unit, turn)) else { return };
        if now >= end + GRACE && self.end_turn(unit, turn, end) {
            self.account(unit, owner).lost_turn_at.store(end, SeqCst);
            if self.is_stopped(owner) {
                self.layout.units[unit.0].waiting[owner / 64].fetch_and(!(1 << (owner % 64)), SeqCst);
                // Heard when it goes on, or now if it has just done so: it asks again.
                self.layout.slots[owner].ring();
            }
        }
    }

    /// When a turn of ours ended that we did not end ourselves, if it began at `since`.
    #[must_use]
    pub fn lost_at(&self, seat: &Seat, unit: Unit, since: u64) -> u64 {
        let told = seat.account(unit).lost_turn_at.load(SeqCst);
        if told >= since { told } else { since + self.spec.slice }
    }
}

//! A tenant's account on a card: what it was charged, what runs of it, and what is known about its costs.

use crate::cost::UnitCost;
use crate::lane::{Lane, SLICE};
use crate::{Ns, Seen};

/// How long a chunk in flight of unknown cost is believed in.
const BELIEVED: Ns = 5_000_000;
/// Costs are held against the wall time of at least so much work: kernels of one program differ.
const WINDOW: Ns = 4_000_000;

/// Who submitted something so long ago still submits.
const RECENT: Ns = 100_000;
/// It looks at the next one's gate no sooner than this after it has left the last one.
const GATE_SEEN: Ns = 100_000;
/// So many chunks of each of its streams make a measurement.
const SEVERAL: u32 = 4;

/// One tenant's account on one card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// What a unit costs.
    pub(crate) cost: UnitCost,
    /// Everything charged so far.
    pub(crate) charged: Ns,
    /// Charged lately; what is longer ago counts for less.
    pub(super) lately: Ns,
    /// Charged in this step, to be taken up by the tenant's virtual time and bucket.
    pub(crate) fresh: Ns,
    /// Chunks that may be running though the gate is closed: at most one per stream. Of several nobody counts which have ended.
    pub(crate) in_flight: u32,
    /// Time since its gate opened in which the card was free for it, and in which others ran on behind closed gates.
    pub(super) free: Ns,
    pub(super) beside: Ns,
    /// Some of what it did since its last completion was not paid, or paid by guess.
    pub(crate) guessed: bool,
    /// Pots of which it took next to nothing while in flight.
    pub(super) doubts: u8,
    /// The last pot it was in flight in shows that it runs: a neighbour without gaps was served less than all of it.
    pub(crate) seen_running: bool,
    /// What it paid since its last completion for time in which nobody can tell whether it ran.
    pub(super) speculated: Ns,
    /// Paid since its last completion.
    pub(crate) paid: Ns,
    /// Time with work, and what was completed in it.
    pub(super) window: (Ns, u32),
    /// A measurement under way: it has been alone on the card, with full chunks queued.
    pub(super) alone: Option<Alone>,
    pub(super) pot: InPot,
}

/// A measurement of what units cost, from a completion (or the opening of the gate) to a later completion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alone {
    /// So far.
    pub(super) time: Ns,
    /// At the last completion in it.
    pub(super) measured: Ns,
    pub(super) units: u32,
    /// In so many streams, at the most.
    pub(super) streams: u32,
    /// Began with the opening of the gate, with nothing of it begun before.
    pub(super) fresh_start: bool,
}

/// A lane's part in the pot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InPot {
    pub(super) takes_part: bool,
    pub(super) done: u32,
    /// Was on the card behind its closed gate, and has completed nothing since.
    pub(super) ran_on: bool,
    /// The pot at its first completion, and at its last: what it completed took no longer.
    pub(super) first: Option<Ns>,
    pub(super) until: Ns,
    /// What it had of the card if that went round among all that had work for it, as it does.
    pub(super) slices: Ns,
    /// Time since its last completion in the pot, with full chunks behind an open gate: it works at the next one.
    pub(super) tail: Ns,
    pub(super) claim: Claim,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nothing.
    #[default]
    None,
    /// What it completed is worth this much.
    Work(Ns),
    /// What the others leave, and at most this much.
    Rest(Ns),
}

impl Account {
    /// A price nobody can vouch for is only better than none.
    pub(super) fn may_guess(&self) -> bool {
        self.speculated == 0 || self.cost.get().is_none()
    }
}

impl Lane {
    /// Is its work on the card during a stretch that ended with `now`?
    pub(super) fn worked(&self, now: &Seen) -> bool {
        let completed = now.completed != self.seen.completed;
        completed || if self.open { self.has_work() } else { self.account.in_flight > 0 }
    }

    pub(super) fn done(&self, now: &Seen) -> u32 {
        now.completed.wrapping_sub(self.seen.completed)
    }

    /// What is left to pay for the chunk in flight, generously.
    pub(crate) fn left_to_pay(&self) -> Ns {
        let expected = match self.account.cost.get() {
            Some(ns) => ns.saturating_mul(u64::from(self.largest_chunk())).saturating_mul(2),
            None => BELIEVED,
        };
        expected.saturating_sub(self.account.paid)
    }

    /// The most that is charged for a chunk behind a closed gate, even if somebody's progress shows that something runs: what has not
    /// ended after several times its cost is not what runs.
    pub(super) fn most_believable(&self) -> Ns {
        match self.account.cost.get() {
            Some(ns) if !self.open && self.account.pot.done == 0 => {
                ns.saturating_mul(u64::from(self.largest_chunk())).saturating_mul(4).saturating_sub(self.account.paid)
            }
            _ => Ns::MAX,
        }
    }

    /// What it has done of its next chunk in a pot, at the most.
    pub(super) fn tail(&self) -> Ns {
        self.account.pot.tail.min(self.longest_chunk_time())
    }

    /// Works in several streams, or did at the last look.
    pub(super) fn is_broad(&self, now: &Seen) -> bool {
        self.seen.is_broad() || now.is_broad()
    }

    /// The card finds work of it whenever it comes round.
    pub(crate) fn is_there(&self) -> bool {
        self.open && (self.seen.queued > 0 || (self.seen.filling > 0 && self.silent < RECENT))
    }

    /// It has done enough to be learnt from. Streams complete their chunks whenever they like: of several one sees little in a short
    /// time, or all they did before.
    pub(super) fn is_telling(&self, alone: &Alone) -> bool {
        let streams = alone.streams.max(self.streams_lately());
        let several = SEVERAL.saturating_mul(streams).saturating_mul(self.largest_chunk());
        let several = if streams > 1 { several } else { 1 };
        alone.units >= several
    }

    /// What was measured so far is learnt.
    pub(super) fn end_measurement(&mut self) {
        let Some(alone) = self.account.alone.take().filter(|alone| self.is_telling(alone)) else { return };
        if alone.fresh_start {
            self.account.cost.learn_start(alone.measured, alone.units);
        } else {
            self.account.cost.learn(alone.measured, alone.units);
        }
    }

    /// Learns from what it paid for something it completed, where nothing was measured. Chunks of several streams end together, and one
    /// that ends right after another did not begin there: they say nothing.
    pub(super) fn learn_from_payment(&mut self, now: &Seen) {
        let (broad, done, account) = (self.is_broad(now), self.done(now), &mut self.account);
        if broad {
            return;
        }
        if !account.guessed {
            account.cost.bound(account.paid, done);
        } else if account.may_guess() {
            account.cost.guess(account.paid, done);
        }
    }

    /// A completion was booked: what it runs now is unpaid.
    pub(super) fn settled(&mut self) {
        let account = &mut self.account;
        (account.paid, account.speculated, account.doubts) = (0, 0, 0);
        (account.guessed, account.seen_running) = (false, false);
    }

    /// Whether the card can have come to it since its gate opened: it first finishes what it is at, or a slice of time of it. Of long
    /// work it is believed, for not to charge it would cost the others more.
    fn may_have_begun(&self) -> bool {
        self.account.free > GATE_SEEN || self.account.beside > SLICE || self.longest_chunk_time() > SLICE
    }

    /// Its gate opens or closes.
    pub(crate) fn set_gate(&mut self, open: bool) {
        let begun = self.account.in_flight > 0 || self.account.guessed;
        if self.open != open {
            self.as_is = 0;
        }
        if self.open && !open {
            self.account.in_flight =
                if self.has_work() && self.may_have_begun() { self.seen.streams.max(1) } else { 0 };
            self.account.guessed |= self.account.in_flight > 0;
            self.end_measurement();
        } else if !self.open && open {
            // What was in flight still is.
            let had = if self.account.in_flight > 0 { SLICE } else { 0 };
            (self.account.free, self.account.beside, self.account.in_flight) = (had, 0, 0);
            let fresh_start = !begun && self.seen.queued > 0;
            self.account.alone = fresh_start.then(|| Alone { fresh_start, ..Alone::default() });
        }
        self.open = open;
    }

    /// Holds the cost of a unit against the wall time it was done in.
    pub(super) fn watch_cost(&mut self, now: &Seen, elapsed: Ns) {
        let done = self.done(now);
        if done == 0 && !self.has_work() {
            self.account.window = (0, 0);
            return;
        }
        let (time, units) = &mut self.account.window;
        (*time, *units) = (time.saturating_add(elapsed), units.saturating_add(done));
        if done > 0 && *time >= WINDOW {
            let (time, units) = core::mem::take(&mut self.account.window);
            if self.account.cost.get().is_none() && self.is_broad(now) {
                self.account.cost.bound(time, units);
            }
            self.account.cost.at_most(time, units);
        }
    }

    pub(super) fn charge(&mut self, time: Ns) {
        let account = &mut self.account;
        account.charged = account.charged.saturating_add(time);
        account.lately = account.lately.saturating_add(time);
        account.fresh = account.fresh.saturating_add(time);
        account.paid = account.paid.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_several_streams_that_is_down_to_one_is_not_measured_by_a_moment() {
        let mut lane = Lane::new(0, 0);
        lane.chunk_units = 10;
        lane.watch_streams(3, 0);
        let moment = Alone { time: 32_000, measured: 32_000, units: 4, streams: 1, fresh_start: false };
        lane.watch_streams(1, 100_000_000);
        assert!(!lane.is_telling(&moment));
        assert!(lane.is_telling(&Alone { units: 120, ..moment }));
        lane.watch_streams(1, 500_000_000);
        assert!(lane.is_telling(&moment), "it has one by now");
    }
}

//! Who pays for which stretch of a card's time.
//!
//! While one tenant alone has full chunks on the card, the time is its own. When a gate closes, the chunk in flight runs on beside
//! the next owner's work, and nobody can see from outside which of the two the card worked on. Such time goes into a *pot*. Where
//! what ran on ends before anybody completes anything beside it, the pot is its own: a card finishes a chunk before it goes over. Else
//! the pot is shared out when it is known what each of them completed in it, at the cost per unit that was learnt while they were
//! alone. A chunk that began before the pot has partly been paid for. Whoever is still in flight when the others have been served gets
//! the rest: so a kernel of half a second pays for what it took from its neighbour's turns. A tenant that submits more slowly than the
//! card works is charged for its work and not for the gaps.

mod account;
mod pot;

use crate::lane::Lane;
use crate::{Ns, Seen};

pub(crate) use account::Account;
use account::Alone;

/// A pot is shared out at the latest after this time, with what is known by then.
const LONGEST_POT: Ns = 5_000_000;
/// A look so long after the one before it begins no measurement.
const LATE: Ns = 250_000;
/// Of chunks longer than this a card does slices, and when one ends says little about the other.
const LONG_CHUNK: Ns = 3_000_000;
/// A measurement is taken when it is this long: looks are some tens of microseconds apart, and sometimes late.
const MEASUREMENT: Ns = 2_000_000;

/// The books of one card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// What the card had worked when what was used lately was last halved.
    since_halved: Ns,
    /// Time not shared out yet.
    pot: Ns,
    /// So much of it the card may have stood still.
    gap: Ns,
    /// Time the card worked, as charged.
    pub(crate) busy: Ns,
}

impl Books {
    /// Books `elapsed`, which ended with the looks in `seen`. `mine` are the lanes of this card. A stretch longer than `coarse` may
    /// hide a drained queue.
    pub(crate) fn pass(&mut self, lanes: &mut [Lane], mine: &[usize], seen: &[Seen], elapsed: Ns, coarse: Ns) {
        let mut working = 0;
        let others_run_on = mine.iter().any(|&i| !lanes[i].open && lanes[i].account.in_flight > 0);
        for &i in mine {
            let lane = &mut lanes[i];
            if lane.open {
                let time = if others_run_on && lane.done(&seen[i]) == 0 {
                    &mut lane.account.beside
                } else {
                    &mut lane.account.free
                };
                *time = time.saturating_add(elapsed);
            }
            lane.watch_cost(&seen[i], elapsed);
            // Who is in the pot leaves it when that is shared out.
            if lane.has_stopped() && !lane.account.pot.takes_part {
                lane.account.in_flight = 0;
            }
            lane.works = lane.worked(&seen[i]);
            working += usize::from(lane.works);
            if !lane.open && lane.done(&seen[i]) > 0 && lane.account.in_flight == 1 {
                lane.account.in_flight = 0;
            }
        }
        if working == 1 && self.pot == 0 {
            let Some(&i) = mine.iter().find(|&&i| lanes[i].works) else { return };
            if self.alone(&mut lanes[i], &seen[i], elapsed, elapsed > coarse) {
                return;
            }
        }
        if working > 0 {
            self.pot = self.pot.saturating_add(elapsed);
        }
        let (mut completed, mut full) = (false, false);
        let there = mine.iter().filter(|&&i| lanes[i].works && lanes[i].is_there()).count() as u64;
        for &i in mine {
            let lane = &mut lanes[i];
            if !lane.works {
                continue;
            }
            if lane.is_there() {
                lane.account.pot.slices = lane.account.pot.slices.saturating_add(elapsed / there);
            }
            let done = lane.done(&seen[i]);
            lane.end_measurement();
            lane.account.pot.takes_part = true;
            lane.account.pot.done = lane.account.pot.done.wrapping_add(done);
            lane.account.pot.ran_on = done == 0 && (lane.account.pot.ran_on || !lane.open);
            if done > 0 {
                lane.account.pot.first.get_or_insert(self.pot);
                lane.account.pot.until = self.pot;
            }
            let goes_on = done == 0 && lane.open && lane.seen.queued > 0;
            lane.account.pot.tail = if goes_on { lane.account.pot.tail.saturating_add(elapsed) } else { 0 };
            full |= lane.open && lane.seen.queued > 0 && (elapsed <= coarse || seen[i].queued > 0);
            completed |= done > 0;
        }
        if working > 0 && !full {
            self.gap = self.gap.saturating_add(elapsed);
        }
        if self.pot > 0 && self.settle_streams_that_ran_on(lanes, mine, seen) {
            return;
        }
        if self.pot > 0 && self.settle_what_ran_on(lanes, mine, seen) {
            return;
        }
        if self.pot > 0 && ran_out(lanes, mine, seen) {
            self.share_out(lanes, mine, false);
            return;
        }
        // Chunks of several streams end together: what they took, alone and with gaps, is only told from more of them.
        let lone = mine.iter().filter(|&&i| lanes[i].account.pot.takes_part).count() == 1;
        let gather = lone && mine.iter().any(|&i| lanes[i].works && lanes[i].is_broad(&seen[i]));
        let over = working == 0 || (working == 1 && completed && !gather);
        if self.pot > 0 && (over || self.pot >= LONGEST_POT) {
            self.share_out(lanes, mine, over);
            if let Some(&i) = mine.iter().find(|&&i| over && lanes[i].works) {
                // From here on it has the card to itself, and what comes next begins now. Short work is timed often enough as it is.
                let long = lanes[i].longest_chunk_time() >= MEASUREMENT;
                let goes_on = lanes[i].open && seen[i].queued > 0 && elapsed <= LATE;
                lanes[i].account.alone = (long && goes_on).then(Alone::default);
            }
        }
    }

    /// One lane alone, nothing in the pot. `false` if its time cannot be told from gaps yet.
    fn alone(&mut self, lane: &mut Lane, now: &Seen, elapsed: Ns, coarse: bool) -> bool {
        let full = lane.seen.queued > 0 && (!coarse || now.queued > 0);
        if !full && lane.account.cost.get().is_some() {
            return false;
        }
        if lane.account.alone.is_some_and(|alone| alone.fresh_start) && lane.account.cost.firm().is_some() {
            // Some of it is the card going over to this program.
            return false;
        }
        let done = lane.done(now);
        let mut due = elapsed;
        if !lane.open && done == 0 {
            due = due.min(lane.left_to_pay());
            if due < elapsed {
                lane.account.in_flight = 0;
            }
        }
        lane.charge(due);
        self.busy = self.busy.saturating_add(due);
        let late = elapsed > LATE;
        if !full || late {
            // Nobody knows when something was completed.
            lane.end_measurement();
        }
        if let Some(alone) = &mut lane.account.alone {
            alone.time = alone.time.saturating_add(elapsed);
            alone.streams = alone.streams.max(now.streams);
        }
        if done > 0 {
            if let Some(alone) = &mut lane.account.alone {
                (alone.measured, alone.units) = (alone.time, alone.units.saturating_add(done));
                let alone = *alone;
                let long = alone.measured >= MEASUREMENT && lane.is_telling(&alone);
                if long || alone.fresh_start || now.queued == 0 {
                    lane.end_measurement();
                }
            } else {
                lane.learn_from_payment(now);
            }
            if lane.account.alone.is_none() && now.queued > 0 && lane.open && !late {
                lane.account.alone = Some(Alone::default());
            }
            lane.settled();
        }
        true
    }

    /// Time in which the card rested, kept by one for whom that was the better.
    pub(crate) fn charge_rest(&mut self, lane: &mut Lane, elapsed: Ns) {
        lane.charge(elapsed);
        lane.account.paid = 0;
        self.busy = self.busy.saturating_add(elapsed);
    }

    /// Time the card worked, with what is not shared out yet.
    pub(crate) fn so_far(&self) -> Ns {
        self.busy.saturating_add(self.pot.saturating_sub(self.gap))
    }

    /// What a lane will have to pay for the pot, roughly.
    pub(crate) fn pending(&self, lane: &Lane) -> Ns {
        if lane.account.pot.takes_part { self.pot / 2 } else { 0 }
    }
}

/// What ran on behind closed gates has ended with this look, and of those that are left one at most has the card: from here on the time
/// is its own, however long its chunk takes. Where chunks are long it is waited for: what both took together tells more.
fn ran_out(lanes: &[Lane], mine: &[usize], seen: &[Seen]) -> bool {
    let in_pot = || mine.iter().copied().filter(|&i| lanes[i].works || lanes[i].account.pot.takes_part);
    let behind = |i: usize| !lanes[i].open && lanes[i].works;
    in_pot().any(|i| behind(i) && lanes[i].done(&seen[i]) > 0)
        && in_pot().all(|i| !behind(i) || lanes[i].account.in_flight == 0)
        && in_pot().filter(|&i| lanes[i].open && lanes[i].works).count() <= 1
        && in_pot().all(|i| lanes[i].longest_chunk_time() <= LONG_CHUNK)
}

//! The pot: time of which nobody saw whose it was, and how it is shared out.

use super::account::{Alone, Claim, InPot};
use super::{Books, LATE};
use crate::lane::{Lane, SLICE};
use crate::{Ns, Seen};

/// A chunk in flight behind a closed gate that took less than this of so many pots (in thousandths) is taken not to run at all: it
/// waits for something else than its gate.
const RUNNING: u64 = 100;
const DOUBTS: u8 = 4;
/// A pot of which the card may have stood still for more than this part teaches nothing about costs.
const GAPPY: u64 = 8;
/// One of which it may have stood still for more than this part does not tell whose it was.
const THIN: u64 = 4;
/// The most that is charged for a chunk behind a closed gate without a witness that it runs.
const SPECULATION: Ns = 10_000_000;
/// What a card takes at most to go from one program to another: the gate seen, the contexts changed over, the caches cold.
const CHANGE_OVER: Ns = 200_000;
/// Going over is paid for by who used the card in about this time.
const LATELY: Ns = 50_000_000;
/// A chunk behind a closed gate that takes no longer than this is charged when it is done, and not before: whether it has begun nobody
/// can see, for a card looks at a gate only when the work before it is over.
const SHORT: Ns = 2_500_000;
/// Work in chunks of up to this length is done one after the other.
const ORDERLY: Ns = SLICE / 2;
/// Less than this too long is a late look, or the card changing over.
const SUSPICIOUS: Ns = 500_000;

impl Books {
    /// A card finishes the chunk it is at before it goes over to somebody else. Where what ran on behind a closed gate ends, and nobody
    /// completed anything beside it, all the time was its own, whatever its work usually takes; and the next one begins now.
    pub(super) fn settle_what_ran_on(&mut self, lanes: &mut [Lane], mine: &[usize], seen: &[Seen]) -> bool {
        let ended = |i: usize| !lanes[i].open && lanes[i].account.in_flight == 0 && lanes[i].done(&seen[i]) > 0;
        let Some(&last) = mine.iter().find(|&&i| lanes[i].works && ended(i)) else { return false };
        let others = || mine.iter().copied().filter(|&i| i != last && lanes[i].account.pot.takes_part);
        let alone = others().all(|i| {
            let pot = &lanes[i].account.pot;
            pot.done == 0 && !pot.ran_on && lanes[i].open && lanes[i].seen.queued > 0
        });
        // Long work is stopped in the middle, after a slice of time, and others go on with theirs meanwhile.
        let short = others().chain([last]).all(|i| lanes[i].longest_chunk_time() <= ORDERLY);
        if !alone || !short || self.pot > SLICE || self.gap > self.pot / THIN {
            return false;
        }
        // Of the gaps it pays for what its work explains.
        let worth = match claim(&lanes[last], true) {
            Claim::Work(ns) => ns,
            _ => 0,
        };
        let due = self.pot - self.gap + self.gap.min(worth);
        lanes[last].charge(due);
        self.busy = self.busy.saturating_add(due);
        let account = &mut lanes[last].account;
        account.cost.learn_what_ran_on(account.paid, account.pot.done);
        leave_pot(&mut lanes[last], &PotEnd { shared: true, gaps: false, over: true, side_by_side: false });
        for &i in mine {
            let account = &mut lanes[i].account;
            if account.pot.takes_part {
                account.pot = InPot::default();
                account.alone = Some(Alone { fresh_start: true, ..Alone::default() });
            }
        }
        (self.pot, self.gap) = (0, 0);
        true
    }

    /// Of several streams nobody sees how many chunks have passed the gate when it closes. What ran on has ended when nothing of it is
    /// left, or when nothing more of it has ended for longer than a slice of somebody else's time. If the next one completed nothing
    /// before its last chunk, it was alone until then, and the rest was the next one's.
    pub(super) fn settle_streams_that_ran_on(&mut self, lanes: &mut [Lane], mine: &[usize], seen: &[Seen]) -> bool {
        let behind = |i: usize| !lanes[i].open && lanes[i].account.pot.takes_part && lanes[i].account.in_flight > 1;
        let Some(&last) = mine.iter().find(|&&i| behind(i)) else { return false };
        let part = lanes[last].account.pot;
        let takes = lanes[last].account.cost.firm().map_or(0, |_| lanes[last].chunk_time());
        let is_empty = seen[last].queued == 0 && seen[last].filling == 0;
        let is_quiet = self.pot - part.until > SLICE + SUSPICIOUS;
        if !(is_empty || is_quiet) || takes > SLICE || self.gap > self.pot / THIN {
            return false;
        }
        let mut others = mine.iter().copied().filter(|&i| i != last && lanes[i].account.pot.takes_part);
        let Some(next) = others.next().filter(|_| others.next().is_none()) else { return false };
        // Who was there before is in the middle of something, too.
        let was_there = lanes[next].as_is > lanes[last].as_is.saturating_add(LATE);
        let first = lanes[next].account.pot.first;
        if !lanes[next].open || was_there || first.is_some_and(|first| first < part.until) {
            return false;
        }
        lanes[last].charge(part.until);
        lanes[next].charge(self.pot - part.until);
        self.busy = self.busy.saturating_add(self.pot);
        lanes[last].account.in_flight = 0;
        for i in [last, next] {
            leave_pot(&mut lanes[i], &PotEnd { shared: false, gaps: false, over: true, side_by_side: false });
        }
        (self.pot, self.gap) = (0, 0);
        true
    }

    /// Shares the pot out. `over` if nobody is in the middle of a chunk that began in it.
    pub(super) fn share_out(&mut self, lanes: &mut [Lane], mine: &[usize], over: bool) {
        let (pot, sure) = (self.pot, self.pot.saturating_sub(self.gap));
        let gaps = self.gap > pot / GAPPY;
        // A program of several streams beside others: its chunks end when they like, and say little.
        let beside = |lane: &Lane| lane.open && lane.account.pot.takes_part;
        let side_by_side = mine.iter().filter(|&&i| beside(&lanes[i])).count() > 1
            && mine.iter().any(|&i| beside(&lanes[i]) && lanes[i].seen.is_broad());
        if !gaps && !side_by_side {
            doubt_who_took_longer(lanes, mine, pot);
        }
        let (mut firm, mut open, mut sharers) = (0u64, 0u64, 0u64);
        for &i in mine {
            let claim = match lanes[i].account.pot.slices {
                slices if side_by_side && lanes[i].account.pot.takes_part => Claim::Work(slices),
                _ => claim(&lanes[i], gaps),
            };
            lanes[i].account.pot.claim = claim;
            sharers += u64::from(lanes[i].account.pot.takes_part);
            match claim {
                Claim::None => {}
                Claim::Work(ns) => firm = firm.saturating_add(ns),
                Claim::Rest(_) => open += 1,
            }
        }
        // A quarter and more of the time that nobody's work explains: what was taken for short runs on.
        if !gaps && open == 0 && firm > 0 && pot - firm.min(pot) > pot / 4 {
            for &i in mine {
                let lane = &mut lanes[i];
                let silent = lane.account.pot.takes_part && lane.account.pot.done == 0 && !lane.open && lane.works;
                if silent {
                    lane.account.pot.claim = Claim::Rest(Ns::MAX);
                    open += 1;
                }
            }
        }
        // All claims are met if there is enough; if there is more, it is the rest for those in flight; and if those are not there,
        // the card went from one to another, and what took longer than that is shared as the claims are.
        let mut change_over = 0;
        let scale_to = if firm > pot {
            Some(pot)
        } else if open == 0 && firm > 0 && firm < sure {
            change_over = (sure - firm).min(CHANGE_OVER);
            Some(sure - change_over)
        } else {
            None
        };
        // A served owner that had hardly any gaps is the witness that the rest went to those in flight, however long they take.
        let witnessed = firm > 0 && !gaps;
        let mut rest = pot.saturating_sub(firm);
        let mut left = pot;
        for &i in mine {
            let lane = &mut lanes[i];
            let due = match (lane.account.pot.claim, scale_to) {
                (Claim::None, _) => continue,
                (Claim::Work(ns), Some(to)) => scaled(to, ns, firm),
                (Claim::Work(ns), None) => ns,
                (Claim::Rest(most), _) => {
                    let equal = rest / open.max(1);
                    let due = equal.min(match lane.account.pot.done {
                        0 if witnessed => lane.most_believable(),
                        // Of nobody in the pot is anything known.
                        1.. if firm == 0 => Ns::MAX,
                        _ => most,
                    });
                    (rest, open) = (rest - due, open - 1);
                    let little = due.saturating_mul(1000) < pot.saturating_mul(RUNNING);
                    let account = &mut lane.account;
                    account.doubts = if little { account.doubts.saturating_add(1) } else { 0 };
                    account.seen_running = witnessed && !little;
                    if !lane.open && !witnessed {
                        account.speculated = account.speculated.saturating_add(due);
                    }
                    due
                }
            };
            let due = due.min(left);
            left -= due;
            lane.account.pot.claim = Claim::Work(due);
            lane.charge(due);
            self.busy = self.busy.saturating_add(due);
        }
        self.spread(lanes, mine, change_over);
        // What the card surely worked and nobody claims goes where the rest of the pot went.
        let mut left = left.saturating_sub(pot - sure).saturating_sub(change_over);
        let given = |lane: &Lane| match lane.account.pot.claim {
            Claim::Work(ns) => ns.saturating_add(1),
            _ => 0,
        };
        let mut all: Ns = mine.iter().map(|&i| given(&lanes[i])).sum();
        for &i in mine {
            let part = given(&lanes[i]);
            let due = scaled(left, part, all);
            (left, all) = (left - due, all - part);
            lanes[i].charge(due);
            self.busy = self.busy.saturating_add(due);
        }
        let end = PotEnd { shared: sharers > 1, gaps, over, side_by_side };
        for &i in mine {
            leave_pot(&mut lanes[i], &end);
        }
        (self.pot, self.gap) = (0, 0);
    }

    /// Going from one tenant to another serves none of them more than the other: each pays for it as it used the card lately. By the
    /// turn, one that has few pays as much as one that has most of the card, and gets less than it was promised.
    fn spread(&mut self, lanes: &mut [Lane], mine: &[usize], time: Ns) {
        let mut all: Ns = mine.iter().map(|&i| lanes[i].account.lately).sum();
        let mut left = time;
        for &i in mine {
            let lately = lanes[i].account.lately;
            let due = scaled(left, lately, all);
            (left, all) = (left - due, all - lately);
            lanes[i].charge(due);
            self.busy = self.busy.saturating_add(due);
        }
        if self.busy.saturating_sub(self.since_halved) > LATELY {
            self.since_halved = self.busy;
            for &i in mine {
                lanes[i].account.lately /= 2;
            }
        }
    }
}

/// The others' work leaves one lane that completed something far more time than that should have taken: it does longer things now.
fn doubt_who_took_longer(lanes: &mut [Lane], mine: &[usize], pot: Ns) {
    let mut claimed: Ns = 0;
    for &i in mine {
        match claim(&lanes[i], false) {
            Claim::None => {}
            Claim::Rest(_) => return,
            Claim::Work(ns) => claimed = claimed.saturating_add(ns),
        }
    }
    // Those that may run on behind their gates are the suspects, for nobody has measured them there. Where there are none, nobody can
    // tell which of the others it was.
    let completed = |lane: &Lane| lane.account.pot.done > 0;
    let behind_a_gate = mine.iter().any(|&i| completed(&lanes[i]) && !lanes[i].open);
    for &i in mine {
        let suspect = completed(&lanes[i]) && (!behind_a_gate || !lanes[i].open);
        let Claim::Work(own) = claim(&lanes[i], false) else { continue };
        let left = pot.saturating_sub(claimed.saturating_sub(own));
        if suspect && left > own.saturating_mul(4).saturating_add(SUSPICIOUS) {
            lanes[i].account.cost.doubt();
        }
    }
}

/// How a pot came to its end.
struct PotEnd {
    /// Several took part.
    shared: bool,
    /// The card may have stood still for much of it.
    gaps: bool,
    /// Nobody is in the middle of a chunk that began in it.
    over: bool,
    /// Programs shared it side by side, one of several streams among them.
    side_by_side: bool,
}

fn leave_pot(lane: &mut Lane, &PotEnd { shared, gaps, over, side_by_side }: &PotEnd) {
    let begun = if lane.account.cost.get().is_some() { lane.tail() } else { 0 };
    let part = core::mem::take(&mut lane.account.pot);
    if !part.takes_part {
        return;
    }
    let account = &mut lane.account;
    account.guessed |= shared || gaps;
    if part.done > 0 {
        if account.guessed && !gaps && account.may_guess() {
            let paid = account.paid.saturating_sub(begun);
            if side_by_side {
                account.cost.guess_of_heaps(paid, part.done);
            } else {
                account.cost.guess(paid, part.done);
            }
        }
        lane.settled();
        lane.account.paid = begun;
        // What is in flight now began in the pot, and nobody knows when.
        lane.account.guessed = (shared && !over) || gaps;
    } else if !lane.open && (account.doubts >= DOUBTS || lane.most_believable() == 0) {
        lane.account.in_flight = 0;
    }
}

fn claim(lane: &Lane, gaps: bool) -> Claim {
    let account = &lane.account;
    if !account.pot.takes_part {
        return Claim::None;
    }
    if account.pot.done > 0 {
        let cost = if gaps { account.cost.get() } else { account.cost.firm() };
        return match cost {
            Some(ns) => {
                let done = ns.saturating_mul(u64::from(account.pot.done)).saturating_sub(account.paid);
                Claim::Work(done.saturating_add(lane.tail()))
            }
            None => Claim::Rest(account.pot.until.saturating_add(lane.tail())),
        };
    }
    if !lane.works {
        return Claim::Work(0);
    }
    if !lane.open && account.cost.firm().is_some() && lane.longest_chunk_time() <= SHORT {
        return Claim::Work(0);
    }
    if !lane.open {
        return Claim::Rest(lane.left_to_pay().min(SPECULATION.saturating_sub(account.speculated)));
    }
    match account.cost.get() {
        // Only a chunk that is being filled: it cannot have cost more than what is in it.
        Some(ns) if lane.seen.queued == 0 => {
            Claim::Rest(ns.saturating_mul(u64::from(lane.seen.filling)).saturating_sub(account.paid))
        }
        _ => Claim::Rest(Ns::MAX),
    }
}

fn scaled(pot: Ns, claim: Ns, all: Ns) -> Ns {
    if all == 0 { 0 } else { (u128::from(pot) * u128::from(claim) / u128::from(all)) as Ns }
}

#[cfg(test)]
mod tests {
    use crate::charge::LONGEST_POT;
    use crate::domain::Domain;
    use crate::{Ns, Seen, Shares, Tuning};

    const LOOK: Ns = 35_000;

    /// Two tenants whose units cost 8 us, as far as known, with the gates as given.
    fn two(open: [bool; 2], seen: [Seen; 2]) -> Domain {
        let mut domain = Domain::new(1, Tuning::default());
        for i in 0..2 {
            domain.add(Shares { request: 500, limit: 1000 }, &[0]);
            let lane = &mut domain.lanes[i];
            lane.account.cost.learn(2_000_000, 250);
            (lane.chunk_units, lane.seen) = (25, seen[i]);
            lane.set_gate(open[i]);
        }
        domain
    }

    /// Lets time pass; `step` says what is seen then.
    fn pass(domain: &mut Domain, time: Ns, mut step: impl FnMut(Ns, &mut [Seen])) {
        let mine = [0, 1];
        for now in (LOOK..=time).step_by(usize::try_from(LOOK).unwrap()) {
            let mut seen = [domain.lanes[0].seen, domain.lanes[1].seen];
            step(now, &mut seen);
            domain.books[0].pass(&mut domain.lanes, &mine, &seen, LOOK, 4 * LOOK);
            for (lane, seen) in domain.lanes.iter_mut().zip(seen) {
                lane.silent = if lane.seen.submitted == seen.submitted { lane.silent + LOOK } else { 0 };
                lane.seen = seen;
            }
        }
    }

    fn charged(domain: &Domain) -> [Ns; 2] {
        [domain.lanes[0].account.charged, domain.lanes[1].account.charged]
    }

    #[test]
    fn who_stopped_in_the_middle_of_a_chunk_does_not_pay_for_a_neighbour_that_has_become_slower() {
        let filling = Seen { filling: 4, streams: 3, submitted: 4, ..Seen::default() };
        let queued = Seen { queued: 64, streams: 4, submitted: 64, ..Seen::default() };
        let mut domain = two([false, true], [filling, queued]);
        domain.lanes[0].account.in_flight = 3;
        domain.lanes[0].account.cost.doubt();
        // One unit of the first ends at once, nothing after it; the second does 16 units in 200 us: 12 us each.
        pass(&mut domain, 2 * LONGEST_POT, |now, seen| {
            (seen[0].completed, seen[0].filling) = (1, 3);
            (seen[1].completed, seen[1].submitted) = (16 * (now / 200_000) as u32, 64 + 16 * (now / 200_000) as u32);
        });
        let [first, second] = charged(&domain);
        assert!(first < 200_000, "{first} and {second} ns");
        assert!(second > LONGEST_POT, "{first} and {second} ns");
        let [first, second] = [0, 1].map(|i: usize| domain.lanes[i].account.cost.get().unwrap());
        assert!(first < 50_000, "{first} ns a unit");
        assert!((9_000..13_000).contains(&second), "measured as soon as nobody can be beside it: {second} ns a unit");
    }

    #[test]
    fn streams_that_ran_on_pay_until_their_last_completion_and_the_next_one_for_the_rest() {
        let queued = Seen { queued: 75, streams: 3, submitted: 75, ..Seen::default() };
        let mut domain = two([true, false], [queued, queued]);
        pass(&mut domain, LONGEST_POT, |now, seen| seen[0].completed = (now / 8_000) as u32);
        let before = charged(&domain);
        domain.lanes[0].set_gate(false);
        domain.lanes[1].set_gate(true);
        // One chunk of the first had passed the gate, and takes three times what it should; the second has the card after it.
        let done = domain.lanes[0].seen.completed;
        pass(&mut domain, 4_000_000, |now, seen| {
            seen[0].completed = done + if now >= 600_000 { 25 } else { 0 };
            seen[1].completed = (now.saturating_sub(800_000) / 8_000) as u32;
        });
        let [first, second] = [0, 1].map(|i| charged(&domain)[i] - before[i]);
        assert!(first.abs_diff(600_000) <= 2 * LOOK, "{first} and {second} ns");
        assert!(second.abs_diff(3_400_000) <= 4 * LOOK, "{first} and {second} ns");
        assert_eq!(domain.lanes[0].account.in_flight, 0, "nothing of the others is left");
    }

    #[test]
    fn of_two_behind_open_gates_none_pays_for_what_the_others_price_does_not_explain() {
        let queued = Seen { queued: 64, streams: 4, submitted: 64, ..Seen::default() };
        let mut domain = two([true, true], [queued, queued]);
        // Each does 16 units in 2 ms, which should take 128 us: their kernels have become eight times as long.
        pass(&mut domain, 10 * LONGEST_POT, |now, seen| {
            for (i, seen) in seen.iter_mut().enumerate() {
                let done = 16 * ((now + 1_000_000 * i as Ns) / 2_000_000) as u32;
                (seen.completed, seen.submitted) = (done, 64 + done);
            }
        });
        let [first, second] = charged(&domain);
        assert!(first.abs_diff(second) < (first + second) / 10, "{first} and {second} ns");
    }
}

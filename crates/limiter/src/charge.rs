//! Who pays for which stretch of a card's time.
//!
//! While one tenant alone has full chunks on the card, the time is its own. When a gate closes, the chunk in flight runs on beside
//! the next owner's work, and nobody can see from outside which of the two the card worked on. Such time goes into a *pot*. Where
//! what ran on ends before anybody completes anything beside it, the pot is its own: a card finishes a chunk before it goes over. Else
//! the pot is shared out when it is known what each of them completed in it, at the cost per unit that was learnt while they were
//! alone. A chunk that began before the pot has partly been paid for. Whoever is still in flight when the others have been served gets
//! the rest: so a kernel of half a second pays for what it took from its neighbour's turns. A tenant that submits more slowly than the
//! card works is charged for its work and not for the gaps.

use crate::cost::UnitCost;
use crate::domain::Lane;
use crate::{Ns, Seen};

/// A pot is shared out at the latest after this time, with what is known by then.
const LONGEST_POT: Ns = 5_000_000;
/// A chunk in flight behind a closed gate that took less than this of so many pots (in thousandths) is taken not to run at all: it
/// waits for something else than its gate.
const RUNNING: u64 = 100;
const DOUBTS: u8 = 4;
/// A pot of which the card may have stood still for more than this part teaches nothing about costs.
const GAPPY: u64 = 8;
/// The most that is charged for a chunk behind a closed gate without a witness that it runs.
const SPECULATION: Ns = 10_000_000;
/// How long a chunk in flight of unknown cost is believed in.
const BELIEVED: Ns = 5_000_000;

/// A look so long after the one before it begins no measurement.
const LATE: Ns = 250_000;
/// What a card takes at most to go from one program to another: the gate seen, the contexts changed over, the caches cold.
const CHANGE_OVER: Ns = 200_000;
/// Going over is paid for by who used the card in about this time.
const LATELY: Ns = 50_000_000;

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

/// One tenant's account on one card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// What a unit costs.
    pub(crate) cost: UnitCost,
    /// Everything charged so far.
    pub(crate) charged: Ns,
    /// Charged lately; what is longer ago counts for less.
    lately: Ns,
    /// Charged in this step, to be taken up by the tenant's virtual time and bucket.
    pub(crate) fresh: Ns,
    /// Chunks that may be running though the gate is closed: at most one per stream.
    pub(crate) in_flight: u32,
    /// Some of what it did since its last completion was not paid, or paid by guess.
    pub(crate) guessed: bool,
    /// Pots of which it took next to nothing while in flight.
    doubts: u8,
    /// The last pot it was in flight in shows that it runs: a neighbour without gaps was served less than all of it.
    pub(crate) seen_running: bool,
    /// What it paid since its last completion for time in which nobody can tell whether it ran.
    speculated: Ns,
    /// Paid since its last completion.
    paid: Ns,
    /// Time with work, and what was completed in it.
    window: (Ns, u32),
    /// A measurement under way: it has been alone on the card, with full chunks queued.
    alone: Option<Alone>,
    pot: InPot,
}

/// A measurement of what units cost, from a completion (or the opening of the gate) to a later completion.
#[derive(Clone, Copy, Debug, Default)]
struct Alone {
    /// So far.
    time: Ns,
    /// At the last completion in it.
    measured: Ns,
    units: u32,
    /// Began with the opening of the gate, with nothing of it begun before.
    fresh_start: bool,
}

/// Costs are held against the wall time of at least so much work: kernels of one program differ.
const WINDOW: Ns = 4_000_000;
/// A chunk behind a closed gate that takes no longer than this is charged when it is done, and not before: whether it has begun nobody
/// can see, for a card looks at a gate only when the work before it is over.
const SHORT: Ns = 2_500_000;

/// Work in chunks of up to this length is done one after the other: a time slice is twice as long.
const ORDERLY: Ns = 1_000_000;

/// Less than this too long is a late look, or the card changing over.
const SUSPICIOUS: Ns = 500_000;

/// A measurement is taken when it is this long: looks are some tens of microseconds apart, and sometimes late.
const MEASUREMENT: Ns = 2_000_000;

/// A lane's part in the pot.
#[derive(Clone, Copy, Debug, Default)]
struct InPot {
    takes_part: bool,
    done: u32,
    /// Time since its last completion in the pot, with full chunks behind an open gate: it works at the next one.
    tail: Ns,
    claim: Claim,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Claim {
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
    fn may_guess(&self) -> bool {
        self.speculated == 0 || self.cost.get().is_none()
    }

    /// What was measured so far is learnt.
    fn end_measurement(&mut self) {
        match self.alone.take() {
            Some(Alone { units: 0, .. }) | None => {}
            Some(alone) if alone.fresh_start => self.cost.learn_start(alone.measured, alone.units),
            Some(alone) => self.cost.learn(alone.measured, alone.units),
        }
    }
}

impl Lane {
    /// Is its work on the card during a stretch that ended with `now`?
    fn worked(&self, now: &Seen) -> bool {
        let completed = now.completed != self.seen.completed;
        completed || if self.open { self.has_work() } else { self.account.in_flight > 0 }
    }

    fn done(&self, now: &Seen) -> u32 {
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
    fn most_believable(&self) -> Ns {
        match self.account.cost.get() {
            Some(ns) if !self.open && self.account.pot.done == 0 => {
                ns.saturating_mul(u64::from(self.largest_chunk())).saturating_mul(4).saturating_sub(self.account.paid)
            }
            _ => Ns::MAX,
        }
    }

    /// What it has done of its next chunk in a pot, at the most.
    fn tail(&self) -> Ns {
        self.account.pot.tail.min(self.longest_chunk_time())
    }

    /// A completion was booked: what it runs now is unpaid.
    fn settled(&mut self) {
        let account = &mut self.account;
        (account.paid, account.speculated, account.doubts) = (0, 0, 0);
        (account.guessed, account.seen_running) = (false, false);
    }

    /// Its gate opens or closes.
    pub(crate) fn set_gate(&mut self, open: bool) {
        let begun = self.account.in_flight > 0 || self.account.guessed;
        if self.open && !open {
            self.account.in_flight = if self.has_work() { self.seen.streams.max(1) } else { 0 };
            self.account.guessed |= self.account.in_flight > 0;
            self.account.end_measurement();
        } else if !self.open && open {
            self.account.in_flight = 0;
            let fresh_start = !begun && self.seen.queued > 0;
            self.account.alone = fresh_start.then(|| Alone { fresh_start, ..Alone::default() });
        }
        self.open = open;
    }

    /// Holds the cost of a unit against the wall time it was done in.
    fn watch_cost(&mut self, now: &Seen, elapsed: Ns) {
        let done = self.done(now);
        if done == 0 && !self.has_work() {
            self.account.window = (0, 0);
            return;
        }
        let (time, units) = &mut self.account.window;
        (*time, *units) = (time.saturating_add(elapsed), units.saturating_add(done));
        if done > 0 && *time >= WINDOW {
            let (time, units) = core::mem::take(&mut self.account.window);
            self.account.cost.at_most(time, units);
        }
    }

    fn charge(&mut self, time: Ns) {
        let account = &mut self.account;
        account.charged = account.charged.saturating_add(time);
        account.lately = account.lately.saturating_add(time);
        account.fresh = account.fresh.saturating_add(time);
        account.paid = account.paid.saturating_add(time);
    }
}

impl Books {
    /// Books `elapsed`, which ended with the looks in `seen`. `mine` are the lanes of this card. A stretch longer than `coarse` may
    /// hide a drained queue.
    pub(crate) fn pass(&mut self, lanes: &mut [Lane], mine: &[usize], seen: &[Seen], elapsed: Ns, coarse: Ns) {
        let mut working = 0;
        for &i in mine {
            let lane = &mut lanes[i];
            lane.watch_cost(&seen[i], elapsed);
            lane.works = lane.worked(&seen[i]);
            working += usize::from(lane.works);
            if !lane.open && lane.done(&seen[i]) > 0 {
                lane.account.in_flight = lane.account.in_flight.saturating_sub(1);
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
        for &i in mine {
            let lane = &mut lanes[i];
            if !lane.works {
                continue;
            }
            let done = lane.done(&seen[i]);
            lane.account.end_measurement();
            lane.account.pot.takes_part = true;
            lane.account.pot.done = lane.account.pot.done.wrapping_add(done);
            let goes_on = done == 0 && lane.open && lane.seen.queued > 0;
            lane.account.pot.tail = if goes_on { lane.account.pot.tail.saturating_add(elapsed) } else { 0 };
            full |= lane.open && lane.seen.queued > 0 && (elapsed <= coarse || seen[i].queued > 0);
            completed |= done > 0;
        }
        if working > 0 && !full {
            self.gap = self.gap.saturating_add(elapsed);
        }
        if self.pot > 0 && self.settle_what_ran_on(lanes, mine, seen) {
            return;
        }
        let over = working == 0 || (working == 1 && completed);
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

    /// A card finishes the chunk it is at before it goes over to somebody else. Where what ran on behind a closed gate ends, and nobody
    /// completed anything beside it, all the time was its own, whatever its work usually takes; and the next one begins now.
    fn settle_what_ran_on(&mut self, lanes: &mut [Lane], mine: &[usize], seen: &[Seen]) -> bool {
        let ended = |i: usize| !lanes[i].open && lanes[i].account.in_flight == 0 && lanes[i].done(&seen[i]) > 0;
        let Some(&last) = mine.iter().find(|&&i| lanes[i].works && ended(i)) else { return false };
        let others = || mine.iter().copied().filter(|&i| i != last && lanes[i].account.pot.takes_part);
        let alone = others().all(|i| lanes[i].account.pot.done == 0 && lanes[i].open && lanes[i].seen.queued > 0);
        // Long work is stopped in the middle, and others go on with theirs meanwhile.
        let short = others().chain([last]).all(|i| lanes[i].longest_chunk_time() <= ORDERLY);
        if !alone || !short || self.gap > self.pot / GAPPY {
            return false;
        }
        lanes[last].charge(self.pot);
        self.busy = self.busy.saturating_add(self.pot);
        leave_pot(&mut lanes[last], true, false, true);
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
        let account = &mut lane.account;
        let late = elapsed > LATE;
        if !full || late {
            // Nobody knows when something was completed.
            account.end_measurement();
        }
        if let Some(alone) = &mut account.alone {
            alone.time = alone.time.saturating_add(elapsed);
        }
        if done > 0 {
            if let Some(alone) = &mut account.alone {
                (alone.measured, alone.units) = (alone.time, alone.units.saturating_add(done));
                if alone.measured >= MEASUREMENT || alone.fresh_start || now.queued == 0 {
                    account.end_measurement();
                }
            } else if !account.guessed {
                account.cost.bound(account.paid, done);
            } else if account.may_guess() {
                account.cost.guess(account.paid, done);
            }
            if account.alone.is_none() && now.queued > 0 && lane.open && !late {
                account.alone = Some(Alone::default());
            }
            lane.settled();
        }
        true
    }

    /// Shares the pot out. `over` if nobody is in the middle of a chunk that began in it.
    fn share_out(&mut self, lanes: &mut [Lane], mine: &[usize], over: bool) {
        let (pot, sure) = (self.pot, self.pot.saturating_sub(self.gap));
        let gaps = self.gap > pot / GAPPY;
        if !gaps {
            doubt_who_took_longer(lanes, mine, pot);
        }
        let (mut firm, mut open, mut sharers) = (0u64, 0u64, 0u64);
        for &i in mine {
            let claim = claim(&lanes[i], gaps);
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
                    let due = equal.min(if witnessed { lane.most_believable() } else { most });
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
            lane.charge(due);
            self.busy = self.busy.saturating_add(due);
        }
        self.spread(lanes, mine, change_over);
        // What the card surely worked and nobody claims is everybody's.
        let mut left = left.saturating_sub(pot - sure).saturating_sub(change_over);
        let mut heads = sharers.max(1);
        for &i in mine {
            if lanes[i].account.pot.takes_part {
                let due = left / heads;
                (left, heads) = (left - due, heads - 1);
                lanes[i].charge(due);
                self.busy = self.busy.saturating_add(due);
            }
        }
        for &i in mine {
            leave_pot(&mut lanes[i], sharers > 1, gaps, over);
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

/// The others' work leaves one lane that completed something far more time than that should have taken: it does longer things now.
fn doubt_who_took_longer(lanes: &mut [Lane], mine: &[usize], pot: Ns) {
    let mut claimed: Ns = 0;
    let mut completed = None;
    for &i in mine {
        match claim(&lanes[i], false) {
            Claim::None => {}
            Claim::Rest(_) => return,
            Claim::Work(ns) => claimed = claimed.saturating_add(ns),
        }
        if lanes[i].account.pot.done > 0 {
            // The one that may run on behind its gate is the suspect, for nobody has measured it there.
            completed = if lanes[i].open && completed.is_some() { completed } else { Some(i) };
        }
    }
    let Some(suspect) = completed else { return };
    let Claim::Work(own) = claim(&lanes[suspect], false) else { return };
    let left = pot.saturating_sub(claimed.saturating_sub(own));
    if left > own.saturating_mul(4).saturating_add(SUSPICIOUS) {
        lanes[suspect].account.cost.doubt();
    }
}

fn leave_pot(lane: &mut Lane, shared: bool, gaps: bool, over: bool) {
    let begun = if lane.account.cost.get().is_some() { lane.tail() } else { 0 };
    let part = core::mem::take(&mut lane.account.pot);
    if !part.takes_part {
        return;
    }
    let account = &mut lane.account;
    account.guessed |= shared || gaps;
    if part.done > 0 {
        if account.guessed && !gaps && account.may_guess() {
            account.cost.guess(account.paid.saturating_sub(begun), part.done);
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
            None => Claim::Rest(Ns::MAX),
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

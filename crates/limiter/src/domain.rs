//! A card, or several that are held together, with the tenants that share it.

use alloc::vec::Vec;

use crate::bucket::Bucket;
use crate::charge::Books;
use crate::lane::Lane;
use crate::slack::Slack;
use crate::tuning::Tuning;
use crate::{Ns, Seen, pace, turn};

/// Looks are at most some tens of milliseconds apart; after so long the arbiter was not there.
const ABSENT: Ns = 200_000_000;
/// Of so many thousandths of a tenant's time a thousand are its own or its neighbours': the rest goes to changing over, and is nobody's.
const CHANGING_OVER: i64 = 1_010;
/// What a program does lately is what it did in about this time.
const LATELY: Ns = 200_000_000;

/// A program is slower in company than its waiting tells, for it launches more slowly: beside an H200 by a fifteenth, and now and then by a
/// third for seconds. So many thousandths are left for that.
const EASE: u64 = 100;

/// What a program would use alone is only known within so many thousandths of the card, and it gets the benefit of the doubt.
const UNSURE: u64 = 50;

/// A tenant's place in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub(crate) u32);

/// A tenant on one card: its place in the slice that [`Domain::step`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub usize);

/// What a tenant may use of a card's time, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Guaranteed. Zero means: only what others leave.
    pub request: u32,
    /// Never exceeded.
    pub limit: u32,
}

/// What to do for one tenant on one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The lane it is for.
    pub lane: LaneId,
    /// The gate is open.
    pub open: bool,
    /// Units of work per chunk; 0 while nothing is known.
    pub chunk_units: u32,
    /// What a unit costs, in nanoseconds; 0 while nothing is known.
    pub unit_ns: u32,
    /// GPU time charged since the tenant was added.
    pub charged: Ns,
    /// Time with work behind a closed gate.
    pub throttled: Ns,
    /// Turns given.
    pub turns: u64,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Look again after this time.
    pub next: Ns,
    /// Several tenants want a card.
    pub contended: bool,
}

/// A tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) shares: Shares,
    pub(crate) lanes: Vec<usize>,
    pub(crate) bucket: Bucket,
    /// GPU time used over request.
    pub(crate) virt: i64,
    /// How far it was behind everybody else, in virtual time, when it last wanted the card.
    pub(crate) owed: i64,
    /// Owns every card it holds.
    pub(crate) owner: bool,
    /// Runs in somebody's gap, ahead of its share.
    pub(crate) guest: bool,
    /// When it was given the card, when the card was free for it, and what it had completed by then.
    pub(crate) turn_given: Ns,
    pub(crate) turn_began: Ns,
    pub(crate) done_before: u32,
    /// Whose turn it was before, while something of that is still on the card.
    pub(crate) waits_for: Option<usize>,
    pub(crate) turns: u64,
    /// Has had work since.
    pub(crate) ready_since: Option<Ns>,
    pub(crate) last_work: Option<Ns>,
    /// Last had full chunks queued.
    pub(crate) last_full: Ns,
    /// Last completed something, or had nothing to complete.
    pub(crate) last_moved: Ns,
    /// When it last ran out of work, and how long it usually takes to come back.
    pub(crate) out_since: Option<Ns>,
    pub(crate) gap: Ns,
    pub(crate) wants: bool,
    pub(crate) ready: bool,
    /// Ready, and worth taking the card from somebody who has work.
    pub(crate) pressing: bool,
    /// Much faster than it was promised, and its program goes on launching: it loses nothing if others go first.
    pub(crate) unhurried: bool,
    pub(crate) gone: bool,
    /// How much more it is owed of the time it lately lost to others; negative if less.
    pub(crate) grievance: i64,
    pub(crate) thought: Thought,
}

impl Tenant {
    /// It mostly thinks, and waits less than its request allows.
    pub(crate) fn is_fast_enough(&self) -> bool {
        self.thought.mostly() && self.grievance < 0
    }

    /// By so much that it can wait for longer.
    pub(crate) fn is_at_ease(&self) -> bool {
        self.is_fast_enough() && self.thought.speed() > u64::from(self.shares.request) + EASE
    }

    /// With a request of r a tenant may lose 1 - r of its time. Who mostly computes is to have r of the time in which it wants the card,
    /// or side by side of what it would use of that alone.
    /// Who mostly thinks could never use that: it is to be as fast as r of alone, so that it may be kept waiting for 1 - r of all its time.
    fn aggrieve(&mut self, time: &Time, most: Ns) {
        let request = i64::from(self.shares.request.min(1000));
        let [passed, had, lost, most] =
            [time.passed, time.had, time.lost, most].map(|t| i64::try_from(t).unwrap_or(i64::MAX));
        let change = if self.thought.mostly() {
            (passed.saturating_mul(request) / 1000).saturating_sub(passed - lost)
        } else {
            // In turns it is not seen what it would use: its neighbours' turns hold up its launches, too.
            let demand = if time.beside { self.thought.demand().saturating_add(UNSURE).min(1000) } else { 1000 };
            let demand = i64::try_from(demand).unwrap_or(1000);
            let wanted = if time.held_up { passed.saturating_mul(demand) / 1000 } else { had };
            (wanted.saturating_mul(request) / CHANGING_OVER).saturating_sub(had)
        };
        self.grievance = self.grievance.saturating_add(change).clamp(-most, most);
    }
}

/// A stretch of a tenant's time.
struct Time {
    passed: Ns,
    /// Of the card.
    had: Ns,
    /// All run side by side, and not all in several streams: of those nobody knows what any would use alone.
    beside: bool,
    /// Its program waits for the card ...
    held_up: bool,
    /// ... and alone it would not have for so long of it.
    lost: Ns,
}

/// How a program would spend its time if it were alone, and for how long it waited for others: lately, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thought {
    thinking: Ns,
    computing: Ns,
    waiting: Ns,
}

impl Thought {
    fn pass(&mut self, thinking: Ns, computing: Ns, waiting: Ns) {
        self.thinking = self.thinking.saturating_add(thinking);
        self.computing = self.computing.saturating_add(computing);
        self.waiting = self.waiting.saturating_add(waiting);
        if self.thinking.saturating_add(self.computing) > LATELY {
            (self.thinking, self.computing, self.waiting) = (self.thinking / 2, self.computing / 2, self.waiting / 2);
        }
    }

    /// In thousandths of alone, as far as waiting tells.
    fn speed(&self) -> u64 {
        let alone = self.thinking.saturating_add(self.computing);
        alone.saturating_mul(1000) / alone.saturating_add(self.waiting).max(1)
    }

    /// The part of its time for which it would keep a card busy, in thousandths.
    pub(crate) fn demand(&self) -> u64 {
        let all = self.thinking.saturating_add(self.computing);
        if all < LATELY / 4 { 1000 } else { self.computing.saturating_mul(1000) / all }
    }

    pub(crate) fn mostly(&self) -> bool {
        self.thinking > self.computing
    }
}

/// One or several cards with the tenants that share them.
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) tuning: Tuning,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) lanes: Vec<Lane>,
    /// Lanes by card.
    pub(crate) cards: Vec<Vec<usize>>,
    pub(crate) books: Vec<Books>,
    /// Whether there is room for all on a card.
    pub(crate) slack: Vec<Slack>,
    /// When several last wanted a card.
    pub(crate) contended_at: Vec<Option<Ns>>,
    /// How far virtual time has come, for those with a request and for those without: whoever joins begins here.
    pub(crate) clock: [i64; 2],
    pub(crate) last: Option<Ns>,
}

impl Domain {
    /// A domain of `cards` cards with nobody on them.
    pub fn new(cards: usize, tuning: Tuning) -> Domain {
        Domain {
            tuning,
            tenants: Vec::new(),
            lanes: Vec::new(),
            cards: alloc::vec![Vec::new(); cards],
            books: alloc::vec![Books::default(); cards],
            slack: alloc::vec![Slack::default(); cards],
            contended_at: alloc::vec![None; cards],
            clock: [0; 2],
            last: None,
        }
    }

    /// A new tenant on `cards`; its lanes are the next ones, in that order. Its gates are open.
    pub fn add(&mut self, shares: Shares, cards: &[usize]) -> TenantId {
        let id = self.tenants.len();
        let mut lanes = Vec::with_capacity(cards.len());
        for &device in cards {
            let lane = self.lanes.len();
            let Some(card) = self.cards.get_mut(device) else { continue };
            card.push(lane);
            self.lanes.push(Lane::new(id, device));
            lanes.push(lane);
        }
        let virt = self.clock[usize::from(shares.request > 0)];
        self.tenants.push(Tenant {
            shares,
            lanes,
            bucket: Bucket::new(shares.limit, self.tuning.period),
            virt,
            owed: 0,
            owner: false,
            guest: false,
            turn_given: 0,
            turn_began: 0,
            done_before: 0,
            waits_for: None,
            turns: 0,
            ready_since: None,
            last_work: None,
            last_full: 0,
            last_moved: 0,
            out_since: None,
            gap: 0,
            wants: false,
            ready: false,
            pressing: false,
            unhurried: false,
            gone: false,
            grievance: 0,
            thought: Thought::default(),
        });
        TenantId(id as u32)
    }

    /// Changes a tenant's shares while it runs. How far it is ahead or behind, in GPU time, stays.
    pub fn set_shares(&mut self, id: TenantId, shares: Shares) {
        let clock = self.clock[usize::from(shares.request > 0)];
        let Some(tenant) = self.tenants.get_mut(id.0 as usize).filter(|tenant| tenant.shares != shares) else { return };
        if (tenant.shares.request > 0) == (shares.request > 0) {
            let lead = tenant.virt.saturating_sub(clock);
            let (old, new) = (i128::from(weight(tenant.shares)), i128::from(weight(shares)));
            let lead = i64::try_from(i128::from(lead) * old / new).unwrap_or(0);
            tenant.virt = clock.saturating_add(lead);
        } else {
            // Time of the others is not comparable.
            (tenant.virt, tenant.owed) = (clock, 0);
        }
        tenant.bucket.set_limit(shares.limit, self.tuning.period);
        tenant.shares = shares;
        for &lane in &tenant.lanes {
            self.slack[self.lanes[lane].device].ask_again();
        }
    }

    /// What a tenant may use.
    pub fn shares(&self, id: TenantId) -> Option<Shares> {
        self.tenants.get(id.0 as usize).map(|tenant| tenant.shares)
    }

    /// A tenant is gone; its lanes stay, closed to everybody, until the domain is made anew.
    pub fn remove(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id.0 as usize) else { return };
        (tenant.gone, tenant.owner, tenant.wants, tenant.ready) = (true, false, false, false);
        for &lane in &tenant.lanes {
            self.lanes[lane].seen = Seen::default();
            self.lanes[lane].account.in_flight = 0;
        }
    }

    /// Takes a look: `seen` has one entry per lane, `now` never goes back.
    pub fn step(&mut self, now: Ns, seen: &[Seen]) -> Outcome {
        let elapsed = self.last.replace(now).map(|last| now.saturating_sub(last)).filter(|time| *time <= ABSENT);
        if seen.len() == self.lanes.len() {
            if elapsed.is_none() {
                // The first look, or the first after the arbiter was stopped: what happened before, nobody saw and nobody pays.
                for (lane, seen) in self.lanes.iter_mut().zip(seen) {
                    lane.seen = *seen;
                }
            }
            self.book(now, elapsed.unwrap_or(0), seen);
        }
        turn::decide(self, now);
        pace::set_chunks(self, now);
        Outcome { next: pace::next_look(self, now), contended: turn::contended(self) }
    }

    fn book(&mut self, now: Ns, elapsed: Ns, seen: &[Seen]) {
        for card in 0..self.cards.len() {
            self.books[card].pass(&mut self.lanes, &self.cards[card], seen, elapsed, 4 * self.tuning.tick);
        }
        self.charge_who_kept_a_card(elapsed);
        for (lane, &now_seen) in self.lanes.iter_mut().zip(seen) {
            if !lane.open && lane.has_work() {
                lane.throttled = lane.throttled.saturating_add(elapsed);
            }
            let done = now_seen.completed.wrapping_sub(lane.seen.completed);
            if done > 0 && elapsed <= 4 * self.tuning.tick {
                lane.seen_units = done.max(lane.seen_units - lane.seen_units / 8);
            }
            let moved = now_seen.completed != lane.seen.completed || now_seen.submitted != lane.seen.submitted;
            lane.still = if moved { 0 } else { lane.still.saturating_add(if lane.open { elapsed } else { 0 }) };
            lane.as_is = lane.as_is.saturating_add(elapsed);
            let submitted = now_seen.submitted != lane.seen.submitted;
            lane.silent = if submitted { 0 } else { lane.silent.saturating_add(elapsed) };
            lane.watch_streams(now_seen.streams, elapsed);
            lane.watch_pace(now_seen.submitted.wrapping_sub(lane.seen.submitted), elapsed);
            let came = u64::from(now_seen.submitted.wrapping_sub(lane.seen.submitted));
            let takes = lane.account.cost.get().unwrap_or(0).saturating_mul(came);
            let to_do = lane.left_if_alone.saturating_add(takes);
            lane.done_if_alone = to_do.min(elapsed);
            lane.left_if_alone = to_do - lane.done_if_alone;
            lane.seen = now_seen;
        }
        for tenant in self.tenants.iter_mut().filter(|t| !t.gone) {
            let mut fresh = 0u64;
            for &lane in &tenant.lanes {
                fresh = fresh.max(core::mem::take(&mut self.lanes[lane].account.fresh));
            }
            // Held together, charged together, for the busiest of its cards: a limit holds on each of them, also for a tenant that
            // leaves the others idle.
            // Waiting hurts a program that is itself held up by it, and not one that goes on submitting.
            let lanes = || tenant.lanes.iter().map(|&lane| &self.lanes[lane]);
            let held_up = tenant.bucket.allows() && lanes().any(|l| l.is_held_up(self.slack[l.device].is_there()));
            let computes = lanes().map(|lane| lane.done_if_alone).max().unwrap_or(0);
            let at_work = tenant.last_work.is_some_and(|last| now.saturating_sub(last) < self.tuning.pause);
            // That it waits is seen after a while, which was waiting, too.
            let unseen = lanes().map(|lane| lane.waited_unseen(elapsed)).max().unwrap_or(0);
            let lost = if held_up { elapsed.saturating_add(unseen) - computes } else { 0 };
            let beside = lanes().all(|lane| {
                let someone_is_timed = || self.cards[lane.device].iter().any(|&i| self.lanes[i].streams_lately() == 1);
                self.slack[lane.device].is_there() && someone_is_timed()
            });
            let time = Time { passed: elapsed, had: fresh, beside, held_up, lost };
            if at_work && tenant.bucket.allows() {
                tenant.thought.pass(elapsed.saturating_sub(computes + lost), computes, lost);
            }
            if at_work {
                tenant.aggrieve(&time, self.tuning.credit);
            }
            tenant.bucket.pass(elapsed, fresh);
            let virt = fresh.saturating_mul(1000) / u64::from(weight(tenant.shares));
            tenant.virt = tenant.virt.saturating_add(i64::try_from(virt).unwrap_or(i64::MAX));
        }
        turn::look(self, now);
    }

    /// Who keeps a card through its gap, because it will be back sooner than anybody else could use it, has that time, too.
    fn charge_who_kept_a_card(&mut self, elapsed: Ns) {
        for card in 0..self.cards.len() {
            let rests = self.cards[card].iter().all(|&lane| !self.lanes[lane].works);
            if !rests || turn::wanting(self, card) < 2 {
                continue;
            }
            let keeps = |lane: &&usize| {
                let tenant = &self.tenants[self.lanes[**lane].tenant];
                tenant.owner && tenant.soon_back().is_some()
            };
            if let Some(&lane) = self.cards[card].iter().find(keeps) {
                self.books[card].charge_rest(&mut self.lanes[lane], elapsed);
            }
        }
    }

    /// The virtual time of the tenant that is furthest behind among those who want a card.
    pub(crate) fn floor(&self, entitled: bool) -> Option<i64> {
        let same = |t: &&Tenant| t.wants && !t.gone && (t.shares.request > 0) == entitled;
        self.tenants.iter().filter(same).map(|t| t.virt).min()
    }

    /// What to do now, lane by lane.
    pub fn directives(&self) -> impl Iterator<Item = Directive> + '_ {
        self.lanes.iter().enumerate().map(|(i, lane)| Directive {
            lane: LaneId(i),
            open: lane.open,
            chunk_units: lane.chunk_units,
            unit_ns: lane.account.cost.get().map_or(0, |ns| u32::try_from(ns).unwrap_or(u32::MAX)),
            charged: lane.account.charged,
            throttled: lane.throttled,
            turns: self.tenants[lane.tenant].turns,
        })
    }

    /// Whether everybody may use a card at once, because it rests between their work.
    pub fn has_room(&self, card: usize) -> bool {
        self.slack.get(card).is_some_and(Slack::is_there)
    }

    /// Time a card worked, as charged to its tenants.
    pub fn busy(&self, card: usize) -> Ns {
        self.books.get(card).map_or(0, |b| b.busy)
    }
}

/// What virtual time is divided by. Those with no request share their gaps equally.
pub(crate) fn weight(shares: Shares) -> u32 {
    if shares.request == 0 { 100 } else { shares.request }
}

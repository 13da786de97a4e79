//! Who owns a card.

use alloc::vec::Vec;

use crate::domain::{Domain, Tenant};
use crate::lane::Lane;
use crate::slack::Load;
use crate::{Ns, domain};

/// A tenant that missed more than this is protected from guests.
pub(crate) const GRIEVED: i64 = 2_000_000;

/// A measurement so long ago is of what the program did before, and the next one is believed.
const OLD: Ns = 200_000_000;
/// To go over to another program and back takes a card this long.
const THERE_AND_BACK: Ns = 300_000;
/// A gap of this length is as good as any longer one.
const LONG_GAP: Ns = 2_000_000;

/// Who alone would keep a card busy for less than this part of the time, in thousandths, mostly thinks ...
const THINKS: u64 = 500;
/// ... or still does.
const THINKS_STILL: u64 = 750;

/// A guest's first chunk is waited for, if it takes no longer than this.
const FIRST_CHUNK: Ns = 1_000_000;
/// So long a turn waits for what is left of the one before, and for two of its chunks where those are long.
const RESIDUE: Ns = 2_000_000;
const LONG_RESIDUE: Ns = 12_000_000;

impl Tenant {
    /// How long to wait for it when it has run out of work, if it is not worth the while to give the card to somebody else.
    pub(crate) fn soon_back(&self) -> Option<Ns> {
        (!self.thought.mostly() && self.gap > 0 && self.gap < THERE_AND_BACK)
            .then(|| (2 * self.gap).min(THERE_AND_BACK))
    }
}

/// Brings up to date who wants a card, and holds virtual times within their bounds.
pub(crate) fn look(domain: &mut Domain, now: Ns) {
    let tuning = domain.tuning;
    for lane in &mut domain.lanes {
        if lane.measured != lane.account.cost.measured {
            (lane.measured, lane.measured_at) = (lane.account.cost.measured, now);
        }
        lane.account.cost.old = now.saturating_sub(lane.measured_at) > OLD;
    }
    for i in 0..domain.tenants.len() {
        // A card finishes the chunk before it looks at a gate: till then the turn has not begun.
        let Some(before) = domain.tenants[i].waits_for else { continue };
        let left = domain.tenants[before].lanes.iter().any(|&lane| domain.lanes[lane].account.in_flight > 0);
        let longest = chunk(domain, &domain.tenants[before]).saturating_mul(2).clamp(RESIDUE, LONG_RESIDUE);
        let tenant = &mut domain.tenants[i];
        if tenant.owner && left && now.saturating_sub(tenant.turn_given) < longest {
            tenant.turn_began = now;
        } else {
            tenant.waits_for = None;
        }
    }
    for tenant in domain.tenants.iter_mut().filter(|t| !t.gone) {
        if tenant.owner && tenant.lanes.iter().any(|&lane| !domain.lanes[lane].open) {
            // It has the card when a long kernel of somebody else's has ended.
            (tenant.turn_began, tenant.last_moved) = (now, now);
        }
        let (mut work, mut full, mut wait) = (false, false, false);
        for &lane in &tenant.lanes {
            let lane = &mut domain.lanes[lane];
            work |= lane.has_work();
            full |= lane.is_full();
            wait |= lane.runs_on(tuning.turn);
            wait |= lane.gathers(now);
            if lane.still == 0 {
                tenant.last_moved = now;
            }
        }
        if work {
            tenant.last_work = Some(now);
            tenant.ready_since.get_or_insert(now);
            if let Some(since) = tenant.out_since.take() {
                tenant.gap = (3 * tenant.gap + now.saturating_sub(since).min(LONG_GAP)) / 4;
            }
        } else {
            tenant.ready_since = None;
            tenant.last_moved = now;
            tenant.out_since.get_or_insert(now);
        }
        // Who comes off badly and is at its work keeps the card while it fills a chunk, too, however slowly.
        let at_it = tenant.lanes.iter().any(|&lane| domain.lanes[lane].is_there());
        if full || (tenant.owner && tenant.grievance > GRIEVED && at_it) {
            tenant.last_full = now;
        }
        let since = tenant.ready_since.map_or(0, |since| now.saturating_sub(since));
        let hold = if tenant.owner && tenant.grievance > GRIEVED { tuning.anticipation } else { tuning.hold };
        let hold = hold.max(tenant.soon_back().unwrap_or(0));
        tenant.wants = tenant.last_work.is_some_and(|last| now.saturating_sub(last) < hold);
        tenant.ready = (full || (work && since >= tuning.ripe)) && !wait;
        let launches = |&lane: &usize| {
            let lane = &domain.lanes[lane];
            !lane.has_work() || (lane.goes_on_launching() && lane.queued_time() <= FIRST_CHUNK)
        };
        // All that is launched in one turn costs one change, and not two.
        tenant.unhurried = tenant.is_at_ease() && tenant.lanes.iter().all(launches);
        // Nobody waits for a chunk that is still being filled; the longer it fills, the fewer switches.
        tenant.pressing = tenant.ready && !tenant.unhurried && (full || since >= tuning.ripe.saturating_mul(5));
    }
    for entitled in [true, false] {
        let floor = domain.floor(entitled).unwrap_or(domain.clock[usize::from(entitled)]);
        domain.clock[usize::from(entitled)] = floor;
        let second = second_furthest_behind(domain, entitled);
        for tenant in domain.tenants.iter_mut().filter(|t| !t.gone && (t.shares.request > 0) == entitled) {
            let debt = tuning.debt.saturating_mul(1000) / u64::from(domain::weight(tenant.shares));
            let most = floor.saturating_add(i64::try_from(debt).unwrap_or(i64::MAX));
            tenant.virt = tenant.virt.min(most);
            if tenant.wants {
                // Behind everybody else by so much: what it keeps if it pauses now.
                tenant.owed = second.map_or(tenant.owed, |second| second.saturating_sub(tenant.virt).max(0));
            } else {
                let paused = tenant.last_work.is_some_and(|last| now.saturating_sub(last) < tuning.pause);
                tenant.owed = if paused { tenant.owed } else { 0 };
                let credit = i64::try_from(tuning.credit).unwrap_or(i64::MAX).max(tenant.owed);
                tenant.virt = tenant.virt.max(floor.saturating_sub(credit));
            }
        }
    }
}

/// The second lowest virtual time among those who want a card.
fn second_furthest_behind(domain: &Domain, entitled: bool) -> Option<i64> {
    let same = |t: &&Tenant| t.wants && !t.gone && (t.shares.request > 0) == entitled;
    let (mut least, mut second) = (None, None);
    for virt in domain.tenants.iter().filter(same).map(|t| t.virt) {
        if least.is_none_or(|least| virt < least) {
            second = least.replace(virt);
        } else if second.is_none_or(|second| virt < second) {
            second = Some(virt);
        }
    }
    second
}

/// Moves ownership and sets the gates.
pub(crate) fn decide(domain: &mut Domain, now: Ns) {
    let contended: Vec<bool> = (0..domain.cards.len()).map(|card| wanting(domain, card) > 1).collect();
    for (at, _) in domain.contended_at.iter_mut().zip(&contended).filter(|(_, c)| **c) {
        *at = Some(now);
    }
    for (card, &contended) in contended.iter().enumerate() {
        let lanes = || domain.cards[card].iter().map(|&lane| &domain.lanes[lane]);
        let load = Load {
            contended,
            busy: domain.books[card].so_far(),
            queued: lanes().map(Lane::queued_time).sum(),
            full: lanes().any(|lane| lane.open && lane.seen.queued > 0),
            broad: lanes().filter(|lane| lane.has_work()).all(|lane| {
                // Who mostly thinks is bound by submitting, too; in company its work seems to be more than it is.
                let most = if domain.slack[card].is_there() { THINKS_STILL } else { THINKS };
                lane.seen.is_broad() || domain.tenants[lane.tenant].thought.demand() < most
            }),
            demand: lanes()
                .map(|lane| &domain.tenants[lane.tenant])
                .filter(|tenant| tenant.wants && !tenant.gone)
                .map(|tenant| tenant.thought.demand())
                .sum(),
            missed: lanes().map(|lane| missed(domain, &domain.tenants[lane.tenant], now)).max().unwrap_or(0),
        };
        let done = lanes().map(|lane| (lane.seen.completed, lane.account.cost.get().unwrap_or(0)));
        domain.slack[card].look(now, domain.tuning.pause, load, done);
    }
    for i in 0..domain.tenants.len() {
        let tenant = &mut domain.tenants[i];
        let room = tenant.lanes.iter().all(|&lane| domain.slack[domain.lanes[lane].device].is_there());
        if tenant.owner && (tenant.gone || !tenant.wants || !tenant.bucket.allows() || room) {
            tenant.owner = false;
        }
    }
    let mut candidates: Vec<usize> = (0..domain.tenants.len())
        .filter(|&i| {
            let tenant = &domain.tenants[i];
            let full = tenant.lanes.iter().any(|&lane| !domain.slack[domain.lanes[lane].device].is_there());
            !tenant.gone && !tenant.owner && tenant.ready && tenant.bucket.allows() && full
        })
        .collect();
    candidates.sort_by_key(|&i| rank(domain, i));
    for candidate in candidates {
        if let Some(hosts) = displaced(domain, candidate, now) {
            let guest = is_ahead_of_somebody(domain, candidate, now);
            for &host in &hosts {
                domain.tenants[host].owner = false;
            }
            let done = completed(domain, candidate);
            let tenant = &mut domain.tenants[candidate];
            (tenant.owner, tenant.guest, tenant.turn_began, tenant.turn_given) = (true, guest, now, now);
            (tenant.done_before, tenant.waits_for) = (done, hosts.first().copied());
            (tenant.last_full, tenant.last_moved) = (now, now);
            tenant.turns += 1;
        }
    }
    let timed = timed_for_their_limits(domain, &contended, now);
    let open: Vec<bool> = domain
        .lanes
        .iter()
        .map(|lane| {
            let tenant = &domain.tenants[lane.tenant];
            let cards = || tenant.lanes.iter().map(|&lane| domain.lanes[lane].device);
            let must_own = cards().any(|card| contended[card] && !domain.slack[card].is_there());
            let yields = tenant.grievance <= 0 && cards().any(|card| contended[card] && domain.slack[card].yields());
            let open = !tenant.gone && tenant.bucket.allows() && (tenant.owner || !must_own) && !yields;
            open && !timed[lane.tenant]
        })
        .collect();
    set_gates(domain, &open);
}

/// First those that close: whoever comes next begins when a long kernel that runs on behind them has ended. A card would do a slice of
/// the one and a slice of the other, and lose a millisecond over it that neither of them had.
fn set_gates(domain: &mut Domain, open: &[bool]) {
    for (lane, _) in domain.lanes.iter_mut().zip(open).filter(|(_, open)| !**open) {
        lane.set_gate(false);
    }
    let is_taken: Vec<bool> =
        domain.cards.iter().map(|lanes| lanes.iter().any(|&lane| domain.lanes[lane].ends_a_long_kernel())).collect();
    for i in (0..domain.lanes.len()).filter(|&i| open[i]) {
        let lanes = || domain.tenants[domain.lanes[i].tenant].lanes.iter().map(|&lane| &domain.lanes[lane]);
        // A kernel of its own that runs on is no reason to wait.
        let waits = lanes().any(|lane| !lane.open && is_taken[lane.device] && !lane.ends_a_long_kernel());
        domain.lanes[i].set_gate(!waits);
    }
}

/// Tenants with a limit and their cards to themselves whose gates close for a moment, so that their work can be timed.
fn timed_for_their_limits(domain: &mut Domain, contended: &[bool], now: Ns) -> Vec<bool> {
    let mut timed = Vec::with_capacity(domain.tenants.len());
    for tenant in &domain.tenants {
        let mut due = false;
        if tenant.bucket.is_limited() && tenant.bucket.allows() && !tenant.gone {
            for &lane in &tenant.lanes {
                let lane = &mut domain.lanes[lane];
                due |= !contended[lane.device] && lane.is_to_be_timed_for_its_limit(now);
            }
        }
        timed.push(due);
    }
    timed
}

/// What a tenant has missed of its promise and could have now, if others waited: who rests, has reached its limit or does not move for
/// other reasons keeps nobody waiting.
fn missed(domain: &Domain, tenant: &Tenant, now: Ns) -> Ns {
    let moves = now.saturating_sub(tenant.last_moved) < patience(domain, tenant);
    let could = tenant.wants && !tenant.gone && tenant.bucket.allows() && moves;
    if could { tenant.grievance.max(0).unsigned_abs() } else { 0 }
}

/// Order of service: who has a request before who has none, then who is furthest behind.
fn rank(domain: &Domain, i: usize) -> (bool, i64) {
    let tenant = &domain.tenants[i];
    (tenant.shares.request == 0, virt(domain, tenant))
}

/// Virtual time including what is in the pots.
fn virt(domain: &Domain, tenant: &Tenant) -> i64 {
    let pending: u64 =
        tenant.lanes.iter().map(|&lane| domain.books[domain.lanes[lane].device].pending(&domain.lanes[lane])).sum();
    let pending = pending / (tenant.lanes.len().max(1) as u64);
    let pending = pending.saturating_mul(1000) / u64::from(domain::weight(tenant.shares));
    tenant.virt.saturating_add(i64::try_from(pending).unwrap_or(i64::MAX))
}

/// Would it run ahead of its share, in the gap of somebody who is there or only pauses?
fn is_ahead_of_somebody(domain: &Domain, candidate: usize, now: Ns) -> bool {
    let pauses = |t: &Tenant| t.last_work.is_some_and(|last| now.saturating_sub(last) < domain.tuning.pause);
    on_its_cards(domain, candidate).map(|lane| domain.lanes[lane].tenant).any(|other| {
        let there = &domain.tenants[other];
        other != candidate
            && !there.gone
            && pauses(there)
            && there.bucket.allows()
            && rank(domain, other) < rank(domain, candidate)
    })
}

/// All lanes of the cards that a tenant holds.
fn on_its_cards(domain: &Domain, tenant: usize) -> impl Iterator<Item = usize> + '_ {
    let cards = domain.tenants[tenant].lanes.iter().map(|&lane| domain.lanes[lane].device);
    cards.flat_map(|card| domain.cards[card].iter().copied())
}

/// Units a tenant completed in all; wraps round.
fn completed(domain: &Domain, tenant: usize) -> u32 {
    domain.tenants[tenant].lanes.iter().fold(0, |sum, &lane| domain.lanes[lane].seen.completed.wrapping_add(sum))
}

/// Whom the candidate would displace, if everybody who owns one of its cards may be displaced by it.
fn displaced(domain: &Domain, candidate: usize, now: Ns) -> Option<Vec<usize>> {
    let mut hosts = Vec::new();
    for &lane in &domain.tenants[candidate].lanes {
        let card = domain.lanes[lane].device;
        let owner = domain.cards[card].iter().map(|&l| domain.lanes[l].tenant).find(|&t| domain.tenants[t].owner);
        match owner {
            None => {}
            Some(owner) if hosts.contains(&owner) => {}
            Some(owner) if gives_way(domain, owner, candidate, now) => hosts.push(owner),
            Some(_) => return None,
        }
    }
    Some(hosts)
}

fn gives_way(domain: &Domain, owner: usize, candidate: usize, now: Ns) -> bool {
    let tuning = &domain.tuning;
    let (host, next) = (&domain.tenants[owner], &domain.tenants[candidate]);
    let turn = now.saturating_sub(host.turn_began);
    let ahead = rank(domain, candidate) > rank(domain, owner) || next.is_fast_enough();
    let lead = virt(domain, host).saturating_sub(virt(domain, next));
    let due = lead > i64::try_from(tuning.lead).unwrap_or(i64::MAX) && turn >= shortest_turn(domain, host);
    // A host that comes off badly by its guests keeps the card through its short gaps. So does one that is back before the card has
    // gone over to somebody else and back, unless that one's turn has come.
    let drain = match host.soon_back() {
        _ if ahead && host.grievance > GRIEVED && host.gap < tuning.anticipation => tuning.anticipation,
        Some(soon) if !due || next.unhurried => soon,
        _ => tuning.drain,
    };
    let may_hurry = drain == tuning.drain && next.shares.request > 0 && !next.thought.mostly();
    let rests = may_hurry && is_about_to_rest(domain, host);
    // Who mostly thinks needs the card for a moment only, and is slow for as long as it waits.
    let keeps = ahead && !next.thought.mostly() && submits_slowly(domain, host);
    let drained = (now.saturating_sub(host.last_full) >= drain || rests) && !keeps;
    // What is left of the turn before may have to wait for the end of this one.
    let served = completed(domain, owner) != host.done_before;
    let turn_so_far = if served && host.thought.mostly() { now.saturating_sub(host.turn_given) } else { turn };
    if drained && turn_so_far >= tuning.ripe {
        return true;
    }
    if now.saturating_sub(host.last_moved) >= patience(domain, host) {
        return true;
    }
    if !next.pressing {
        return false;
    }
    // Who is faster than it was promised waits for a gap of who is not.
    if host.grievance > GRIEVED && next.is_fast_enough() {
        return false;
    }
    let (host_class, class) = (host.shares.request == 0, next.shares.request == 0);
    if host_class != class {
        return host_class && turn >= tuning.guest_turn;
    }
    if host.guest {
        // Sent off before its first chunk is through, it would have kept the card from others for nothing.
        let short = chunk(domain, host) <= FIRST_CHUNK;
        let first = if short && !served { chunk(domain, host) } else { 0 };
        // Who only ever has a chunk at a time is never timed from end to end, and pays what nobody knows.
        let untimed = |lane: &usize| {
            let lane = &domain.lanes[*lane];
            lane.is_stale(now) || lane.account.cost.rough
        };
        let shortest = if short && host.lanes.iter().any(untimed) {
            shortest_turn(domain, host)
        } else {
            tuning.guest_turn.saturating_add(first)
        };
        lead > 0 && turn >= shortest
    } else {
        due
    }
}

/// It works in several streams, so that it was kept back on the CPU and came to the card without a queue, and goes on submitting: where
/// that is what it is bound by it never has a whole chunk for long, and would be sent off for a gap between any two.
fn submits_slowly(domain: &Domain, tenant: &Tenant) -> bool {
    tenant.lanes.iter().map(|&lane| &domain.lanes[lane]).any(|lane| lane.seen.is_broad() && lane.is_there())
}

/// It computes, has submitted nothing for some chunks, and waits for the last one, a short one, which runs on when the gate closes: it
/// will be away for a moment, and the card need not be.
fn is_about_to_rest(domain: &Domain, tenant: &Tenant) -> bool {
    let waits = |lane: &Lane| {
        let last = lane.seen.filling == 0 && lane.seen.queued <= lane.chunk_units && lane.queued_time() <= FIRST_CHUNK;
        last && lane.silent > lane.chunk_time().saturating_mul(2)
    };
    !tenant.thought.mostly() && tenant.lanes.iter().all(|&lane| waits(&domain.lanes[lane]))
}

/// How long an owner may show no progress: four chunks, and never less than [`Tuning::stuck`](crate::Tuning::stuck).
fn patience(domain: &Domain, tenant: &Tenant) -> Ns {
    chunk(domain, tenant).saturating_mul(4).max(domain.tuning.stuck)
}

/// An entitled owner with work keeps the card at least so long: some chunks, so that most of the turn is its own.
fn shortest_turn(domain: &Domain, tenant: &Tenant) -> Ns {
    let tuning = &domain.tuning;
    chunk(domain, tenant).saturating_mul(4).clamp(tuning.turn, tuning.turn.saturating_mul(8))
}

/// What a tenant's chunk takes.
fn chunk(domain: &Domain, tenant: &Tenant) -> Ns {
    tenant.lanes.iter().map(|&lane| domain.lanes[lane].chunk_time()).max().unwrap_or(0)
}

/// How many tenants want a card.
pub(crate) fn wanting(domain: &Domain, card: usize) -> usize {
    domain.cards[card].iter().filter(|&&lane| domain.tenants[domain.lanes[lane].tenant].wants).count()
}

/// Do several tenants want a card?
pub(crate) fn contended(domain: &Domain) -> bool {
    (0..domain.cards.len()).any(|card| wanting(domain, card) > 1)
}

//! How large chunks should be, and when to look again.

use crate::Ns;
use crate::domain::Domain;
use crate::lane::{Lane, SPAN};
use crate::turn;

/// How long a measured cost is believed in. After that chunks become finer, and a tenant is made to gather a few of them, so that
/// one can be timed from end to end.
const STALE: Ns = 1_000_000_000;
/// The same for a tenant with a limit that has its card to itself.
const LIMIT_STALE: Ns = 250_000_000;
/// For how long chunks are finer then, each time.
const TIMING: Ns = 100_000_000;
/// How long after the last contention chunks stay fine.
const REMEMBERED: Ns = 1_000_000_000;
/// How long after the last contention looks stay close.
const ALERT: Ns = 20_000_000;
/// How long it gathers, at most.
const GATHERING: Ns = 3_000_000;

impl Lane {
    /// Was what its work costs last measured too long ago?
    pub(crate) fn is_stale(&self, now: Ns) -> bool {
        now.saturating_sub(self.measured_at) > STALE
    }

    /// Should its chunks be finer, so that it can be timed? Who cannot be timed even so is not kept at them: they cost.
    fn should_be_timed(&self, now: Ns) -> bool {
        self.is_stale(now) && now.saturating_sub(self.measured_at) % STALE < TIMING
    }

    /// Should it not have a turn yet, because some chunks are to run one after the other in it?
    pub(crate) fn gathers(&mut self, now: Ns) -> bool {
        self.is_stale(now) && !self.open && self.gathers_again_after(STALE, now)
    }

    /// Should its gate close for a moment, though nobody waits? A program that is slower at launching than the card is at its work never
    /// has two chunks one after the other, and a limit is held by what they cost.
    pub(crate) fn is_to_be_timed_for_its_limit(&mut self, now: Ns) -> bool {
        let known = now.saturating_sub(self.measured_at) < LIMIT_STALE;
        !known && self.account.cost.get().is_some() && self.has_work() && self.gathers_again_after(LIMIT_STALE, now)
    }

    fn gathers_again_after(&mut self, pause: Ns, now: Ns) -> bool {
        if self.seen.queued >= self.chunk_units.saturating_mul(3) {
            return false;
        }
        match self.gathered_at {
            Some(at) if now.saturating_sub(at) < GATHERING => true,
            Some(at) if now.saturating_sub(at) < pause => false,
            _ => {
                self.gathered_at = Some(now);
                true
            }
        }
    }
}

/// Whoever has so many times less than its largest neighbour ...
const SMALL: u64 = 3;
/// ... gets smaller chunks, down to this part of the usual ones.
const FINEST: u64 = 4;

/// Where there is room for all chunks are so many times the usual ones.
const COARSE: u64 = 4;

/// Most units in a chunk: a program whose kernels suddenly take a thousand times longer is still taken back within reason.
const MOST_UNITS: u64 = 1 << 14;

/// Who has a small part of a card beside somebody with a large one gets it in small pieces, in thousandths of a chunk: in its
/// neighbour's gaps it takes a chunk at a time, and chunks longer than the gaps would be more than its part.
fn part_of_chunk(domain: &Domain, card: usize, request: u32) -> Ns {
    let here = domain.cards[card].iter().map(|&lane| &domain.tenants[domain.lanes[lane].tenant]);
    let most = here.filter(|t| t.wants && !t.gone).map(|t| t.shares.request).max().unwrap_or(0);
    (u64::from(request) * 1000 * SMALL / u64::from(most.max(1))).clamp(1000 / FINEST, 1000)
}

pub(crate) fn set_chunks(domain: &mut Domain, now: Ns) {
    for i in 0..domain.lanes.len() {
        let tenant = &domain.tenants[domain.lanes[i].tenant];
        let card = domain.lanes[i].device;
        // Neighbours come and go; chunks that follow every pause of theirs are always of the wrong size.
        let others = domain.contended_at[card].is_some_and(|at| now.saturating_sub(at) < REMEMBERED);
        let limited = tenant.bucket.is_limited();
        let fine = others || limited;
        let small = if others { part_of_chunk(domain, card, tenant.shares.request) } else { 1000 };
        let lane = &mut domain.lanes[i];
        let Some(cost) = lane.account.cost.get() else { continue };
        let target = if fine { domain.tuning.chunk } else { domain.tuning.sparse_chunk };
        let target = match (others, domain.slack[card].is_there()) {
            // Nobody waits for a turn, costs are not measured, and programs that are held up by launching feel every boundary.
            (true, true) => target * COARSE,
            (true, false) if lane.should_be_timed(now) => target / 4,
            _ => target * small / 1000,
        };
        // Chunks of several streams are in flight together.
        let target = target / u64::from(lane.seen.streams.max(1));
        let mut units = ((target + cost / 2) / cost).clamp(1, MOST_UNITS) as u32;
        if !others && limited && lane.submits > 0 {
            // A chunk that is filled more slowly than the card works hides how long the card works at it.
            let filled = u64::from(lane.submits) * target / SPAN;
            units = units.min(u32::try_from(filled).unwrap_or(u32::MAX).max(1));
        }
        // A hint that trembles costs the library a cache line each time and helps nobody.
        let near = lane.chunk_units.abs_diff(units) <= units / 8;
        if lane.chunk_units == 0 || !near {
            (lane.older_units, lane.recut) = (lane.largest_chunk(), lane.seen.submitted);
            lane.chunk_units = units;
        }
    }
}

pub(crate) fn next_look(domain: &Domain, now: Ns) -> Ns {
    let tuning = &domain.tuning;
    if turn::contended(domain) {
        return tuning.tick;
    }
    let mut next = tuning.idle_tick;
    if domain.contended_at.iter().flatten().any(|&at| now.saturating_sub(at) < ALERT) {
        next = next.min(tuning.tick.saturating_mul(2));
    }
    for tenant in domain.tenants.iter().filter(|t| !t.gone) {
        // A program that thinks for a moment will be back.
        if tenant.last_work.is_none_or(|last| now.saturating_sub(last) > ALERT) {
            continue;
        }
        next = next.min(tuning.alone_tick);
        if let Some(change) = tenant.bucket.next_change() {
            let runs = tenant.lanes.iter().any(|&l| domain.lanes[l].open || domain.lanes[l].account.in_flight > 0);
            next = next.min(if runs { tuning.limited_tick } else { change.max(tuning.tick) });
        }
    }
    next
}

//! One tenant on one card: what is seen of it, and what that says about its program.

use crate::charge::Account;
use crate::{Ns, Seen};

/// A program that submits nothing for so long waits for the card.
const HELD_UP: Ns = 50_000;
/// So does one whose queue takes this long: it is held up when it comes to its end.
const FAR_BEHIND: Ns = 1_000_000;

/// A card leaves a program that does not end for others after this time.
pub(crate) const SLICE: Ns = 2_000_000;
/// The end of a kernel is not waited for any longer than this.
const LONGEST_END: Ns = 50_000_000;

/// A program of several streams works in all of them more often than this.
const LATELY: Ns = 500_000_000;

/// One tenant on one card.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) tenant: usize,
    pub(crate) device: usize,
    pub(crate) seen: Seen,
    pub(crate) account: Account,
    /// The gate, as last set.
    pub(crate) open: bool,
    /// Had work on the card in the last stretch.
    pub(crate) works: bool,
    /// Time the gate was open without anything moving.
    pub(crate) still: Ns,
    /// Time since it last submitted anything.
    pub(crate) silent: Ns,
    /// Time since its gate opened or closed.
    pub(crate) as_is: Ns,
    /// Most streams it worked in lately, and the time since it did.
    widest: (u32, Ns),
    /// What it would have done in the last stretch and what it would have left to do, had it had the card to itself.
    pub(crate) done_if_alone: Ns,
    pub(crate) left_if_alone: Ns,
    pub(crate) throttled: Ns,
    /// Units per chunk, as published.
    pub(crate) chunk_units: u32,
    /// The largest chunk seen lately to end at once: a graph is launched as one, however many units it counts for.
    pub(crate) seen_units: u32,
    /// Units per chunk before the last change, which chunks up to `recut` in the count of units may still have.
    pub(crate) older_units: u32,
    pub(crate) recut: u32,
    /// What it submits in a [`SPAN`] when it is busy, and a span under way: its time, and what it has submitted in it.
    pub(crate) submits: u32,
    pub(crate) span: (Ns, u32),
    /// Firm measurements of its cost when last counted, and when that was.
    pub(crate) measured: u32,
    pub(crate) measured_at: Ns,
    /// When a few chunks were last gathered for a measurement.
    pub(crate) gathered_at: Option<Ns>,
}

/// How fast a program submits is told from spans of this length.
pub(crate) const SPAN: Ns = 4_000_000;

impl Lane {
    /// Of a tenant that has not shown anything yet. Its gate is open.
    pub(crate) fn new(tenant: usize, device: usize) -> Lane {
        Lane {
            tenant,
            device,
            seen: Seen::default(),
            account: Account::default(),
            open: true,
            works: false,
            still: 0,
            silent: 0,
            as_is: 0,
            widest: (0, 0),
            done_if_alone: 0,
            left_if_alone: 0,
            throttled: 0,
            chunk_units: 0,
            seen_units: 0,
            older_units: 0,
            recut: 0,
            submits: 0,
            span: (0, 0),
            measured: 0,
            measured_at: 0,
            gathered_at: None,
        }
    }

    /// The largest chunk that can be in flight.
    pub(crate) fn largest_chunk(&self) -> u32 {
        let older = self.recut.wrapping_sub(self.seen.completed);
        let old_ones_left = older > 0 && older < u32::MAX / 2;
        self.chunk_units.max(self.seen_units).max(if old_ones_left { self.older_units } else { 1 }).max(1)
    }

    /// In so many streams it works, though not at every moment.
    pub(crate) fn streams_lately(&self) -> u32 {
        self.widest.0
    }

    /// Works in so many streams after `elapsed`.
    pub(crate) fn watch_streams(&mut self, streams: u32, elapsed: Ns) {
        let (widest, since) = (self.widest.0, self.widest.1.saturating_add(elapsed));
        self.widest = if streams >= widest || since > LATELY { (streams, 0) } else { (widest, since) };
    }

    /// Submitted so many units in `elapsed`.
    pub(crate) fn watch_pace(&mut self, units: u32, elapsed: Ns) {
        self.span = (self.span.0.saturating_add(elapsed), self.span.1.saturating_add(units));
        if self.span.0 >= SPAN {
            let (time, units) = core::mem::take(&mut self.span);
            let units = (u64::from(units) * SPAN / time) as u32;
            self.submits = units.max(self.submits - self.submits / 8);
        }
    }

    /// What a chunk takes, as far as known.
    pub(crate) fn chunk_time(&self) -> Ns {
        self.account.cost.get().unwrap_or(0).saturating_mul(u64::from(self.chunk_units.max(self.seen_units)))
    }

    /// How long the card would take for what is queued, as far as known.
    pub(crate) fn queued_time(&self) -> Ns {
        self.account.cost.get().unwrap_or(0).saturating_mul(u64::from(self.seen.queued))
    }

    /// What the largest chunk that can be in flight takes, as far as known.
    pub(crate) fn longest_chunk_time(&self) -> Ns {
        self.account.cost.get().unwrap_or(0).saturating_mul(u64::from(self.largest_chunk()))
    }

    /// A kernel that a card would do in several slices runs on behind its closed gate, and should end soon.
    pub(crate) fn ends_a_long_kernel(&self) -> bool {
        let takes = self.account.cost.firm().unwrap_or(0);
        let soon = takes.saturating_sub(self.account.paid) < LONGEST_END;
        let late = self.as_is >= takes.saturating_add(takes / 2).min(LONGEST_END);
        !self.open && self.account.in_flight > 0 && takes > SLICE && soon && !late
    }

    /// A long chunk of it is running behind its closed gate: it needs no turn to go on.
    pub(crate) fn runs_on(&self, long: Ns) -> bool {
        // As long as somebody else's progress shows it: it may also have stopped before its gate, and then it waits for its turn.
        self.account.in_flight > 0 && self.account.seen_running && self.chunk_time() > long && self.left_to_pay() > 0
    }

    /// Work that counts. A chunk that is being filled and has not moved for longer than it can take is done, though nobody said so:
    /// its program does something else and will close it at its next call.
    pub(crate) fn has_work(&self) -> bool {
        self.seen.queued > 0 || (self.seen.filling > 0 && self.still < self.patience())
    }

    /// It has chunks for the card, or one that is large enough to be one: a graph is launched as a whole.
    pub(crate) fn is_full(&self) -> bool {
        let takes = self.account.cost.get().unwrap_or(0).saturating_mul(u64::from(self.seen.filling));
        self.seen.queued > 0 || (self.seen.filling >= self.chunk_units.max(1) && self.still < takes)
    }

    /// Behind its closed gate there is only a chunk that is being filled, and nobody has added to it for longer than it can take: nothing
    /// of it runs.
    pub(crate) fn has_stopped(&self) -> bool {
        !self.open && self.seen.queued == 0 && self.silent >= self.patience()
    }

    /// Its program waits for the card. Beside others (`room`) one that goes on submitting does, too, in the end.
    pub(crate) fn is_held_up(&self, room: bool) -> bool {
        let waits = !self.goes_on_launching() || (room && self.queued_time() > FAR_BEHIND);
        // A program of several streams is kept back before it has closed a chunk.
        let kept_back = !self.open && self.seen.is_broad() && self.has_work();
        (self.seen.queued > 0 || kept_back) && waits
    }

    /// It submitted something a moment ago, and so does not wait for anything yet.
    pub(crate) fn goes_on_launching(&self) -> bool {
        self.silent <= HELD_UP
    }

    /// If it is only now that it is taken to be held up: how long it has been, before the last `elapsed`. A program of several streams
    /// pauses between them, too.
    pub(crate) fn waited_unseen(&self, elapsed: Ns) -> Ns {
        let before = self.silent.saturating_sub(elapsed);
        if before <= HELD_UP && !self.goes_on_launching() && self.streams_lately() < 2 { before } else { 0 }
    }

    fn patience(&self) -> Ns {
        let work = self.account.cost.get().unwrap_or(1_000_000).saturating_mul(u64::from(self.seen.filling));
        work.saturating_mul(4).clamp(2_000_000, 1_000_000_000)
    }
}

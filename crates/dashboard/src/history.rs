//! How the cluster was at regular times, and what it adds up to now.

use std::collections::VecDeque;

use divvy_core::snapshot::Snapshot;
use divvy_core::time::Time;

use crate::board::Used;
use crate::view::{Sample, Totals};

/// Samples kept: a day of minutes.
const KEPT: usize = 1_440;
/// Milliseconds between samples.
const EVERY: u64 = 60_000;

/// What was seen at regular times.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Takes a sample if it is time.
    pub(crate) fn note(&mut self, totals: &Totals, now: Time) -> bool {
        if self.samples.back().is_some_and(|last| now.0 < last.at + EVERY) {
            return false;
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        let part = |part: u64, whole: u64| (part * 1000).checked_div(whole).unwrap_or(0) as u32;
        let free = totals.share.saturating_sub(totals.promised);
        self.samples.push_back(Sample {
            at: now.0,
            promised: part(totals.promised, totals.share),
            used: part(totals.used, totals.share),
            memory: part(totals.memory_promised, totals.memory),
            stranded: part(totals.stranded, free),
            waiting: totals.waiting,
            running: totals.running,
            down: totals.down,
        });
        true
    }

    /// Samples taken after a moment, oldest first.
    pub(crate) fn since(&self, at: u64) -> Vec<Sample> {
        self.samples.iter().filter(|sample| sample.at > at).cloned().collect()
    }
}

/// What the cluster adds up to.
pub(crate) fn totals<'a>(
    snapshot: &Snapshot,
    used: impl IntoIterator<Item = &'a Used>,
    metered: bool,
    now: Time,
) -> Totals {
    let mut totals = Totals { metered, ..Totals::default() };
    for (_, state) in snapshot.nodes() {
        let devices = &state.node().inventory.devices;
        totals.nodes += u32::from(!devices.is_empty());
        for book in state.books() {
            totals.cards += 1;
            totals.down += u32::from(!book.open);
            totals.share += u64::from(book.share.0);
            totals.memory += book.memory.0 >> 20;
            totals.memory_promised += book.used_memory.0.min(book.memory.0) >> 20;
            // A pod that holds a card alone holds all of its time.
            let held = if book.exclusive > 0 { book.share } else { book.used_share };
            totals.promised += u64::from(held.0);
            if book.pods > 0 && book.exclusive == 0 {
                totals.stranded += u64::from(book.free_share().0);
            }
        }
    }
    for used in used {
        totals.used += u64::from(used.share);
        totals.memory_used += used.memory.0 >> 20;
    }
    for (_, state) in snapshot.waiting().filter(|(_, state)| state.pod().ask.is_some()) {
        let pod = state.pod();
        totals.waiting += 1;
        totals.oldest = totals.oldest.max(now.seconds_since(pod.created));
    }
    totals.running = snapshot.pods().filter(|(_, state)| !state.charges().is_empty()).count() as u32;
    totals
}

//! The mix of requests that comes, and what leftovers are worth under it.

use std::sync::Arc;

use super::Snapshot;
use crate::ledger::worth::{Mix, Worth};

/// After so many arrivals what leftovers are worth is reckoned again.
const WORTH_EVERY: u64 = 200;

impl Snapshot {
    /// The mix of requests, as learnt or told.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// Tells the mix of requests to expect.
    pub fn expect(&mut self, mix: Mix) {
        (self.mix, self.priced) = (mix, None);
    }

    /// What leftovers are worth, as last reckoned.
    pub fn worth(&self) -> &Arc<Worth> {
        &self.worth
    }

    /// Is it time to reckon again what leftovers are worth?
    pub fn is_worth_stale(&self) -> bool {
        let arrivals = self.mix.arrivals();
        // Often while little is known, then every few hundred arrivals: prices move slowly.
        let patience = if arrivals < WORTH_EVERY { WORTH_EVERY / 10 } else { WORTH_EVERY };
        self.priced.is_none_or(|at| arrivals >= at + patience)
    }

    /// Reckons what leftovers are worth. Whoever cannot spare the milliseconds gives a clone to another thread and adopts the result.
    pub fn reckon_worth(&mut self) {
        let worth = Worth::of(&self.mix, &self.models, self.nodes().map(|(_, state)| state.leftover()));
        self.adopt_worth(Arc::new(worth));
    }

    /// Takes over what was reckoned elsewhere.
    pub fn adopt_worth(&mut self, worth: Arc<Worth>) {
        (self.worth, self.priced) = (worth, Some(self.mix.arrivals()));
    }
}

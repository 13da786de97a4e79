//! What containers used, for the journal, metrics and whoever else asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Container;

/// A container's account on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    /// GPU time used, since the container's pages were made.
    pub busy_ns: u64,
    /// So far behind the present is that: a card's own count comes late.
    pub behind_ns: u64,
    /// Time with work waiting behind a closed gate.
    pub throttled_ns: u64,
    /// Turns given.
    pub turns: u64,
    /// Thousandths of the device's time over the last second that was metered.
    pub utilisation: u32,
    /// What a unit of its work costs, in nanoseconds, as far as known.
    pub unit_ns: u32,
    /// Units of work per chunk now.
    pub chunk_units: u32,
    /// Memory in use, by the container's own books.
    pub memory: u64,
    /// Allocations refused above the limit, by the container's own books.
    pub refused: u64,
    /// Its ledger was damaged: its numbers are not its own any more.
    pub broken: bool,
}

/// All accounts, by container and device. A handle: clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<Mutex<BTreeMap<(String, String), Account>>>);

impl Accounts {
    /// All of them now.
    pub fn all(&self) -> BTreeMap<(String, String), Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, container: &str, device: &str, account: Account) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((container.to_owned(), device.to_owned()), account);
    }

    pub(super) fn remove(&self, container: &str, device: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(container.to_owned(), device.to_owned()));
    }

    pub(super) fn retain(&self, containers: &[Container]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(name, _), _| containers.iter().any(|c| c.name == *name));
    }
}

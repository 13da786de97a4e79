//! Where things stand, for metrics and people.

use std::collections::BTreeMap;

use divvy_core::time::Time;
use divvy_core::units::Share;

use super::{Stand, World};

/// Where things stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Pods that wait, by state.
    pub pods: BTreeMap<&'static str, i64>,
    /// Age of the pod that waits longest.
    pub oldest_seconds: i64,
    /// Sums over devices, by model.
    pub models: BTreeMap<String, Sums>,
}

/// Sums over devices of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Devices.
    pub devices: i64,
    /// Time not promised, in thousandths.
    pub free: i64,
    /// The part of it on devices that are neither full nor wholly free.
    pub stranded: i64,
}

impl World {
    /// Where things stand now.
    pub fn standing(&self, now: Time) -> Standing {
        let mut standing = Standing::default();
        for state in ["awake", "asleep", "resting", "binding", "theirs", "promised"] {
            standing.pods.insert(state, 0);
        }
        for entry in self.entries.values() {
            let state = match entry.stand {
                Stand::Awake => "awake",
                Stand::Asleep => "asleep",
                Stand::Resting(_) => "resting",
                Stand::Flying { .. } => "binding",
                Stand::Theirs => "theirs",
                Stand::Promised { .. } => "promised",
            };
            *standing.pods.entry(state).or_default() += 1;
            let age = now.seconds_since(entry.created);
            standing.oldest_seconds = standing.oldest_seconds.max(i64::try_from(age).unwrap_or(i64::MAX));
        }
        for (_, state) in self.snapshot.nodes() {
            for (device, book) in state.node().inventory.devices.iter().zip(state.books()) {
                let sums = standing.models.entry(device.model.to_string()).or_default();
                let free = book.free_share();
                sums.devices += 1;
                sums.free += i64::from(free.0);
                if free != Share::ZERO && free < device.bookable_share() {
                    sums.stranded += i64::from(free.0);
                }
            }
        }
        standing
    }
}

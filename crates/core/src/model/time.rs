//! Moments and lengths of time. The core has no clock: every function that depends on the time is told it.

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The moment so many seconds after the epoch. Tests and simulations count from there.
    pub const fn seconds(seconds: u64) -> Time {
        Time(seconds.saturating_mul(1000))
    }

    /// The moment so many seconds later.
    pub const fn plus_seconds(self, seconds: u64) -> Time {
        Time(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Whole seconds from `earlier` until now; none when `earlier` lies ahead (clocks of two machines differ).
    pub const fn seconds_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }

    /// Milliseconds from `earlier` until now; none when `earlier` lies ahead.
    pub const fn millis_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

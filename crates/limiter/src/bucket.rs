//! A limit as a bucket of GPU time with hysteresis: it runs until the bucket is empty and rests until it is full again, which makes
//! a duty cycle of a stated period instead of a stutter.

use crate::Ns;

/// Longest debt a bucket remembers: a five-second kernel does not stop its tenant for a minute.
const DEEPEST: i64 = -1_000_000_000;
/// Time a tenant may lay by beyond a full bucket while it waits for its turn, so that a hard limit is not also a loss.
const SLACK: i64 = 10_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// Thousandths.
    limit: u32,
    level: i64,
    full: i64,
    running: bool,
}

impl Bucket {
    pub(crate) fn new(limit: u32, period: Ns) -> Bucket {
        let full = full(limit, period);
        Bucket { limit, level: full, full, running: true }
    }

    /// A new limit, from now on; what was used before stays used.
    pub(crate) fn set_limit(&mut self, limit: u32, period: Ns) {
        self.limit = limit;
        self.full = full(limit, period);
        self.level = self.level.min(self.full + SLACK);
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limit < 1000
    }

    /// `elapsed` of wall time went by, in which the tenant used `used` of the card.
    pub(crate) fn pass(&mut self, elapsed: Ns, used: Ns) {
        let income = elapsed.saturating_mul(u64::from(self.limit)) / 1000;
        let level = self.level.saturating_add(signed(income)).saturating_sub(signed(used));
        self.level = level.clamp(DEEPEST, self.full + SLACK);
        if self.level <= 0 {
            self.running = false;
        } else if self.level >= self.full {
            self.running = true;
        }
    }

    /// May the tenant run?
    pub(crate) fn allows(&self) -> bool {
        !self.is_limited() || self.running
    }

    /// How long until that changes, if the tenant runs whenever it may.
    pub(crate) fn next_change(&self) -> Option<Ns> {
        if !self.is_limited() {
            return None;
        }
        let rate = if self.running { 1000 - self.limit } else { self.limit };
        let distance = if self.running { self.level } else { self.full - self.level };
        let distance = u64::try_from(distance).unwrap_or(0);
        // A limit of nothing never runs.
        (rate > 0).then(|| distance.saturating_mul(1000) / u64::from(rate))
    }
}

/// What a run of `limit` thousandths of a period takes from the bucket, net of what flows in meanwhile. At least a millisecond, so
/// that very small and very large limits do not stutter.
fn full(limit: u32, period: Ns) -> i64 {
    let (limit, rest) = (u64::from(limit), u64::from(1000u32.saturating_sub(limit)));
    signed((period / 1000).saturating_mul(limit).saturating_mul(rest) / 1000).max(1_000_000)
}

fn signed(ns: Ns) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    #[test]
    fn a_lone_tenant_runs_its_limit_of_every_period() {
        for limit in [50u32, 250, 500, 750, 950] {
            let mut bucket = Bucket::new(limit, 50 * MS);
            let (mut used, mut switches, mut was) = (0, 0, true);
            for _ in 0..100_000u32 {
                let step = 100_000;
                let ran = if bucket.allows() { step } else { 0 };
                used += ran;
                bucket.pass(step, ran);
                switches += u32::from(bucket.allows() != was);
                was = bucket.allows();
            }
            let share = used / (10_000 * MS / 1000);
            assert!(share.abs_diff(u64::from(limit)) <= 3, "asked {limit}, ran {share}");
            assert!((350..=450).contains(&switches), "{limit}: {switches} switches in 10 s of 50 ms periods");
        }
    }

    #[test]
    fn no_limit_never_stops_and_a_limit_of_nothing_soon_does() {
        let mut free = Bucket::new(1000, 50 * MS);
        free.pass(5 * MS, 5000 * MS);
        assert!(free.allows() && free.next_change().is_none());
        let mut none = Bucket::new(0, 50 * MS);
        none.pass(2 * MS, 2 * MS);
        none.pass(10_000 * MS, 0);
        assert!(!none.allows() && none.next_change().is_none());
    }

    #[test]
    fn the_predicted_change_is_when_it_changes() {
        let mut bucket = Bucket::new(250, 50 * MS);
        for _ in 0..10 {
            let (was, wait) = (bucket.allows(), bucket.next_change().unwrap());
            bucket.pass(wait - wait / 100, if was { wait - wait / 100 } else { 0 });
            assert_eq!(bucket.allows(), was, "not yet");
            let more = bucket.next_change().unwrap() + 10;
            bucket.pass(more, if was { more } else { 0 });
            assert_ne!(bucket.allows(), was, "now");
        }
    }

    #[test]
    fn debt_is_bounded() {
        let mut bucket = Bucket::new(500, 50 * MS);
        bucket.pass(60_000 * MS, 60_000 * MS);
        assert!(!bucket.allows());
        bucket.pass(2_100 * MS, 0);
        assert!(bucket.allows());
    }
}

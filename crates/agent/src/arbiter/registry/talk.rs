//! How much a container may say: so many frames and events at once, and so many a second. Whoever says more waits, or is left out and
//! counted; its neighbours are heard meanwhile.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often something may happen.
#[derive(Clone, Copy)]
struct Rate {
    /// So often at once, after a rest.
    at_once: u32,
    /// And so often a second.
    per_second: u32,
}

/// Connections and frames. Each process of a full container connects and introduces itself, all of them at once; a frame takes up to
/// 50 us of the one thread that hears everybody, so that a container which never stops talking has a twentieth of it, and of a core.
const FRAMES: Rate = Rate { at_once: 2 * divvy_shm::MAX_PROCESSES as u32, per_second: 1024 };
/// Events, each of which is a line in the agent's log: about 200 bytes, 17 MB a day from a container that never stops. The library of one
/// process sends ten a second at most.
const EVENTS: Rate = Rate { at_once: 20, per_second: 1 };

/// Counts against a rate: the moment at which nothing will be left to make up for.
struct Bucket {
    rate: Rate,
    rested: Instant,
}

impl Bucket {
    /// Nothing has happened yet.
    fn new(rate: Rate, now: Instant) -> Bucket {
        Bucket { rate, rested: now }
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1) / self.rate.per_second.max(1)
    }

    /// May it happen now?
    fn allows(&self, now: Instant) -> bool {
        self.rested.saturating_duration_since(now) <= self.pause() * self.rate.at_once.saturating_sub(1)
    }

    /// Counts that it happens, if it may.
    fn take(&mut self, now: Instant) -> bool {
        let allowed = self.allows(now);
        if allowed {
            self.rested = self.rested.max(now) + self.pause();
        }
        allowed
    }
}

struct Talk {
    frames: Bucket,
    events: Bucket,
    /// Events since the last one that was handed on.
    left_out: u64,
}

/// What each container has said.
#[derive(Default)]
pub(in crate::arbiter) struct Talks {
    by_container: HashMap<PathBuf, Talk>,
}

impl Talks {
    /// May the container say something?
    pub(super) fn may_speak(&self, container: &Path, now: Instant) -> bool {
        self.by_container.get(container).is_none_or(|talk| talk.frames.allows(now))
    }

    /// Counts that it connects, or says something, if it may.
    pub(super) fn speak(&mut self, container: &Path, now: Instant) -> bool {
        self.of(container, now).frames.take(now)
    }

    /// Counts an event. Whether to hand it on: if so, how many before it were left out.
    pub(in crate::arbiter) fn event(&mut self, container: &Path, now: Instant) -> Option<u64> {
        let talk = self.of(container, now);
        if talk.events.take(now) {
            return Some(std::mem::take(&mut talk.left_out));
        }
        talk.left_out += 1;
        None
    }

    /// Forgets all other containers.
    pub(in crate::arbiter) fn keep_containers(&mut self, containers: &HashSet<&PathBuf>) {
        self.by_container.retain(|dir, _| containers.contains(dir));
    }

    fn of(&mut self, container: &Path, now: Instant) -> &mut Talk {
        let fresh = || Talk { frames: Bucket::new(FRAMES, now), events: Bucket::new(EVENTS, now), left_out: 0 };
        self.by_container.entry(container.to_owned()).or_insert_with(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let now = Instant::now();
        let mut bucket = Bucket::new(Rate { at_once: 3, per_second: 10 }, now);
        let taken = |bucket: &mut Bucket, ms| {
            let at = now + Duration::from_millis(ms);
            (0..100).filter(|_| bucket.take(at)).count()
        };
        assert_eq!([0, 99, 100, 250, 10_000].map(|ms| taken(&mut bucket, ms)), [3, 0, 1, 1, 3]);
    }

    #[test]
    fn what_is_left_out_is_counted_until_something_is_handed_on() {
        let (now, mut talks) = (Instant::now(), Talks::default());
        let (a, b) = (Path::new("a"), Path::new("b"));
        let handed_on = (0..1000).filter(|_| talks.event(a, now).is_some()).count();
        assert_eq!(handed_on, EVENTS.at_once as usize);
        assert_eq!(talks.event(b, now), Some(0), "its neighbour has said nothing yet");
        let later = now + Duration::from_secs(1);
        assert_eq!(talks.event(a, later), Some(1000 - u64::from(EVENTS.at_once)));
        assert_eq!(talks.event(a, later), None);
        assert_eq!(talks.event(a, later + Duration::from_secs(1)), Some(1));
    }
}

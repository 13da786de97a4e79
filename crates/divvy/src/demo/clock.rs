//! Simulated time against real time.

use std::time::Instant;

use divvy_core::time::Time;

/// Simulated seconds before people come to look: the cluster fills in a few real seconds.
const BEFORE: u64 = 3 * 3_600;
/// How fast that part goes.
const HURRY: u64 = 3_600;

/// What time it is in the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    opened: Time,
    speed: u32,
    /// The simulated time at a real moment.
    known: (Time, Instant),
}

impl Clock {
    pub(crate) fn new(begin: Time, speed: u32) -> Clock {
        Clock { opened: begin.plus_seconds(BEFORE), speed, known: (begin, Instant::now()) }
    }

    /// Simulated seconds per second.
    pub(crate) fn speed(&self) -> u32 {
        self.speed
    }

    /// From now on another speed; zero stands still.
    pub(crate) fn set_speed(&mut self, speed: u32) {
        self.known = (self.now(), Instant::now());
        self.speed = speed;
    }

    /// The simulated time. Never more than a few simulated minutes ahead of what was last said, so that a slow machine is late, not stuck.
    pub(crate) fn now(&self) -> Time {
        let (at, since) = self.known;
        let real = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let hurried = Time(at.0.saturating_add(real.saturating_mul(HURRY)));
        if at < self.opened && self.speed > 0 {
            return hurried.min(self.opened);
        }
        Time(at.0.saturating_add(real.saturating_mul(u64::from(self.speed))))
    }

    /// The simulation has come so far; real time is counted from here.
    pub(crate) fn reached(&mut self, at: Time) {
        self.known = (at, Instant::now());
    }
}

//! Turns, or side by side? Of programs of several streams nobody can tell by looking: one that is bound by submitting loses a fifth of
//! its speed in turns, and one that looks the same gains a twentieth. So turns are tried in between, and what got more done stays for
//! a while.

use alloc::vec::Vec;

use crate::Ns;

/// Each is tried for so long ...
const TRIED: Ns = 500_000_000;
/// ... or turns for half of that, where they get less done than this, in thousandths of the other ...
const CLEARLY_LESS: u128 = 900;
/// ... after this time, in which chunks and queues are still those of the other.
const SETTLING: Ns = 50_000_000;
/// Turns are better if they get so many thousandths of the other done, for shares are more exact in turns.
const ENOUGH: u128 = 980;
/// Before and after, side by side, programs that do the same differ by less than this, in thousandths. Others only begin.
const ALIKE: u128 = 900;
/// What was found of those stands for so long, and of others for this time; each time it is found again for twice as long, and never for
/// longer than that.
const STANDS_BRIEFLY: Ns = 2_000_000_000;
const STANDS: Ns = 30_000_000_000;
const STANDS_LONGEST: Ns = 480_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nobody has asked yet, or what was found is too old.
    #[default]
    Open,
    /// Side by side, before and after turns.
    Before,
    Turns,
    After,
    Found {
        turns: bool,
        until: Ns,
    },
}

/// What got done in one way, by lane, and in what time.
#[derive(Clone, Debug, Default)]
struct Stretch {
    time: Ns,
    units: Vec<u64>,
}

impl Stretch {
    fn work(&self, costs: &[Ns]) -> u128 {
        self.units.iter().zip(costs).map(|(&units, &cost)| u128::from(units) * u128::from(cost)).sum()
    }

    /// Does it get less done than so many thousandths of another?
    fn gets_less(&self, thousandths: u128, other: &Stretch, costs: &[Ns]) -> bool {
        let [mine, others] = [(self, other), (other, self)].map(|(a, b)| a.work(costs) * u128::from(b.time));
        mine * 1000 < others * thousandths
    }
}

/// A trial on one card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trial {
    phase: Phase,
    /// Time in this phase.
    spent: Ns,
    before: Stretch,
    turns: Stretch,
    after: Stretch,
    /// What each lane had completed at the last look.
    completed: Vec<u32>,
    /// What a unit of each costs, as measured in turns: side by side it is only guessed.
    costs: Vec<Ns>,
    /// What was found the last time, and for how long that stood.
    last: Option<(bool, Ns)>,
}

impl Trial {
    /// Turns are being tried.
    pub(crate) fn tries_turns(&self) -> bool {
        self.phase == Phase::Turns
    }

    /// Whether to give turns now: because they are tried or were found to be better, or not. `None` while nobody knows.
    pub(crate) fn is_for_turns(&self) -> Option<bool> {
        match self.phase {
            Phase::Open | Phase::Before => None,
            Phase::Turns => Some(true),
            Phase::After => Some(false),
            Phase::Found { turns, .. } => Some(turns),
        }
    }

    /// All run side by side, for no better reason than that they work in several streams.
    pub(crate) fn is_wanted(&mut self) {
        if self.phase == Phase::Open {
            (self.before, self.turns, self.after) = (Stretch::default(), Stretch::default(), Stretch::default());
            self.enter(Phase::Before);
        }
    }

    /// A look after `time` in which several wanted the card, with what each lane has completed and what a unit of it costs.
    pub(crate) fn look(&mut self, now: Ns, time: Ns, lanes: impl Iterator<Item = (u32, Ns)> + Clone) {
        if lanes.clone().count() != self.completed.len() {
            *self = Trial { completed: lanes.map(|(completed, _)| completed).collect(), ..Trial::default() };
            return;
        }
        if matches!(self.phase, Phase::Found { until, .. } if now >= until) {
            self.enter(Phase::Open);
        }
        if time > 0 {
            self.pass(now, time, lanes.clone());
        }
        self.completed.iter_mut().zip(lanes).for_each(|(last, (now, _))| *last = now);
    }

    fn pass(&mut self, now: Ns, time: Ns, lanes: impl Iterator<Item = (u32, Ns)> + Clone) {
        let stretch = match self.phase {
            Phase::Open | Phase::Found { .. } => return,
            Phase::Before => &mut self.before,
            Phase::Turns => &mut self.turns,
            Phase::After => &mut self.after,
        };
        self.spent = self.spent.saturating_add(time);
        if self.spent <= SETTLING {
            return;
        }
        stretch.time = stretch.time.saturating_add(time);
        stretch.units.resize(self.completed.len(), 0);
        for ((units, (now, _)), last) in stretch.units.iter_mut().zip(lanes.clone()).zip(&self.completed) {
            *units = units.saturating_add(u64::from(now.wrapping_sub(*last)));
        }
        let tried = stretch.time;
        if self.tries_turns() && tried >= TRIED / 2 {
            self.costs.clear();
            self.costs.extend(lanes.map(|(_, cost)| cost));
            if self.turns.gets_less(CLEARLY_LESS, &self.before, &self.costs) {
                return self.enter(Phase::After);
            }
        }
        if tried >= TRIED {
            match self.phase {
                Phase::Before => self.enter(Phase::Turns),
                Phase::Turns => self.enter(Phase::After),
                _ => self.find(now),
            }
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.spent) = (phase, 0);
    }

    fn find(&mut self, now: Ns) {
        let (before, turns, after, costs) = (&self.before, &self.turns, &self.after, &self.costs);
        let alike = !before.gets_less(ALIKE, after, costs) && !after.gets_less(ALIKE, before, costs);
        let turns = [before, after].iter().all(|other| !turns.gets_less(ENOUGH, other, costs));
        let shortest = if alike { STANDS } else { STANDS_BRIEFLY };
        let stands = match self.last {
            Some((found, stood)) if found == turns => (2 * stood).clamp(shortest, STANDS_LONGEST),
            _ => shortest,
        };
        self.last = Some((turns, stands));
        self.enter(Phase::Found { turns, until: now.saturating_add(stands) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Two programs, one of which does twice the units at half the cost.
    struct Pair {
        trial: Trial,
        now: Ns,
        completed: [u32; 2],
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair { trial: Trial::default(), now: 0, completed: [u32::MAX - 5, 0] };
            pair.pass(1, 0);
            pair
        }

        /// So many milliseconds in which so many units of the first got done each.
        fn pass(&mut self, ms: u32, units: u32) {
            for _ in 0..ms {
                self.now += MS;
                self.completed = [self.completed[0].wrapping_add(units), self.completed[1].wrapping_add(2 * units)];
                self.look(MS);
            }
        }

        fn look(&mut self, time: Ns) {
            self.trial.look(self.now, time, self.completed.into_iter().zip([10_000, 5_000]));
        }

        /// A whole trial: units done before, in turns, and after.
        fn tries(&mut self, [before, turns, after]: [u32; 3]) {
            self.trial.is_wanted();
            self.pass(50, 1);
            self.pass(500, before);
            assert!(self.trial.tries_turns());
            self.pass(50, 1);
            self.pass(if turns * 10 < before * 9 { 250 } else { 500 }, turns);
            assert_eq!(self.trial.phase, Phase::After);
            self.pass(50, 1);
            self.pass(500, after);
            assert!(matches!(self.trial.phase, Phase::Found { .. }));
        }

        fn found_stands(&mut self, ms: u32) {
            let found = self.trial.is_for_turns();
            self.pass(ms - 1, 100);
            self.trial.is_wanted();
            assert_eq!(self.trial.is_for_turns(), found);
            self.pass(1, 100);
            assert_eq!(self.trial.is_for_turns(), None);
        }
    }

    #[test]
    fn what_got_more_done_stays() {
        for (units, turns) in [
            ([98, 104, 98], true),
            ([100, 80, 100], false),
            ([100, 99, 100], true),
            ([103, 100, 103], false),
            ([70, 84, 105], false),
            ([105, 84, 70], false),
        ] {
            let mut pair = Pair::new();
            assert_eq!(pair.trial.is_for_turns(), None, "nobody has asked");
            pair.tries(units);
            assert_eq!(pair.trial.is_for_turns(), Some(turns), "{units:?}");
        }
    }

    #[test]
    fn it_is_asked_again_later_and_later() {
        let mut pair = Pair::new();
        for stands in [30_000, 60_000, 120_000, 240_000, 480_000, 480_000] {
            pair.tries([98, 104, 98]);
            pair.found_stands(stands);
        }
        pair.tries([100, 80, 100]);
        pair.found_stands(30_000);
    }

    #[test]
    fn of_programs_that_only_begin_it_is_asked_again_soon() {
        let mut pair = Pair::new();
        pair.tries([20, 50, 100]);
        pair.found_stands(2_000);
        pair.tries([80, 85, 100]);
        pair.found_stands(4_000);
        pair.tries([100, 85, 100]);
        pair.found_stands(30_000);
    }

    #[test]
    fn time_in_which_nobody_waits_for_anybody_is_not_counted() {
        let mut pair = Pair::new();
        pair.trial.is_wanted();
        pair.pass(300, 100);
        for _ in 0..4_000 {
            pair.now += MS;
            pair.completed[0] = pair.completed[0].wrapping_add(10_000);
            pair.look(0);
        }
        pair.pass(249, 100);
        assert!(!pair.trial.tries_turns());
        pair.pass(1, 100);
        assert!(pair.trial.tries_turns());
        assert_eq!(pair.trial.before.units[0], 500 * 100);
    }

    #[test]
    fn who_comes_or_goes_begins_anew() {
        let mut pair = Pair::new();
        pair.tries([98, 104, 98]);
        pair.trial.look(pair.now, MS, [(1, 10), (2, 10), (3, 10)].into_iter());
        assert_eq!(pair.trial.is_for_turns(), None);
    }
}

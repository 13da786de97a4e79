//! What a unit of a tenant's work costs the card, as learnt by watching.

use crate::Ns;

/// Nanoseconds per unit, and how well they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnitCost {
    ns: Ns,
    firm: bool,
    /// Only from the opening of a gate.
    pub(crate) rough: bool,
    /// Nothing was measured for long: what is remembered may be of another program.
    pub(crate) old: bool,
    /// Firm measurements ever made; wraps round.
    pub(crate) measured: u32,
}

/// A guess this many times above what was firm says that the program does something else now.
const QUITE_DIFFERENT: u64 = 4;
/// ... if it is about something long.
const LONG: Ns = 5_000_000;
/// No launch costs less.
const LEAST: Ns = 500;
/// So much work is remembered of what was measured before: a program has long and short kernels side by side, and a moment of one
/// sort says little. Work of quite another kind soon outweighs it, by its time or by its number.
const REMEMBERED: Ns = 6_000_000;
/// The same where what is measured comes in heaps.
const HEAPS: Ns = 50_000_000;
/// From the arbiter's store to the first work behind the gate, at the least.
const OPENING: Ns = 10_000;

/// What a card takes to go from one program to another, which is in every time that was shared.
const SWITCH: Ns = 60_000;

impl UnitCost {
    /// The cost, as far as anything is known.
    pub(crate) fn get(self) -> Option<Ns> {
        (self.ns > 0).then_some(self.ns)
    }

    /// The cost, if it was measured while the tenant was alone with full chunks.
    pub(crate) fn firm(self) -> Option<Ns> {
        self.get().filter(|_| self.firm)
    }

    /// A measurement between two completions, alone on the card.
    pub(crate) fn learn(&mut self, time: Ns, units: u32) {
        if self.measured == 0 || self.rough {
            self.ns = 0;
        }
        self.blend(time, units, true);
        (self.firm, self.rough) = (true, false);
        self.measured = self.measured.wrapping_add(1);
    }

    /// Units of it were done in so much wall time, whoever else ran meanwhile: they cannot have cost more.
    pub(crate) fn at_most(&mut self, time: Ns, units: u32) {
        let most = sample(time, units);
        if self.ns > most.saturating_add(most / 2) {
            self.ns = most;
        }
    }

    /// It does not explain what is seen: the program may do something else by now.
    pub(crate) fn doubt(&mut self) {
        self.firm = false;
    }

    /// A measurement from the opening of a gate to the first completion, alone on the card: some of it went to the opening, so it
    /// only counts where nothing better is known.
    pub(crate) fn learn_start(&mut self, time: Ns, units: u32) {
        if !self.firm {
            self.learn(time.saturating_sub(OPENING), units);
            self.rough = true;
        }
    }

    /// What ran on behind a closed gate took so long, and nobody was beside it. Turns of some programs always end where their long
    /// kernels are: who leaves these out will not believe what they cost.
    pub(crate) fn learn_what_ran_on(&mut self, time: Ns, units: u32) {
        if self.firm && time > 2 * SWITCH {
            self.blend(without_switch(time), units, false);
        }
    }

    /// A time that may hold gaps.
    pub(crate) fn bound(&mut self, time: Ns, units: u32) {
        if !self.firm && (self.ns == 0 || sample(time, units) < self.ns) {
            self.blend(time, units, true);
        }
    }

    /// A time that was shared with others by guess.
    pub(crate) fn guess(&mut self, time: Ns, units: u32) {
        let time = without_switch(time);
        let expected = self.ns.saturating_mul(u64::from(units));
        if self.firm && (time < LONG || time < expected.saturating_mul(QUITE_DIFFERENT)) {
            return;
        }
        self.firm = false;
        self.blend(time, units, time > 2 * SWITCH);
    }

    /// The same among programs of several streams, which complete in heaps: in one pot next to nothing, and all of it in the next.
    pub(crate) fn guess_of_heaps(&mut self, time: Ns, units: u32) {
        match self.ns {
            0 => self.guess(time, units),
            ns if !self.firm => self.ns = mean(HEAPS, ns, time, units),
            _ => {}
        }
    }

    /// What is remembered from long ago gives way to what `says_all` of what the program does now, and to nothing less: the end of a
    /// chunk is mostly the card going over to somebody else.
    fn blend(&mut self, time: Ns, units: u32, says_all: bool) {
        let sample = sample(time, units);
        let alike = sample < self.ns.saturating_mul(2) && self.ns < sample.saturating_mul(2);
        self.ns = match self.ns {
            0 => sample,
            _ if self.old && says_all && !alike => sample,
            ns if alike => (3 * ns + sample) / 4,
            ns => mean(REMEMBERED, ns, time, units),
        };
    }
}

fn sample(time: Ns, units: u32) -> Ns {
    (time / u64::from(units.max(1))).max(LEAST)
}

/// Of units that cost so much, as many as fill the time remembered, and of those measured now.
fn mean(remembered: Ns, ns: Ns, time: Ns, units: u32) -> Ns {
    (remembered.saturating_add(time) / (remembered / ns + u64::from(units.max(1)))).max(LEAST)
}

fn without_switch(time: Ns) -> Ns {
    time.saturating_sub(SWITCH).max(time / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_chunk_that_ran_on_says_little_of_what_it_cost() {
        let mut cost = UnitCost::default();
        cost.learn(2_000_000, 500);
        cost.old = true;
        cost.learn_what_ran_on(59_000, 44);
        assert_eq!(cost.firm(), Some(4_000), "most of it is the card going over");
        cost.learn_what_ran_on(460_000, 50);
        assert!((4_000..5_000).contains(&cost.get().unwrap()), "{cost:?}: some kernels are longer than the mean");
    }

    #[test]
    fn what_comes_in_heaps_is_a_mean_of_many() {
        let mut cost = UnitCost::default();
        cost.learn(2_000_000, 250);
        cost.doubt();
        for _ in 0..20 {
            cost.guess_of_heaps(4_000_000, 1);
            cost.guess_of_heaps(4_000_000, 999);
            assert!((7_000..10_000).contains(&cost.get().unwrap()), "{cost:?}");
        }
    }
}

//! How long tenants used a card, by the card's own count where that can be known.
//!
//! While nobody is held back looks are milliseconds apart and launches are not timed, so that nothing is slowed; what tenants are
//! charged is a guess then, and nothing hangs on it. The card counts exactly for how long it worked. It says so late, in periods of
//! some tenths of a second, and not for whom: it is shared out as charged, which for one tenant alone is all of it. Where somebody was
//! held back in a period its charges stand: shares and limits are held by them, and whoever has a turn has its gaps, too.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Ns;

/// A card that has said nothing for so long is not waited for.
const PATIENCE: Ns = 2_000_000_000;
/// Readings are some tens of milliseconds apart. What a card says of a time so far after the last one is of another clock.
const AHEAD: Ns = 1_000_000_000;

/// The meter of one card.
#[derive(Clone, Debug)]
pub struct Meter {
    metered: Vec<Ns>,
    /// What had been charged when it was last read, and when that was.
    charged: Vec<Ns>,
    read: Option<Ns>,
    /// What the card may still say something about, oldest first.
    spans: VecDeque<Span>,
    /// The card has told about all before this.
    heard: Option<Ns>,
}

/// Time between two readings.
#[derive(Clone, Debug)]
struct Span {
    begin: Ns,
    end: Ns,
    /// What was charged in it and is not metered yet; nothing where somebody was held back.
    charges: Vec<Ns>,
    held_back: bool,
}

/// What a card said of itself: between two moments it worked for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// From this moment
    pub begin: Ns,
    /// to this one
    pub end: Ns,
    /// it worked for so long.
    pub worked: Ns,
}

impl Meter {
    /// A meter for so many tenants.
    pub fn new(tenants: usize) -> Meter {
        Meter {
            metered: alloc::vec![0; tenants],
            charged: alloc::vec![0; tenants],
            read: None,
            spans: VecDeque::new(),
            heard: None,
        }
    }

    /// What tenants have been charged in all, and whether somebody was held back since the last reading.
    pub fn read(&mut self, now: Ns, charged: impl Iterator<Item = Ns>, held_back: bool) {
        let before = core::mem::replace(&mut self.charged, charged.collect());
        let new = self.charged.iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        let begin = self.read.replace(now).unwrap_or(now);
        let mut span = Span { begin, end: now, charges: new.collect(), held_back };
        if held_back {
            self.charges_stand(&mut span);
        }
        self.spans.push_back(span);
        if self.heard.is_none_or(|heard| now.saturating_sub(heard) > PATIENCE) {
            self.close();
        }
    }

    /// The card speaks. What it said before is not heard again, and nothing is that has not been.
    pub fn hear(&mut self, said: Period) {
        let known = self.heard.unwrap_or(said.begin).max(said.begin);
        let is_to_come = self.read.is_none_or(|read| said.end > read.saturating_add(AHEAD));
        if said.end <= known || is_to_come {
            return;
        }
        self.heard = Some(said.end);
        let count = self.spans.iter().take_while(|span| span.end <= said.end).count();
        let mut spans: Vec<Span> = self.spans.drain(..count).collect();
        // A span that ends in a period counts to it.
        let first = spans.iter().take_while(|span| span.end <= known).count();
        let (untold, told) = spans.split_at_mut(first);
        untold.iter_mut().for_each(|span| self.charges_stand(span));
        if told.iter().any(|span| span.held_back) {
            told.iter_mut().for_each(|span| self.charges_stand(span));
            return;
        }
        let time: Ns = told.iter().map(|span| span.end.saturating_sub(span.begin)).sum();
        let worked = part(time, said.worked.min(said.end - said.begin), said.end - said.begin);
        let all = told.iter().flat_map(|span| &span.charges).sum();
        for (tenant, metered) in self.metered.iter_mut().enumerate() {
            let charged = told.iter().filter_map(|span| span.charges.get(tenant)).sum();
            *metered = metered.saturating_add(part(worked, charged, all));
        }
    }

    /// Nothing more is waited for.
    pub fn close(&mut self) {
        for mut span in core::mem::take(&mut self.spans) {
            self.charges_stand(&mut span);
        }
    }

    /// How long tenants used the card until [`Meter::until`], in the order of their charges; never less than before.
    pub fn metered(&self) -> &[Ns] {
        &self.metered
    }

    /// A tenant's use is metered up to this moment.
    pub fn until(&self, tenant: usize) -> Ns {
        let waits = self.spans.iter().find(|span| span.charges.get(tenant).is_some_and(|charge| *charge > 0));
        waits.map_or(self.read.unwrap_or(0), |span| span.begin)
    }

    fn charges_stand(&mut self, span: &mut Span) {
        for (metered, charge) in self.metered.iter_mut().zip(&mut span.charges) {
            *metered = metered.saturating_add(core::mem::take(charge));
        }
    }
}

/// `of` times `part` over `whole`; nothing of nothing.
fn part(of: Ns, part: Ns, whole: Ns) -> Ns {
    let exact = (u128::from(of) * u128::from(part)).checked_div(u128::from(whole)).unwrap_or(0);
    Ns::try_from(exact).unwrap_or(Ns::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Twenty milliseconds after the last reading, so much more charged.
    struct Reader {
        meter: Meter,
        now: Ns,
        charged: Vec<Ns>,
    }

    impl Reader {
        fn new(tenants: usize) -> Reader {
            let mut reader = Reader { meter: Meter::new(tenants), now: 0, charged: alloc::vec![0; tenants] };
            reader.meter.read(0, reader.charged.clone().into_iter(), false);
            reader
        }

        fn read(&mut self, times: u64, charges: &[Ns], held_back: bool) {
            for _ in 0..times {
                self.now += 20 * MS;
                self.charged.iter_mut().zip(charges).for_each(|(sum, charge)| *sum += charge);
                self.meter.read(self.now, self.charged.clone().into_iter(), held_back);
            }
        }

        /// The card worked for this part of the last 200 ms.
        fn hear(&mut self, percent: u64) {
            let (begin, end) = (self.now - 200 * MS, self.now);
            self.meter.hear(Period { begin, end, worked: 2 * percent * MS });
        }

        fn metered_ms(&self) -> Vec<u64> {
            self.meter.metered().iter().map(|ns| ns / MS).collect()
        }
    }

    /// A reader whose card has begun to speak.
    fn heard(tenants: usize) -> Reader {
        let mut reader = Reader::new(tenants);
        reader.read(10, &alloc::vec![0; tenants], false);
        reader.hear(0);
        reader
    }

    #[test]
    fn one_alone_is_metered_by_what_the_card_says_whatever_it_was_charged() {
        let mut reader = heard(1);
        for (charged, said) in [(13 * MS, 22), (8 * MS, 74), (20 * MS, 100)] {
            let before = reader.metered_ms()[0];
            reader.read(10, &[charged], false);
            assert_eq!(reader.metered_ms(), [before], "nothing is told before it is known");
            reader.hear(said);
            assert_eq!(reader.metered_ms(), [before + 2 * said]);
            assert_eq!(reader.meter.until(0), reader.now);
        }
    }

    #[test]
    fn two_side_by_side_share_what_the_card_says_as_they_were_charged() {
        let mut reader = heard(2);
        reader.read(10, &[15 * MS, 5 * MS], false);
        reader.hear(40);
        assert_eq!(reader.metered_ms(), [60, 20]);
    }

    #[test]
    fn where_somebody_was_held_back_charges_stand_and_at_once() {
        let mut reader = heard(2);
        reader.read(5, &[0, 10 * MS], false);
        reader.read(5, &[6 * MS, 14 * MS], true);
        assert_eq!(reader.metered_ms(), [30, 70]);
        assert_eq!(reader.meter.until(1), reader.now - 200 * MS, "the first half of it is still open");
        reader.hear(10);
        assert_eq!(reader.metered_ms(), [30, 120], "of one period all of it stands");
        assert_eq!(reader.meter.until(1), reader.now);
    }

    #[test]
    fn a_card_that_says_nothing_is_not_waited_for() {
        let mut reader = Reader::new(1);
        reader.read(10, &[7 * MS], false);
        assert_eq!(reader.metered_ms(), [70], "never said anything");
        reader.hear(50);
        reader.read(99, &[7 * MS], false);
        assert_eq!(reader.metered_ms(), [70], "it may speak yet");
        reader.read(2, &[7 * MS], false);
        assert_eq!(reader.metered_ms(), [70 + 101 * 7]);
        assert_eq!(reader.meter.until(0), reader.now);
    }

    #[test]
    fn what_nobody_was_charged_for_is_nobodys_and_what_was_said_twice_counts_once() {
        let mut reader = heard(1);
        reader.read(10, &[0], false);
        reader.hear(90);
        assert_eq!(reader.metered_ms(), [0]);
        reader.read(10, &[20 * MS], false);
        reader.hear(50);
        reader.hear(50);
        reader.meter.hear(Period { begin: 0, end: 300 * MS, worked: 300 * MS });
        assert_eq!(reader.metered_ms(), [100]);
    }

    /// As after the wall clock was set back.
    #[test]
    fn what_is_said_of_the_future_does_not_stop_the_meter() {
        let mut reader = heard(1);
        let later = reader.now + 3_600_000 * MS;
        reader.meter.hear(Period { begin: later, end: later + 200 * MS, worked: 200 * MS });
        reader.read(10, &[20 * MS], false);
        reader.hear(50);
        assert_eq!(reader.metered_ms(), [100]);
    }

    #[test]
    fn time_the_card_did_not_tell_about_stands_as_charged_and_the_end_settles_the_rest() {
        let mut reader = heard(1);
        reader.read(10, &[4 * MS], false);
        reader.read(10, &[4 * MS], false);
        reader.hear(100);
        assert_eq!(reader.metered_ms(), [40 + 200], "the first period was never told");
        reader.read(3, &[4 * MS], false);
        reader.meter.close();
        assert_eq!(reader.metered_ms(), [240 + 12]);
    }

    proptest::proptest! {
        #[test]
        fn it_never_goes_back_and_never_beyond_the_time_there_is(
            steps in proptest::collection::vec((0u64..4, 0u64..30, 0u64..30, proptest::bool::ANY, 0u64..150), 1..80),
        ) {
            let mut reader = Reader::new(2);
            let mut before = alloc::vec![0, 0];
            for (times, a, b, held_back, percent) in steps {
                let (a, b) = (a * MS, b.min(20u64.saturating_sub(a)) * MS);
                reader.read(times, &[a.min(20 * MS), b], held_back);
                if percent < 120 && reader.now >= 200 * MS {
                    reader.hear(percent);
                }
                let now = reader.meter.metered().to_vec();
                proptest::prop_assert!(now.iter().zip(&before).all(|(now, before)| now >= before));
                proptest::prop_assert!(now.iter().sum::<Ns>() <= reader.now);
                before = now;
            }
        }
    }
}

//! When an account was out of budget.

use crate::model::time::Time;

/// Intervals during which an account was out of budget, in order of time; the last may still go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline(Vec<Interval>);

/// From a moment on, until another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its first moment.
    pub from: Time,
    /// The first moment after it; absent while it goes on.
    pub to: Option<Time>,
}

impl Timeline {
    /// A timeline of these intervals, as [`Timeline::intervals`] gave them.
    pub fn of(intervals: impl IntoIterator<Item = Interval>) -> Timeline {
        let mut all: Vec<Interval> = intervals.into_iter().collect();
        all.sort_by_key(|i| i.from);
        Timeline(all)
    }

    /// The intervals.
    pub fn intervals(&self) -> &[Interval] {
        &self.0
    }

    /// Out of budget at this moment?
    pub fn is_out(&self, at: Time) -> bool {
        let before = self.0.partition_point(|i| i.from <= at);
        self.0[..before].last().is_some_and(|i| i.to.is_none_or(|to| at < to))
    }

    /// Out of budget from `at` on.
    pub fn begin(&mut self, at: Time) {
        match self.0.last_mut() {
            Some(last) if last.to.is_none() => {}
            // Back for no time at all.
            Some(last) if last.to == Some(at) => last.to = None,
            _ => self.0.push(Interval { from: at, to: None }),
        }
    }

    /// In budget again from `at` on.
    pub fn end(&mut self, at: Time) {
        if let Some(last) = self.0.last_mut()
            && last.to.is_none()
        {
            last.to = Some(at);
            if last.from >= at {
                self.0.pop();
            }
        }
    }

    /// Moments between `from` and `to` at which the standing changes.
    pub fn changes(&self, from: Time, to: Time) -> impl Iterator<Item = Time> + '_ {
        let moments = self.0.iter().flat_map(|i| [Some(i.from), i.to]).flatten();
        moments.filter(move |at| from < *at && *at < to)
    }

    /// Forgets what ended before `at`.
    pub fn forget(&mut self, at: Time) {
        self.0.retain(|i| i.to.is_none_or(|to| to > at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn t(seconds: u64) -> Time {
        Time::seconds(seconds)
    }

    #[test]
    fn intervals_begin_end_and_are_forgotten() {
        let mut line = Timeline::default();
        line.begin(t(10));
        line.begin(t(12));
        line.end(t(20));
        line.end(t(25));
        line.begin(t(30));
        assert!(!line.is_out(t(9)) && line.is_out(t(10)) && line.is_out(t(19)) && !line.is_out(t(20)));
        assert!(line.is_out(t(99)));
        assert_eq!(line.changes(t(10), t(30)).collect::<Vec<_>>(), [t(20)]);
        line.forget(t(21));
        assert_eq!(line.intervals(), [Interval { from: t(30), to: None }]);
    }

    #[test]
    fn an_end_at_the_beginning_leaves_nothing_and_a_beginning_at_the_end_goes_on() {
        let mut line = Timeline::default();
        line.begin(t(10));
        line.end(t(10));
        assert_eq!(line.intervals(), []);
        line.begin(t(10));
        line.end(t(20));
        line.begin(t(20));
        assert_eq!(line.intervals(), [Interval { from: t(10), to: None }]);
    }
}

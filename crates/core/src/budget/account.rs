//! One balance: what was granted for the period, what was spent of it, and what that means.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::amount::Amount;
use crate::budget::cost::CostRule;
use crate::budget::hold::Hold;
use crate::budget::timeline::Timeline;
use crate::model::time::Time;

/// What a budget says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Granted anew with each period.
    pub amount: Amount,
    /// How much of what was left goes into the next period.
    pub carry: Carry,
    /// What things cost.
    pub cost: CostRule,
    /// How long running pods go on as before once nothing is left.
    pub grace: u64,
    /// What happens then.
    pub on_exhaustion: OnExhaustion,
    /// What pods get back that Divvy evicted.
    pub refunds: Refunds,
}

/// How much of what was left goes into the next period. What was overdrawn always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carry {
    /// Hundredths of it.
    pub percent: u8,
    /// But no more than this.
    pub at_most: Option<Amount>,
}

impl Carry {
    /// What is carried of `left`.
    pub fn of(self, left: Amount) -> Amount {
        if left <= Amount::ZERO {
            return left;
        }
        let part = left.percent(self.percent.min(100));
        self.at_most.map_or(part, |most| part.min(most))
    }
}

/// What happens when nothing is left and the grace is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExhaustion {
    /// Pods become opportunistic.
    #[default]
    Demote,
    /// Pods are stopped, and new ones are refused.
    Stop,
}

/// What pods get back that Divvy evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refunds {
    /// Hundredths of what they were charged.
    pub percent: u8,
    /// For no more than so many milliseconds before the eviction; absent gives back for all of their time.
    pub window: Option<u64>,
}

/// A change of a balance made by a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind of change.
    pub kind: EntryKind,
    /// How much; never negative.
    pub amount: Amount,
    /// When.
    pub at: Time,
}

impl Entry {
    /// What it adds to the balance.
    pub fn signed(&self) -> Amount {
        match self.kind {
            EntryKind::TopUp | EntryKind::Credit => self.amount,
            EntryKind::Debit => -self.amount,
        }
    }
}

/// Kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EntryKind {
    /// More for this period.
    TopUp,
    /// Something is put right in the tenant's favour.
    Credit,
    /// Something is put right in the owner's favour.
    Debit,
}

/// A stretch of time by which an account counts: a calendar period, or one step of a rolling window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Its first moment.
    pub start: Time,
    /// The first moment after it.
    pub end: Time,
    /// Granted when it began (calendar) and what was carried into it; known once it is over.
    pub granted: Amount,
    /// Charges in it.
    pub spent: Amount,
    /// Given back in it.
    pub refunded: Amount,
    /// Of charges and refunds, what stands for details that are no longer kept.
    pub folded: (Amount, Amount),
}

/// One balance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What its budget says.
    pub terms: Terms,
    /// Since when it exists.
    pub since: Time,
    /// How many of the latest buckets count: one for calendar periods, several for a rolling window.
    pub window: usize,
    /// The latest buckets, the current one last; two more than count, so that what arrives late finds its place.
    pub buckets: VecDeque<Bucket>,
    /// Changes made by people, by identity.
    pub entries: BTreeMap<Arc<str>, Entry>,
    /// When it was out of budget.
    pub timeline: Timeline,
    /// Since when nothing is left.
    pub empty_since: Option<Time>,
    /// Holds that ended before this moment are no longer known one by one: buckets have their sums.
    pub through: Time,
    /// Until this moment it is decided already when it turned, ran empty and came back: it was stored then. What was charged until
    /// then is counted again.
    pub decided: Time,
}

/// How an account stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Granted for the period.
    pub granted: Amount,
    /// Carried over from the period before.
    pub carried: Amount,
    /// Top-ups and credits less debits.
    pub adjusted: Amount,
    /// Charges.
    pub spent: Amount,
    /// Given back.
    pub refunded: Amount,
}

impl Balance {
    /// What is left; negative when overdrawn in the grace period.
    pub fn left(&self) -> Amount {
        self.total() - self.spent
    }

    /// What there was to spend.
    pub fn total(&self) -> Amount {
        self.granted + self.carried + self.adjusted + self.refunded
    }
}

impl Account {
    /// A fresh account.
    pub fn new(terms: Terms, since: Time, window: usize) -> Account {
        Account { terms, since, window: window.max(1), through: Time(0), ..Account::default() }
    }

    /// The bucket of the present.
    pub fn current(&self) -> Option<&Bucket> {
        self.buckets.back()
    }

    /// The first moment that counts now, and the first after the current bucket.
    pub fn period(&self) -> Option<(Time, Time)> {
        let counting = self.counting();
        Some((counting.clone().next()?.start, counting.last()?.end))
    }

    fn counting(&self) -> impl Iterator<Item = &Bucket> + Clone {
        self.buckets.iter().skip(self.buckets.len().saturating_sub(self.window))
    }

    /// How it stands, as of the last moment it was advanced to.
    pub fn balance(&self, now: Time) -> Balance {
        let mut balance = Balance { granted: self.terms.amount, ..Balance::default() };
        for bucket in self.counting() {
            balance.spent += bucket.spent;
            balance.refunded += bucket.refunded;
            balance.adjusted += self.adjusted(bucket, now);
        }
        if self.window == 1
            && let Some(previous) = self.buckets.len().checked_sub(2).and_then(|i| self.buckets.get(i))
        {
            balance.carried = self.terms.carry.of(self.left_of(previous));
        }
        balance
    }

    /// What was left of a period that is over. Charges that came to light since are in it.
    pub fn left_of(&self, bucket: &Bucket) -> Amount {
        bucket.granted + self.adjusted(bucket, bucket.end) + bucket.refunded - bucket.spent
    }

    fn adjusted(&self, bucket: &Bucket, now: Time) -> Amount {
        let within = |e: &&Entry| bucket.start <= e.at && e.at < bucket.end && e.at <= now;
        self.entries.values().filter(within).map(Entry::signed).sum()
    }

    /// The first moment for which something that ends at `end` is given back: refunds stay within what the balance counts.
    pub(crate) fn refunds_from(&self, end: Time) -> Option<Time> {
        let bucket = self.buckets.iter().rev().find(|b| b.start < end && end <= b.end)?;
        let counted = match self.window {
            1 => bucket.start,
            steps => Time(end.0.saturating_sub(bucket.end.millis_since(bucket.start) * steps as u64)),
        };
        Some(self.terms.refunds.window.map_or(counted, |most| counted.max(Time(end.0.saturating_sub(most)))))
    }

    /// Is a hold in the buckets' sums, and counted nowhere else?
    pub(crate) fn has_folded(&self, hold: &Hold) -> bool {
        hold.ended().is_some_and(|end| end < self.through)
    }

    /// The bucket a moment belongs to. What lies before the oldest belongs nowhere any more.
    pub fn bucket_at(&mut self, at: Time) -> Option<&mut Bucket> {
        self.buckets.iter_mut().rev().find(|b| b.start <= at && at < b.end)
    }

    /// The next moment after `at` at which what was decided already changes something.
    pub(crate) fn next_decided(&self, at: Time) -> Option<Time> {
        let turn = self.buckets.iter().flat_map(|bucket| [bucket.start, bucket.end]).find(|moment| *moment > at);
        let standing = self.timeline.changes(at, self.decided).next();
        [turn, standing, Some(self.decided)].into_iter().flatten().filter(|moment| *moment > at).min()
    }

    /// The current bucket is over: the next begins.
    pub(crate) fn turn(&mut self, start: Time, end: Time) {
        let carried_and_granted = {
            let balance = self.balance(start);
            balance.granted + balance.carried
        };
        let window = self.window;
        if let Some(over) = self.buckets.back_mut() {
            over.granted = if window == 1 { carried_and_granted } else { Amount::ZERO };
        }
        self.buckets.push_back(Bucket { start, end, ..Bucket::default() });
        while self.buckets.len() > window + 2 {
            self.buckets.pop_front();
        }
        if let Some(oldest) = self.buckets.front().map(|b| b.start) {
            self.entries.retain(|_, entry| entry.at >= oldest);
        }
    }
}

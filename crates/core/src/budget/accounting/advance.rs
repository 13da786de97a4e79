//! Time goes by: pods are charged, accounts run empty, periods turn, each at its exact moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::account::Account;
use crate::budget::accounting::{Accounting, Accounts, Calendar, Happened, What};
use crate::budget::amount::{Amount, Rate};
use crate::budget::hold::{Hold, Span};
use crate::model::id::{AccountKey, PodUid};
use crate::model::time::Time;

/// What flows out of the accounts at one moment, by the set of accounts that decide a pod's class together.
#[derive(Debug, Default)]
struct Flow(BTreeMap<Vec<AccountKey>, Vec<Rates>>);

/// What pods cost one account, in budget and out of it.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    within: Rate,
    out: Rate,
}

impl Flow {
    fn add(&mut self, hold: &Hold, span: &Span, accounts: &Accounts) {
        self.each(hold, span, accounts, |sum, rate| Rate(sum.0 + rate.0));
    }

    fn take(&mut self, hold: &Hold, span: &Span, accounts: &Accounts) {
        self.each(hold, span, accounts, |sum, rate| Rate(sum.0.saturating_sub(rate.0)));
    }

    fn each(&mut self, hold: &Hold, span: &Span, accounts: &Accounts, join: fn(Rate, Rate) -> Rate) {
        if span.tariffs.is_empty() {
            return;
        }
        let keys: Vec<AccountKey> = span.tariffs.iter().map(|(key, _)| key.clone()).collect();
        let sums = self.0.entry(keys).or_insert_with(|| vec![Rates::default(); span.tariffs.len()]);
        for (sum, (key, tariff)) in sums.iter_mut().zip(&span.tariffs) {
            // What an account has in its sums already costs it nothing more.
            if accounts.0.get(key).is_some_and(|account| account.has_folded(hold)) {
                continue;
            }
            sum.within = join(sum.within, tariff.rate(hold.by_choice));
            sum.out = join(sum.out, tariff.rate(true));
        }
    }
}

/// A hold begins a span, or ends.
type Moments = BTreeSet<(Time, PodUid)>;

impl Accounting {
    /// Accounts for everything up to `now`, and tells what happened to accounts on the way, in order of time.
    pub fn advance(&mut self, now: Time, calendar: &impl Calendar) -> Vec<Happened> {
        let mut happened = Vec::new();
        let (mut flow, mut moments) = self.flow(now);
        self.settle(calendar, &mut happened);
        while self.at < now {
            let rates = self.rates(&flow);
            let hold = moments.first().map(|(at, _)| *at);
            let accounts = self.accounts.0.iter().map(|(key, account)| self.next(account, rates.get(key)));
            let next = accounts.flatten().chain(hold).min().unwrap_or(now).clamp(Time(self.at.0 + 1), now);
            let passed = next.millis_since(self.at);
            for (key, rate) in &rates {
                if let Some(bucket) = self.accounts.0.get_mut(key).and_then(|account| account.bucket_at(self.at)) {
                    bucket.spent += rate.over(passed);
                }
            }
            let mut ended = Vec::new();
            while let Some((at, uid)) = moments.pop_first() {
                if at > next {
                    moments.insert((at, uid));
                    break;
                }
                if let Some(hold) = self.holds.get(&uid) {
                    running(hold, self.at).inspect(|span| flow.take(hold, span, &self.accounts));
                    running(hold, at).inspect(|span| flow.add(hold, span, &self.accounts));
                    if hold.ended() == Some(at) {
                        ended.push(uid);
                    }
                }
            }
            self.at = next;
            ended.iter().for_each(|uid| self.give_back(uid));
            self.settle(calendar, &mut happened);
        }
        happened
    }

    /// What flows now, and when that changes by itself until `now`.
    fn flow(&self, now: Time) -> (Flow, Moments) {
        let (mut flow, mut moments) = (Flow::default(), Moments::new());
        for hold in self.holds.values() {
            running(hold, self.at).inspect(|span| flow.add(hold, span, &self.accounts));
            let begins = hold.spans.iter().map(|span| span.from);
            for at in begins.chain(hold.ended()).filter(|at| self.at < *at && *at <= now) {
                moments.insert((at, hold.uid.clone()));
            }
        }
        (flow, moments)
    }

    fn rates(&self, flow: &Flow) -> BTreeMap<AccountKey, Rate> {
        let mut rates: BTreeMap<AccountKey, Rate> = BTreeMap::new();
        for (keys, sums) in &flow.0 {
            let out = keys.iter().any(|k| self.account(k).is_some_and(|account| account.timeline.is_out(self.at)));
            for (key, sum) in keys.iter().zip(sums) {
                let rate = rates.entry(key.clone()).or_default();
                *rate = *rate + if out { sum.out } else { sum.within };
            }
        }
        rates
    }

    /// What flows out of each account now.
    pub fn burning(&self) -> BTreeMap<AccountKey, Rate> {
        self.rates(&self.flow(self.at).0)
    }

    /// When something will happen to an account by itself.
    fn next(&self, account: &Account, rate: Option<&Rate>) -> Option<Time> {
        if self.at < account.decided {
            return account.next_decided(self.at);
        }
        let turn = account.current().map(|bucket| bucket.end);
        let later = |millis: u64| Time(self.at.0.saturating_add(millis));
        let empty = match account.empty_since {
            None => account.balance(self.at).left().lasts(rate.copied().unwrap_or_default()).map(later),
            Some(since) => Some(Time(since.0.saturating_add(account.terms.grace))),
        };
        let entry = account.entries.values().map(|entry| entry.at).filter(|at| *at > self.at).min();
        [turn, empty, entry].into_iter().flatten().filter(|at| *at > self.at).min()
    }

    /// What happens at this very moment: turns first, then who runs empty, whose grace is over, who has something again.
    fn settle(&mut self, calendar: &impl Calendar, happened: &mut Vec<Happened>) {
        let at = self.at;
        for (key, account) in self.accounts.0.iter_mut().filter(|(_, account)| account.decided <= at) {
            let mut tell = |what: What| happened.push(Happened { at, account: key.clone(), what });
            while let Some(end) = account.current().map(|bucket| bucket.end).filter(|end| *end <= at) {
                let (start, next) = calendar.bucket(key, end);
                // A calendar that does not move on would hold us for ever.
                account.turn(start.max(end), next.max(Time(end.0 + 1)));
                tell(What::Turned);
            }
            let nothing_left = account.balance(at).left() <= Amount::ZERO;
            match account.empty_since {
                None if nothing_left => {
                    account.empty_since = Some(at);
                    tell(What::Emptied);
                }
                Some(_) if !nothing_left => {
                    account.empty_since = None;
                    if account.timeline.is_out(at) {
                        account.timeline.end(at);
                        tell(What::Back);
                    }
                }
                _ => {}
            }
            if let Some(since) = account.empty_since
                && since.0.saturating_add(account.terms.grace) <= at.0
                && !account.timeline.is_out(at)
            {
                account.timeline.begin(at);
                tell(What::Out);
            }
        }
    }
}

/// The span a hold is in at this moment, if it goes on.
fn running(hold: &Hold, at: Time) -> Option<&Span> {
    if hold.ended().is_some_and(|end| end <= at) {
        return None;
    }
    hold.spans.iter().rev().find(|span| span.from <= at)
}

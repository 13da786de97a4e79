//! All accounts and all holds, and how they move together.

mod advance;
mod apply;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::account::{Account, Balance, Entry, OnExhaustion, Terms};
use crate::budget::cost::{HeldDevice, Tariff};
use crate::budget::hold::{End, Hold, Span, Standings};
use crate::budget::report::Record;
use crate::model::ask::Class;
use crate::model::id::{AccountKey, Namespace, NodeName, PodUid};
use crate::model::time::Time;

/// Whoever knows calendars and time zones.
pub trait Calendar {
    /// The bucket of an account that contains this moment: its first moment, and the first after it.
    fn bucket(&self, account: &AccountKey, at: Time) -> (Time, Time);
}

/// All accounts and all holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    accounts: Accounts,
    holds: BTreeMap<PodUid, Hold>,
    /// Whose budgets cover a namespace.
    coverage: BTreeMap<Namespace, Vec<AccountKey>>,
    /// Everything up to this moment is accounted for.
    at: Time,
    /// When accounts were out before this moment is of no use any more once they all were stored again.
    forgettable: Time,
}

/// Accounts by name: they know when they were out of budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts(pub(crate) BTreeMap<AccountKey, Account>);

impl Standings for Accounts {
    fn is_out(&self, span: &Span, at: Time) -> bool {
        span.tariffs.iter().any(|(key, _)| self.0.get(key).is_some_and(|account| account.timeline.is_out(at)))
    }

    fn changes(&self, span: &Span, from: Time, to: Time) -> Vec<Time> {
        let of = |(key, _): &(AccountKey, Tariff)| self.0.get(key).map(|account| account.timeline.changes(from, to));
        let mut all: Vec<Time> = span.tariffs.iter().filter_map(of).flatten().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Something happened to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// When.
    pub at: Time,
    /// To which.
    pub account: AccountKey,
    /// What.
    pub what: What,
}

/// What happens to accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A period (or a step of a rolling window) was over and the next began.
    Turned,
    /// Nothing is left; the grace begins.
    Emptied,
    /// The grace is over.
    Out,
    /// There is something again.
    Back,
}

/// How a namespace stands with the budgets that cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The class its pods run in, and new ones are admitted with.
    pub class: Class,
    /// Its pods are to be stopped, and new ones refused.
    pub stop: bool,
    /// The budget that is out and since when; where several are, the first of them.
    pub because: Option<(AccountKey, Time)>,
    /// A covering budget is empty, and its grace lasts until then: new pods do not have it.
    pub grace_until: Option<Time>,
}

impl Accounting {
    /// Nothing yet; accounted for until `at`.
    pub fn new(at: Time) -> Accounting {
        Accounting { at, ..Accounting::default() }
    }

    /// Everything up to this moment is accounted for.
    pub fn at(&self) -> Time {
        self.at
    }

    /// The accounts.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountKey, &Account)> {
        self.accounts.0.iter()
    }

    /// One of them.
    pub fn account(&self, key: &AccountKey) -> Option<&Account> {
        self.accounts.0.get(key)
    }

    /// The holds that are known one by one.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values()
    }

    /// One of them.
    pub fn hold(&self, uid: &PodUid) -> Option<&Hold> {
        self.holds.get(uid)
    }

    /// How an account stands.
    pub fn balance(&self, key: &AccountKey) -> Option<Balance> {
        self.account(key).map(|account| account.balance(self.at))
    }

    /// Brings an account back as it was stored at a moment, which may be later than [`Accounting::at`]: until then what was decided
    /// stays decided, and only what pods cost is counted again.
    pub fn restore(&mut self, key: AccountKey, mut account: Account, stored: Time) {
        account.decided = stored;
        for bucket in &mut account.buckets {
            (bucket.spent, bucket.refunded) = bucket.folded;
        }
        self.accounts.0.insert(key, account);
    }

    /// A budget is there, or says something new. What was charged so far stays as it was charged.
    pub fn put_account(
        &mut self,
        key: &AccountKey,
        terms: Terms,
        since: Time,
        window: usize,
        calendar: &impl Calendar,
    ) {
        match self.accounts.0.get_mut(key) {
            Some(account) => {
                let changed = account.terms.cost != terms.cost;
                (account.terms, account.window) = (terms, window.max(1));
                if changed {
                    let covered = self.coverage.iter().filter(|(_, keys)| keys.contains(key));
                    let covered: Vec<Namespace> = covered.map(|(namespace, _)| namespace.clone()).collect();
                    covered.iter().for_each(|namespace| self.charge_anew(namespace, self.at));
                }
            }
            None => {
                let mut account = Account::new(terms, since, window);
                let (start, end) = calendar.bucket(key, self.at.max(since));
                account.turn(start, end);
                self.accounts.0.insert(key.clone(), account);
            }
        }
    }

    /// A budget has another period from now on: the current bucket ends when the new calendar says.
    pub fn reschedule(&mut self, key: &AccountKey, calendar: &impl Calendar) {
        let at = self.at;
        if let Some(bucket) = self.accounts.0.get_mut(key).and_then(|account| account.buckets.back_mut()) {
            bucket.end = calendar.bucket(key, at).1.max(Time(at.0 + 1));
        }
    }

    /// A budget is gone, and its balance with it.
    pub fn remove_account(&mut self, key: &AccountKey) {
        let covered: Vec<Namespace> =
            self.coverage.iter().filter(|(_, keys)| keys.contains(key)).map(|(ns, _)| ns.clone()).collect();
        for namespace in covered {
            let rest = self.coverage[&namespace].iter().filter(|k| *k != key).cloned().collect();
            self.cover(&namespace, rest, self.at);
        }
        self.accounts.0.remove(key);
    }

    /// These budgets cover a namespace from this moment on: for a new budget that of its creation, else the present.
    pub fn cover(&mut self, namespace: &Namespace, mut keys: Vec<AccountKey>, from: Time) {
        keys.sort();
        if self.coverage.get(namespace).map_or(keys.is_empty(), |before| *before == keys) {
            return;
        }
        if keys.is_empty() {
            self.coverage.remove(namespace);
        } else {
            self.coverage.insert(namespace.clone(), keys);
        }
        self.charge_anew(namespace, from);
    }

    /// The budgets that cover a namespace.
    pub fn covering(&self, namespace: &Namespace) -> &[AccountKey] {
        self.coverage.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// A person changed a balance. The same entry again changes nothing.
    pub fn post(&mut self, key: &AccountKey, id: &str, entry: Entry) -> bool {
        let Some(account) = self.accounts.0.get_mut(key) else { return false };
        let in_time = account.buckets.front().is_none_or(|oldest| entry.at >= oldest.start);
        if !in_time || account.entries.contains_key(id) {
            return false;
        }
        account.entries.insert(Arc::from(id), entry);
        true
    }

    /// A pod holds devices. One that is known already stays as it is known.
    pub fn open(&mut self, hold: Hold) {
        let uid = hold.uid.clone();
        if !self.holds.contains_key(&uid) {
            let spans = self.spans(&hold);
            self.holds.insert(uid.clone(), Hold { spans, ..hold });
            self.apply(&uid, true);
        }
    }

    /// Brings a hold back as it was stored, costs and all.
    pub fn restore_hold(&mut self, hold: Hold) {
        let uid = hold.uid.clone();
        if !self.holds.contains_key(&uid) {
            self.holds.insert(uid.clone(), hold);
            self.apply(&uid, true);
        }
    }

    /// A pod holds something else from `at` on: it was resized, or its init containers are done.
    pub fn change(&mut self, uid: &PodUid, devices: Vec<HeldDevice>, at: Time) {
        let Some(hold) = self.holds.get(uid) else { return };
        let same = hold.spans.last().is_some_and(|span| *span.devices == *devices);
        if same || hold.ended().is_some() {
            return;
        }
        self.amend(uid, |accounting, hold| {
            let at = at.max(hold.spans.last().map_or(at, |span| span.from));
            let mut next = hold.clone();
            next.spans = vec![Span { from: at, devices: devices.into(), tariffs: Vec::new() }];
            hold.spans.retain(|span| span.from < at);
            hold.spans.extend(accounting.spans(&next));
        });
    }

    /// A pod holds nothing any more, as the API server tells.
    pub fn close(&mut self, uid: &PodUid, end: End) {
        self.amend(uid, |_, hold| {
            let known = hold.end.get_or_insert(end);
            known.at = known.at.min(end.at);
            known.evicted |= end.evicted;
        });
    }

    /// A pod is gone and nobody knows since when; it was last seen at `at`.
    pub fn lose(&mut self, uid: &PodUid, at: Time) {
        self.amend(uid, |_, hold| hold.lost = Some(hold.lost.map_or(at, |known| known.max(at))));
    }

    /// A pod that was thought lost is there after all.
    pub fn find(&mut self, uid: &PodUid) {
        if self.holds.get(uid).is_some_and(|hold| hold.lost.is_some()) {
            self.amend(uid, |_, hold| hold.lost = None);
        }
    }

    /// A node reports on a pod. Any order, any number of times. False where this pod is not known to have held anything on this node: what
    /// a node says about other nodes' pods, or about pods that nobody has seen, changes no balance. No container was busy for longer than
    /// its pod was there.
    pub fn report(&mut self, node: &NodeName, record: &Record, now: Time) -> bool {
        let held_here = |hold: &&Hold| hold.node == *node && hold.pod == record.pod;
        let Some(hold) = self.holds.get(&record.uid).filter(held_here) else { return false };
        // A node's clock may run ahead of ours.
        let busy = record.busy.min(record.at.min(now).millis_since(hold.from()));
        let record = Record { at: record.at.min(self.at), busy, ..record.clone() };
        self.amend(&record.uid, |_, hold| hold.tell(&record));
        true
    }

    /// How a namespace stands.
    pub fn standing(&self, namespace: &Namespace) -> Standing {
        let covering = || self.covering(namespace).iter().filter_map(|key| Some((key, self.account(key)?)));
        let mut out: Vec<(&AccountKey, &Account, Time)> = Vec::new();
        for (key, account) in covering() {
            let last = account.timeline.intervals().last().filter(|i| i.to.is_none());
            out.extend(last.map(|interval| (key, account, interval.from)));
        }
        let stop = out.iter().any(|(_, account, _)| account.terms.on_exhaustion == OnExhaustion::Stop);
        let first = out.iter().min_by_key(|(_, _, since)| *since);
        let grace = |(_, account): (&AccountKey, &Account)| {
            let until = Time(account.empty_since?.0.saturating_add(account.terms.grace));
            (!account.timeline.is_out(self.at)).then_some(until)
        };
        Standing {
            class: if out.is_empty() { Class::Guarantee } else { Class::Opportunistic },
            stop,
            because: first.map(|(key, _, since)| ((*key).clone(), *since)),
            grace_until: covering().filter_map(grace).min(),
        }
    }

    /// The costs of a namespace's pods are worked out anew from this moment on.
    fn charge_anew(&mut self, namespace: &Namespace, from: Time) {
        let of_namespace = |hold: &&Hold| hold.pod.namespace == *namespace && hold.ended().is_none_or(|end| end > from);
        let open: Vec<PodUid> = self.holds.values().filter(of_namespace).map(|hold| hold.uid.clone()).collect();
        for uid in open {
            self.amend(&uid, |accounting, hold| {
                let Some(last) = hold.spans.last().cloned() else { return };
                let from = from.max(last.from);
                let tariffs = accounting.tariffs(namespace, &last.devices, from);
                if tariffs != last.tariffs {
                    hold.spans.retain(|span| span.from < from);
                    hold.spans.push(Span { from, tariffs, ..last });
                }
            });
        }
    }

    /// What devices cost the budgets that cover a namespace and exist at this moment.
    fn tariffs(&self, namespace: &Namespace, devices: &[HeldDevice], at: Time) -> Vec<(AccountKey, Tariff)> {
        let covering = self.covering(namespace).iter().filter_map(|key| Some((key, self.account(key)?)));
        let existing = covering.filter(|(_, account)| account.since <= at);
        existing.map(|(key, account)| (key.clone(), account.terms.cost.tariff(devices))).collect()
    }

    /// A hold's spans with their costs: a new one begins where a budget that covers its namespace does.
    fn spans(&self, hold: &Hold) -> Vec<Span> {
        let namespace = &hold.pod.namespace;
        let mut spans = Vec::new();
        for (index, span) in hold.spans.iter().enumerate() {
            let until = hold.spans.get(index + 1).map_or(Time(u64::MAX), |next| next.from);
            let begins = self.covering(namespace).iter().filter_map(|key| self.account(key)).map(|a| a.since);
            let mut starts: Vec<Time> = begins.filter(|since| span.from < *since && *since < until).collect();
            starts.push(span.from);
            starts.sort_unstable();
            starts.dedup();
            for from in starts {
                let tariffs = self.tariffs(namespace, &span.devices, from);
                spans.push(Span { from, devices: span.devices.clone(), tariffs });
            }
        }
        spans
    }
}

//! The books are opened: what was stored is read, and what happened since is found again.

use std::collections::BTreeMap;

use divvy_api::budget::charges::Unaccounted;
use divvy_api::budget::{GpuChargesSpec, read_amount};
use divvy_core::budget::{AccountKey, Accounting, Entry, EntryKind, Hold};
use divvy_core::id::{Namespace, PodUid};
use divvy_core::time::Time;

use super::Treasury;
use crate::calendar::{self, exact};
use crate::store::{self, StoredHold};

/// Charges as they were stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredCharges {
    /// The object's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it says.
    pub spec: GpuChargesSpec,
}

impl Treasury {
    /// The first hour whose charges are needed to open the books.
    pub fn needed_from(&self, now: Time) -> Time {
        let through = self.budgets.values().filter_map(|b| b.status.books.as_ref()).map(|b| Time(b.through)).min();
        Time(through.unwrap_or(now).0.min(now.0.saturating_sub(self.settings.late)))
    }

    /// Opens the books: balances from the budgets' statuses, holds from stored charges, and what pods tell. Everything after the
    /// oldest balance is found again by the next pass.
    pub fn open_books(&mut self, stored: Vec<StoredCharges>, now: Time) {
        let books = |key: &AccountKey| self.budgets.get(key).and_then(|b| b.status.books.as_ref());
        let followed: Vec<AccountKey> =
            self.budgets.iter().filter(|(_, b)| b.in_force.is_some()).map(|(key, _)| key.clone()).collect();
        let begin = |key: &AccountKey| books(key).map_or(self.budgets[key].created, |b| Time(b.at));
        let checkpoint = followed.iter().map(begin).min().unwrap_or(now).min(now);
        let last_seen = followed.iter().filter_map(books).map(|b| Time(b.at)).max().unwrap_or(checkpoint);

        let mut accounting = Accounting::new(checkpoint);
        let mut fresh = Vec::new();
        for key in &followed {
            let budget = &self.budgets[key];
            let Some(terms) = budget.in_force.clone() else { continue };
            self.calendars.0.insert(key.clone(), terms.period.clone());
            let window = terms.period.window();
            let stored = books(key).and_then(|b| Some((store::account(b, terms.terms.clone(), window)?, Time(b.at))));
            match stored {
                Some((account, at)) => accounting.restore(key.clone(), account, at),
                None => {
                    accounting.put_account(key, terms.terms, budget.created, window, &self.calendars);
                    fresh.push((budget.created, key.clone()));
                }
            }
        }
        self.sheets.forget_all();
        for hold in self.stored_holds(stored) {
            accounting.restore_hold(hold);
        }
        // Budgets whose balances are stored cover as they did; a new one from its creation on.
        fresh.sort();
        let namespaces: Vec<Namespace> = self.known_namespaces(&accounting);
        for namespace in &namespaces {
            let covering = self.covering(namespace);
            let old = covering.iter().filter(|key| fresh.iter().all(|(_, k)| k != *key)).cloned().collect();
            accounting.cover(namespace, old, checkpoint);
            for (created, _) in fresh.iter().filter(|(_, key)| covering.contains(key)) {
                let so_far = |key: &AccountKey| fresh.iter().all(|(at, k)| k != key || at <= created);
                accounting.cover(namespace, covering.iter().filter(|k| so_far(k)).cloned().collect(), *created);
            }
        }
        self.accounting = Some(accounting);
        let pods: Vec<PodUid> = self.pods.keys().cloned().collect();
        pods.iter().for_each(|uid| self.note_pod(uid, now));
        self.miss_pods(last_seen.min(now), now);
        let entries: Vec<String> = self.entries.keys().cloned().collect();
        entries.iter().for_each(|uid| self.book(uid));
        self.miss_nodes(now);
    }

    /// Closes the books: somebody else leads.
    pub fn close_books(&mut self) {
        self.accounting = None;
        self.sheets.forget_all();
        self.journals.clear();
        self.stopping.clear();
        self.classing.clear();
    }

    /// Of each hold what was stored last.
    fn stored_holds(&mut self, mut stored: Vec<StoredCharges>) -> Vec<Hold> {
        stored.sort_by(|a, b| (&a.spec.hour, &a.name).cmp(&(&b.spec.hour, &b.name)));
        let mut holds: BTreeMap<PodUid, Hold> = BTreeMap::new();
        for charges in stored {
            let spec = charges.spec;
            let Some(hour) = calendar::read(&spec.hour) else { continue };
            for value in spec.holds {
                match serde_json::from_value::<StoredHold>(value).ok().and_then(StoredHold::hold) {
                    Some(hold) => {
                        holds.insert(hold.uid.clone(), hold);
                    }
                    None => tracing::error!(charges = charges.name, "a pod's books cannot be read and are left out"),
                }
            }
            self.sheets.known(&Namespace::from(spec.namespace), hour, charges.name, charges.version, spec.unaccounted);
        }
        holds.into_values().collect()
    }

    fn known_namespaces(&self, accounting: &Accounting) -> Vec<Namespace> {
        let mut all: Vec<Namespace> = self.namespaces.keys().cloned().collect();
        all.extend(self.budgets.keys().filter_map(|key| key.namespace.clone()));
        all.extend(accounting.holds().map(|hold| hold.pod.namespace.clone()));
        all.sort();
        all.dedup();
        all
    }

    /// Pods that were there when the books were last written and are not any more: nobody saw them end.
    fn miss_pods(&mut self, last_seen: Time, now: Time) {
        let Some(accounting) = &mut self.accounting else { return };
        let gone = |hold: &&Hold| hold.ended().is_none() && !self.pods.contains_key(&hold.uid);
        let missed: Vec<Hold> = accounting.holds().filter(gone).cloned().collect();
        for hold in missed {
            let at = last_seen.max(hold.from());
            accounting.lose(&hold.uid, at);
            let line = Unaccounted {
                pod: Some(hold.pod.name.to_string()),
                uid: Some(hold.uid.to_string()),
                node: hold.node.to_string(),
                from: exact(at),
                to: exact(now),
                because: "it ended while nobody watched, and its node has not told when".to_owned(),
            };
            self.sheets.unaccounted(&hold.pod.namespace, at, line);
            self.sheets.touch(&hold.pod.namespace, at, now);
        }
    }

    /// Books what a person booked, if its budget is there. Twice is once.
    pub(super) fn book(&mut self, uid: &str) {
        let (Some(accounting), Some(entry)) = (&mut self.accounting, self.entries.get(uid)) else { return };
        let (meta, spec) = (&entry.metadata, &entry.spec);
        let key = match (&spec.budget, &spec.cluster_budget) {
            (Some(name), None) => {
                AccountKey { namespace: Some(Namespace::from(meta.namespace.as_str())), name: name.as_str().into() }
            }
            (None, Some(name)) if meta.namespace == self.settings.home => {
                AccountKey { namespace: None, name: name.as_str().into() }
            }
            _ => return,
        };
        let Some(budget) = self.budgets.get_mut(&key) else { return };
        let Some(terms) = &budget.in_force else { return };
        let (kind, amount) = match (&spec.top_up, &spec.credit, &spec.debit) {
            (Some(text), None, None) => (EntryKind::TopUp, text),
            (None, Some(text), None) => (EntryKind::Credit, text),
            (None, None, Some(text)) => (EntryKind::Debit, text),
            _ => return,
        };
        let at = meta.creation_timestamp.map_or(0, |at| u64::try_from(at.as_millisecond()).unwrap_or(0));
        match read_amount(&terms.unit, amount) {
            Ok(amount) => {
                accounting.post(&key, uid, Entry { kind, amount, at: Time(at) });
            }
            Err(problem) => {
                let problem = format!("entry {} is not booked: {problem}", meta.name);
                if !budget.entry_problems.contains(&problem) {
                    budget.entry_problems.push(problem);
                }
            }
        }
    }
}

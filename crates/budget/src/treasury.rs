//! Everything the controller knows, and what it wants written. No async, no clock: time is an argument.

mod charges;
mod classes;
mod journal;
mod kept;
mod open;
mod pass;
mod pods;
mod quotas;
mod resource_quotas;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_api::budget::spec::{NamespaceSelector, Per};
use divvy_api::budget::{BudgetObject, ClusterBudgetObject, EntryObject};
use divvy_api::policy::ClusterPolicy;
use divvy_core::ask::Class;
use divvy_core::budget::{AccountKey, Accounting, Price};
use divvy_core::id::{Namespace, NodeName, PodUid};
use divvy_core::keys;
use divvy_core::time::Time;

use crate::calendar::Calendars;
use crate::facts::PodFacts;
use crate::news::{Kind, News, NodeSeen};

pub use charges::hour_of;
pub use kept::{Budget, Origin};
pub use open::StoredCharges;
pub use pass::{Pass, Written};

const HOUR: u64 = 3_600_000;

/// What the controller is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace Divvy is installed in: charges are kept there.
    pub home: String,
    /// So long after a pod's end, in milliseconds, what comes to light about it is still taken in.
    pub late: u64,
    /// So long, in milliseconds, charges are kept.
    pub retention: u64,
    /// At least so long, in milliseconds, between two writes of a status that says nothing new but numbers.
    pub refresh: u64,
    /// Most writes to our own objects per pass.
    pub writes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { home: "divvy-system".into(), late: 24 * HOUR, retention: 7 * 24 * HOUR, refresh: 10_000, writes: 20 }
    }
}

/// Everything the controller knows.
#[derive(Debug)]
pub struct Treasury {
    settings: Settings,
    /// None until everything was told and what was stored is read.
    accounting: Option<Accounting>,
    calendars: Calendars,
    budgets: BTreeMap<AccountKey, Budget>,
    /// Cluster budgets that give each namespace its own.
    templates: BTreeMap<String, Budget>,
    namespaces: BTreeMap<Namespace, BTreeMap<String, String>>,
    nodes: BTreeMap<NodeName, NodeSeen>,
    pods: BTreeMap<PodUid, PodFacts>,
    entries: BTreeMap<String, EntryObject>,
    quotas: BTreeMap<(Namespace, String), quotas::Kept>,
    resource_quotas: BTreeMap<(Namespace, String), resource_quotas::Hard>,
    sheets: charges::Sheets,
    journals: BTreeMap<NodeName, journal::Reading>,
    stopping: BTreeMap<PodUid, Time>,
    /// Classes that were written and have not come back by the watch yet.
    classing: BTreeMap<PodUid, (Class, Time)>,
    class: Class,
    /// The policy in force.
    policy: Arc<ClusterPolicy>,
    /// What models cost about which a budget says nothing.
    prices: Vec<(Arc<str>, Price)>,
    complete: BTreeSet<Kind>,
}

impl Treasury {
    /// Knows nothing yet.
    pub fn new(settings: Settings) -> Treasury {
        Treasury {
            settings,
            accounting: None,
            calendars: Calendars::default(),
            budgets: BTreeMap::new(),
            templates: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            entries: BTreeMap::new(),
            quotas: BTreeMap::new(),
            resource_quotas: BTreeMap::new(),
            sheets: charges::Sheets::default(),
            journals: BTreeMap::new(),
            stopping: BTreeMap::new(),
            classing: BTreeMap::new(),
            class: Class::Guarantee,
            policy: Arc::default(),
            prices: Vec::new(),
            complete: BTreeSet::new(),
        }
    }

    /// Has everything been told at least once?
    pub fn is_complete(&self) -> bool {
        self.complete.len() == Kind::ALL.len()
    }

    /// Are the books open?
    pub fn is_open(&self) -> bool {
        self.accounting.is_some()
    }

    /// The accounting, for whoever asks.
    pub fn accounting(&self) -> Option<&Accounting> {
        self.accounting.as_ref()
    }

    /// The budgets, by balance.
    pub fn budgets(&self) -> &BTreeMap<AccountKey, Budget> {
        &self.budgets
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeSeen> {
        self.nodes.values()
    }

    /// Takes news in.
    pub fn hear(&mut self, news: News, now: Time) {
        match news {
            News::Budget(object) => self.budget(*object),
            News::BudgetGone(namespace, name) => {
                let key = AccountKey { namespace: Some(Namespace::from(namespace)), name: name.into() };
                self.budget_gone(&key);
            }
            News::Cluster(object) => self.cluster(*object),
            News::ClusterGone(name) => {
                self.templates.remove(&name);
                self.budget_gone(&AccountKey { namespace: None, name: name.into() });
            }
            News::Entry(entry) => {
                let uid = entry.metadata.uid.clone();
                self.entries.insert(uid.clone(), *entry);
                self.book(&uid);
            }
            News::Quota(quota) => self.quota(*quota),
            News::QuotaGone(namespace, name) => {
                self.quotas.remove(&(Namespace::from(namespace), name));
            }
            News::ResourceQuota(namespace, name, hard) => {
                self.resource_quotas.insert((Namespace::from(namespace), name), hard);
            }
            News::ResourceQuotaGone(namespace, name) => {
                self.resource_quotas.remove(&(Namespace::from(namespace), name));
            }
            News::Namespace(name, labels) => {
                self.namespaces.insert(name.clone(), labels);
                self.cover(&name, None);
            }
            News::NamespaceGone(name) => {
                self.namespaces.remove(&name);
                self.cover(&name, None);
            }
            News::Node(node) => self.node(*node, now),
            News::NodeGone(name) => self.node_gone(&name, now),
            News::Pod(facts) => self.pod(*facts, now),
            News::PodGone(uid) => self.pod_gone(&uid, now),
            News::Page(asked, after, page) => self.page(&asked, after, &page, now),
            News::Policy(policy) => self.policy(policy),
            News::Complete(kind) => {
                self.complete.insert(kind);
            }
        }
    }

    /// The policy is like this now: budgets without prices of their own are read anew.
    fn policy(&mut self, policy: Arc<ClusterPolicy>) {
        self.class = policy.scheduling.class;
        self.policy = policy.clone();
        if self.prices == policy.prices {
            return;
        }
        self.prices = policy.prices.clone();
        self.templates.values_mut().for_each(|template| template.read_anew(&policy.prices));
        for (key, mut budget) in self.budgets.clone() {
            budget.read_anew(&policy.prices);
            self.put(key, budget);
        }
    }

    fn budget(&mut self, object: BudgetObject) {
        let meta = &object.metadata;
        let key =
            AccountKey { namespace: Some(Namespace::from(meta.namespace.as_str())), name: meta.name.as_str().into() };
        let template = meta.labels.get(keys::BUDGET_TEMPLATE).cloned();
        let origin = Origin::Own { template };
        self.put(key, Budget::new(meta, object.spec.budget, origin, object.status, &self.prices));
    }

    fn cluster(&mut self, object: ClusterBudgetObject) {
        let (name, spec) = (object.metadata.name.clone(), object.spec);
        let key = AccountKey { namespace: None, name: name.as_str().into() };
        let origin = Origin::Cluster { selector: spec.selector };
        let budget = Budget::new(&object.metadata, spec.budget, origin, object.status, &self.prices);
        match spec.per {
            Per::Namespace => {
                self.budget_gone(&key);
                self.templates.insert(name, budget);
            }
            Per::Selector => {
                self.templates.remove(&name);
                self.put(key, budget);
            }
        }
    }

    /// A budget is like this now.
    fn put(&mut self, key: AccountKey, mut budget: Budget) {
        let before = self.budgets.remove(&key);
        if let Some(before) = &before {
            budget.written = before.written;
            budget.entry_problems = before.entry_problems.clone();
            // One that cannot be followed changes nothing.
            if budget.read.is_err() {
                budget.in_force = before.in_force.clone();
            }
        }
        let known = before.as_ref().and_then(|b| b.in_force.clone());
        let terms = budget.in_force.clone();
        let created = budget.created;
        self.budgets.insert(key.clone(), budget);
        let Some(terms) = terms else { return };
        let turned = known.as_ref().is_some_and(|known| known.period != terms.period);
        self.calendars.0.insert(key.clone(), terms.period.clone());
        let Some(accounting) = &mut self.accounting else { return };
        if known.as_ref() != Some(&terms) {
            let costs_otherwise = known.as_ref().is_some_and(|known| known.terms.cost != terms.terms.cost);
            accounting.put_account(&key, terms.terms, created, terms.period.window(), &self.calendars);
            if turned {
                accounting.reschedule(&key, &self.calendars);
            }
            if costs_otherwise {
                // From when on pods cost something else is in their books, to be stored with them.
                let at = accounting.at();
                self.may_cover(&key).iter().for_each(|namespace| self.touch_namespace(namespace, at));
            }
        }
        if known.is_none() || before.is_none_or(|b| b.origin != self.budgets[&key].origin) {
            self.cover_all(&key, Some(created));
            let entries: Vec<String> = self.entries.keys().cloned().collect();
            entries.iter().for_each(|uid| self.book(uid));
        }
    }

    fn budget_gone(&mut self, key: &AccountKey) {
        if self.budgets.remove(key).is_some() {
            if let Some(accounting) = &mut self.accounting {
                accounting.remove_account(key);
            }
            self.cover_all(key, None);
            self.calendars.0.remove(key);
        }
    }

    /// Says anew which budgets cover the namespaces a budget may be about.
    fn cover_all(&mut self, key: &AccountKey, from: Option<Time>) {
        self.may_cover(key).iter().for_each(|namespace| self.cover(namespace, from));
    }

    /// The namespaces a budget may be about.
    fn may_cover(&self, key: &AccountKey) -> Vec<Namespace> {
        match &key.namespace {
            Some(namespace) => vec![namespace.clone()],
            None => self.namespaces.keys().cloned().collect(),
        }
    }

    /// Says anew which budgets cover a namespace.
    fn cover(&mut self, namespace: &Namespace, from: Option<Time>) {
        let covering = self.covering(namespace);
        let Some(accounting) = &mut self.accounting else { return };
        let from = from.unwrap_or(accounting.at());
        if accounting.covering(namespace) != covering.as_slice() {
            accounting.cover(namespace, covering, from);
            self.touch_namespace(namespace, from);
        }
    }

    /// The budgets that can be followed and are for a namespace, in order.
    fn covering(&self, namespace: &Namespace) -> Vec<AccountKey> {
        let labels = self.namespaces.get(namespace);
        let own = AccountKey { namespace: Some(namespace.clone()), name: Arc::from("") };
        let own = self.budgets.range(own..).take_while(|(key, _)| key.namespace.as_ref() == Some(namespace));
        let pooled = self.budgets.iter().take_while(|(key, _)| key.namespace.is_none());
        let chosen = pooled.filter(|(_, budget)| match (&budget.origin, labels) {
            (Origin::Cluster { selector }, Some(labels)) => selector.chooses(labels),
            _ => false,
        });
        let mut keys: Vec<AccountKey> =
            own.chain(chosen).filter(|(_, budget)| budget.in_force.is_some()).map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// The namespaces a selector chooses.
    fn chosen<'a>(&'a self, selector: &'a NamespaceSelector) -> impl Iterator<Item = &'a Namespace> {
        self.namespaces.iter().filter(|(_, labels)| selector.chooses(labels)).map(|(name, _)| name)
    }
}

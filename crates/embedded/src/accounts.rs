//! The budgets' part of the control plane: what pods hold is told to the core's accounts, and what those say is carried out.
//!
//! Which class a namespace has, and when it changes, is [`Accounting`]'s to say. Here pods are watched and annotated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_cluster::change::Change;
use divvy_cluster::effect::{Annotate, Effect, Target};
use divvy_core::ask::Class;
use divvy_core::budget::{
    AccountKey, Accounting, Amount, Calendar, CostRule, End, Happened, Hold, Prices, Terms, What, cost::held,
};
use divvy_core::device::Inventory;
use divvy_core::id::{Namespace, NodeName, PodKey, PodUid};
use divvy_core::keys;
use divvy_core::time::Time;

use crate::store::Embedded;

const DAY: u64 = 86_400_000;
/// Holds that ended are kept one by one for so long, for the burn-down.
const KEPT: u64 = 6 * 3_600_000;

/// Every budget of the demo is for a day.
struct Days;

impl Calendar for Days {
    fn bucket(&self, _: &AccountKey, at: Time) -> (Time, Time) {
        let start = at.0 / DAY * DAY;
        (Time(start), Time(start + DAY))
    }
}

/// GPU hours per day for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Whose.
    pub namespace: &'static str,
    /// How many GPU hours.
    pub hours: i64,
}

/// The accounts, and what is known of the pods that are charged.
#[derive(Debug)]
pub struct Accounts {
    cluster: Embedded,
    accounting: Accounting,
    inventories: BTreeMap<NodeName, Inventory>,
    /// Pods whose class is the budget's to decide, waiting or bound.
    pods: BTreeMap<PodUid, PodKey>,
    evicted: BTreeSet<PodUid>,
    classes: BTreeMap<Namespace, Class>,
}

impl Accounts {
    /// Nobody has a budget yet.
    pub fn new(cluster: Embedded, now: Time) -> Accounts {
        Accounts {
            cluster,
            accounting: Accounting::new(now),
            inventories: BTreeMap::new(),
            pods: BTreeMap::new(),
            evicted: BTreeSet::new(),
            classes: BTreeMap::new(),
        }
    }

    /// A namespace has so much to spend a day; opportunistic pods pay a quarter.
    pub fn allow(&mut self, allowance: Allowance) {
        let namespace = Namespace::from(allowance.namespace);
        let key = AccountKey { namespace: Some(namespace.clone()), name: Arc::from("daily") };
        let cost = CostRule { prices: Prices::time(), opportunistic: 25, ..CostRule::default() };
        let terms = Terms { amount: Amount::units(allowance.hours * 3_600), cost, ..Terms::default() };
        let now = self.accounting.at();
        self.accounting.put_account(&key, terms, now, 1, &Days);
        self.accounting.cover(&namespace, vec![key], now);
    }

    /// The accounts themselves.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// A pod was told to go to make room.
    pub(crate) fn evicted(&mut self, uid: &PodUid) {
        self.evicted.insert(uid.clone());
    }

    /// Something changed in the cluster.
    pub(crate) fn hear(&mut self, change: &Change, now: Time) {
        match change {
            Change::Node(node, _) => {
                self.inventories.insert(node.name.clone(), node.inventory.clone());
            }
            Change::Pod(seen) => {
                let pod = &seen.pod;
                if self.accounting.covering(&pod.key.namespace).is_empty() {
                    return;
                }
                let by_choice = pod.ask.as_ref().and_then(|ask| ask.class).is_some();
                if !by_choice && pod.ask.is_some() {
                    self.pods.insert(pod.uid.clone(), pod.key.clone());
                }
                let Some(bound) = pod.bound() else { return };
                let Some(grant) = bound.grant.as_deref() else { return };
                let Some(inventory) = self.inventories.get(&bound.node) else { return };
                let devices = held(grant, inventory, bound.init_done);
                let hold = Hold::new(pod.uid.clone(), pod.key.clone(), bound.node.clone(), bound.since, devices);
                let opportunistic = pod.ask.as_ref().and_then(|ask| ask.class) == Some(Class::Opportunistic);
                self.accounting.open(Hold { by_choice: opportunistic, ..hold });
            }
            Change::PodGone(uid) => {
                self.pods.remove(uid);
                let evicted = self.evicted.remove(uid);
                self.accounting.close(uid, End { at: now, evicted });
            }
            _ => {}
        }
    }

    /// Accounts for everything until now, and lets pods have the class their namespace has.
    pub(crate) fn advance(&mut self, now: Time) -> Vec<Happened> {
        let happened = self.accounting.advance(now, &Days);
        for Happened { account, what, .. } in &happened {
            let news = match what {
                What::Turned | What::Emptied => continue,
                What::Out => ("OutOfBudget", "nothing is left for today: its pods are opportunistic until it is", true),
                What::Back => ("BackInBudget", "there is something to spend again", false),
            };
            self.cluster.lock().tell(account.to_string(), news.0, news.1.to_owned(), news.2);
        }
        self.accounting.fold(Time(now.0.saturating_sub(KEPT)));
        let covered: BTreeSet<Namespace> =
            self.accounting.accounts().filter_map(|(key, _)| key.namespace.clone()).collect();
        for namespace in covered {
            let class = self.accounting.standing(&namespace).class;
            if self.classes.insert(namespace.clone(), class) == Some(class) {
                continue;
            }
            let mut store = self.cluster.lock();
            store.set_class(&namespace, class);
            for (uid, key) in self.pods.iter().filter(|(_, key)| key.namespace == namespace) {
                let value = serde_json::to_value(class).ok().and_then(|word| word.as_str().map(str::to_owned));
                let annotations = [(keys::CLASS_NOW.to_owned(), value)].into();
                let target = Target { pod: key.clone(), uid: uid.clone() };
                let _ = store.carry_out(&Effect::Annotate(Annotate { target, annotations }));
            }
        }
        happened
    }
}

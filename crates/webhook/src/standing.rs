//! How namespaces stand with their budgets and quotas, as the objects' statuses say. Eventually right: the budget controller puts a
//! class right that was given a moment too early, and the scheduler counts quotas for itself.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use divvy_api::budget::spec::{NamespaceSelector, Per, PriorityClasses};
use divvy_api::budget::{BudgetObject, ClusterBudgetObject, QuotaObject, State, read_quota};
use divvy_core::ask::{Class, GpuAsk};
use divvy_core::id::{Model, Namespace};
use divvy_core::quota::{Held, Quotas, Usage};

/// What admission has to know of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Budgets cover it, and this is the class they give.
    pub class: Option<Class>,
    /// A budget is used up and stops pods: why, in a sentence.
    pub stopped: Option<String>,
    /// PriorityClasses for pods that name none.
    pub priority_classes: Option<PriorityClasses>,
    /// Quotas, and what is held of them.
    pub quotas: Option<Arc<QuotaBook>>,
}

/// Quotas, and what everybody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaBook {
    quotas: Quotas,
    everybody: BTreeMap<Namespace, Held>,
}

impl Standing {
    /// What is too much about an ask, if something is, in one sentence.
    pub fn too_much(&self, namespace: &str, ask: &GpuAsk) -> Option<String> {
        let book = self.quotas.as_ref()?;
        let excess = book.quotas.admits(&book.everybody, &Namespace::from(namespace), ask).err()?;
        let text: Vec<String> = excess.iter().map(ToString::to_string).collect();
        Some(format!("the pod exceeds {}", text.join("; ")))
    }
}

/// How all namespaces stand, kept by whoever watches.
#[derive(Clone, Debug, Default)]
pub struct Standings(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By namespace and name.
    own: BTreeMap<(String, String), Known>,
    /// Shared by the namespaces a selector chooses, by name.
    pooled: BTreeMap<String, (NamespaceSelector, Known)>,
    quotas: BTreeMap<(String, String), QuotaObject>,
    book: Arc<QuotaBook>,
}

/// What is known of a budget.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    state: State,
    message: String,
    priority_classes: Option<PriorityClasses>,
}

impl Standings {
    fn write(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// A GpuBudget is like this now.
    pub fn budget(&self, object: BudgetObject) {
        let meta = object.metadata;
        let known = Known {
            name: meta.name.clone(),
            state: object.status.state,
            message: object.status.message,
            priority_classes: object.spec.budget.priority_classes,
        };
        self.write(|inner| drop(inner.own.insert((meta.namespace, meta.name), known)));
    }

    /// A GpuBudget is gone.
    pub fn budget_gone(&self, namespace: String, name: String) {
        self.write(|inner| drop(inner.own.remove(&(namespace, name))));
    }

    /// A ClusterGpuBudget is like this now.
    pub fn cluster(&self, object: ClusterBudgetObject) {
        let name = object.metadata.name;
        let known = Known {
            name: name.clone(),
            state: object.status.state,
            message: object.status.message,
            priority_classes: object.spec.budget.priority_classes,
        };
        self.write(|inner| match object.spec.per {
            Per::Selector => drop(inner.pooled.insert(name, (object.spec.selector, known))),
            // Namespaces have copies of their own.
            Per::Namespace => drop(inner.pooled.remove(&name)),
        });
    }

    /// A ClusterGpuBudget is gone.
    pub fn cluster_gone(&self, name: &str) {
        self.write(|inner| drop(inner.pooled.remove(name)));
    }

    /// A GpuQuota is like this now.
    pub fn quota(&self, object: QuotaObject) {
        let key = (object.metadata.namespace.clone(), object.metadata.name.clone());
        self.write(|inner| {
            inner.quotas.insert(key, object);
            inner.count();
        });
    }

    /// A GpuQuota is gone.
    pub fn quota_gone(&self, namespace: String, name: String) {
        self.write(|inner| {
            inner.quotas.remove(&(namespace, name));
            inner.count();
        });
    }

    /// How a namespace with these labels stands.
    pub fn of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Standing {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let first = (namespace.to_owned(), String::new());
        let own = inner.own.range(first..).take_while(|((ns, _), _)| ns == namespace).map(|(_, known)| known);
        let pooled = inner.pooled.values().filter(|(selector, _)| selector.chooses(labels)).map(|(_, known)| known);
        let mut standing = Standing::default();
        for known in own.chain(pooled) {
            let class = match known.state {
                State::InBudget => Class::Guarantee,
                // The grace is for pods that run already.
                State::Grace | State::OutOfBudget | State::Stopped => Class::Opportunistic,
                State::Invalid | State::Template => continue,
            };
            // The lesser class of several budgets counts.
            standing.class = Some(standing.class.map_or(class, |before| before.min(class)));
            if known.state == State::Stopped && standing.stopped.is_none() {
                standing.stopped = Some(format!("budget {}: {}", known.name, known.message));
            }
            standing.priority_classes = standing.priority_classes.or_else(|| known.priority_classes.clone());
        }
        let has_quota = inner.book.quotas.0.contains_key(namespace);
        standing.quotas = has_quota.then(|| inner.book.clone());
        standing
    }
}

impl Inner {
    /// Quotas and what is held of them, gathered anew.
    fn count(&mut self) {
        let mut book = QuotaBook::default();
        for ((namespace, name), object) in &self.quotas {
            let namespace = Namespace::from(namespace.as_str());
            if let Ok(quota) = read_quota(name, &object.spec) {
                book.quotas.0.entry(namespace.clone()).or_default().push(quota);
            }
            // Every quota of a namespace tells the same.
            let mut held = Held::default();
            for of_model in &object.status.held {
                let usage = Usage { devices: of_model.devices, share: of_model.share, memory: of_model.memory };
                held.add(&Held::of(&Model::from(of_model.model.as_str()), usage));
            }
            book.everybody.insert(namespace, held);
        }
        self.book = Arc::new(book);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn budget(state: &str) -> BudgetObject {
        serde_json::from_value(json!({
            "metadata": {"name": "gpu", "namespace": "team"},
            "spec": {"gpuTime": "1h", "priorityClasses": {"inBudget": "high", "outOfBudget": "low"}},
            "status": {"state": state, "message": "used up"},
        }))
        .unwrap()
    }

    #[test]
    fn a_namespace_has_the_class_its_budgets_give_it() {
        let standings = Standings::default();
        let of = || standings.of("team", &BTreeMap::new());
        assert_eq!(of(), Standing::default());
        standings.budget(budget("InBudget"));
        assert_eq!(of().class, Some(Class::Guarantee));
        standings.budget(budget("Grace"));
        assert_eq!((of().class, of().stopped), (Some(Class::Opportunistic), None));
        standings.budget(budget("Stopped"));
        assert_eq!(of().stopped.as_deref(), Some("budget gpu: used up"));
        standings.budget_gone("team".into(), "gpu".into());
        assert_eq!(of(), Standing::default());
    }

    #[test]
    fn a_pooled_budget_counts_where_its_selector_chooses() {
        let standings = Standings::default();
        standings.cluster(
            serde_json::from_value(json!({
                "metadata": {"name": "pool"},
                "spec": {"per": "selector", "gpuTime": "1h", "selector": {"matchLabels": {"team": "x"}}},
                "status": {"state": "OutOfBudget"},
            }))
            .unwrap(),
        );
        let labels = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
        assert_eq!(standings.of("a", &labels("x")).class, Some(Class::Opportunistic));
        assert_eq!(standings.of("a", &labels("y")).class, None);
    }
}

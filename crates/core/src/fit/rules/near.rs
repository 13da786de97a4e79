//! Inter-pod affinity: pods that must or must not be near others, where "near" is the same value of a node label.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::snapshot::Snapshot;
use crate::model::id::Namespace;
use crate::model::labels::Labels;
use crate::model::node::Node;
use crate::model::pod::{Pod, PodTerm};
use crate::model::reason::NodeReason;

/// A label and one of its values: the nodes that have it are near each other.
type Domain = (Arc<str>, Arc<str>);

/// A pod's terms, counted over the cluster.
#[derive(Debug, Default)]
pub(crate) struct Near {
    /// The label of every required term.
    wanted_keys: Vec<Arc<str>>,
    /// Where there is a pod that all required terms select.
    wanted: BTreeSet<Domain>,
    /// No such pod exists, and the pod would be one itself: it may be the first.
    may_be_first: bool,
    /// Where there is a pod it must be apart from.
    unwanted: BTreeSet<Domain>,
    /// Where there is a pod that does not want it.
    repelled: BTreeSet<Domain>,
    /// What each place counts among its wishes.
    wishes: BTreeMap<Domain, i64>,
}

fn selects(term: &PodTerm, owner: &Namespace, snapshot: &Snapshot, namespace: &Namespace, labels: &Labels) -> bool {
    let Some(selector) = &term.selector else { return false };
    let in_namespace = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        namespace == owner
    } else {
        let none = Labels::new();
        term.namespaces.contains(namespace)
            || term.namespace_selector.as_ref().is_some_and(|selector| {
                selector.selects(snapshot.surroundings().namespaces.get(namespace).unwrap_or(&none))
            })
    };
    in_namespace && selector.selects(labels)
}

impl Near {
    /// The pod's terms; absent where it has none and nobody minds it.
    pub(crate) fn of(snapshot: &Snapshot, pod: &Pod) -> Option<Near> {
        let spec = &pod.spec;
        let own = &pod.key.namespace;
        let mut near =
            Near { wanted_keys: spec.near.iter().map(|t| t.topology_key.clone()).collect(), ..Near::default() };
        for (_, other) in snapshot.repelling() {
            let Some(node) = other.on().and_then(|ix| snapshot.node_at(ix)) else { continue };
            for term in &other.pod().spec.apart {
                if selects(term, &other.pod().key.namespace, snapshot, own, &pod.labels)
                    && let Some(value) = node.node().labels.get(&term.topology_key)
                {
                    near.repelled.insert((term.topology_key.clone(), value.clone()));
                }
            }
        }
        if spec.near.is_empty() && spec.apart.is_empty() && spec.pod_preference.is_empty() {
            return (!near.repelled.is_empty()).then_some(near);
        }
        for (_, state) in snapshot.nodes() {
            let labels = &state.node().labels;
            for other in state.pods().iter().filter_map(|ix| snapshot.pod_at(*ix)) {
                let other = other.pod();
                near.count(snapshot, pod, other, labels);
            }
        }
        near.may_be_first =
            near.wanted.is_empty() && spec.near.iter().all(|t| selects(t, own, snapshot, own, &pod.labels));
        Some(near)
    }

    fn count(&mut self, snapshot: &Snapshot, pod: &Pod, other: &Pod, labels: &Labels) {
        let own = &pod.key.namespace;
        let hit = |term: &PodTerm| selects(term, own, snapshot, &other.key.namespace, &other.labels);
        let domain = |key: &Arc<str>| labels.get(key).map(|value| (key.clone(), value.clone()));
        if !pod.spec.near.is_empty() && pod.spec.near.iter().all(hit) {
            self.wanted.extend(pod.spec.near.iter().filter_map(|t| domain(&t.topology_key)));
        }
        self.unwanted.extend(pod.spec.apart.iter().filter(|t| hit(t)).filter_map(|t| domain(&t.topology_key)));
        for wish in pod.spec.pod_preference.iter().filter(|w| hit(&w.what)) {
            if let Some(domain) = domain(&wish.what.topology_key) {
                *self.wishes.entry(domain).or_default() += i64::from(wish.weight);
            }
        }
    }

    pub(crate) fn check(&self, node: &Node) -> Result<(), NodeReason> {
        let value = |key: &Arc<str>| node.labels.get(key);
        let within = |domains: &BTreeSet<Domain>| domains.iter().any(|(key, at)| value(key) == Some(at));
        let here = |key: &Arc<str>| value(key).is_some_and(|at| self.wanted.contains(&(key.clone(), at.clone())));
        let has_label = |key: &Arc<str>| value(key).is_some();
        let near = self.wanted_keys.iter().all(here) || (self.may_be_first && self.wanted_keys.iter().all(has_label));
        if !near {
            return Err(NodeReason::NotNear);
        }
        if within(&self.unwanted) {
            return Err(NodeReason::TooNear);
        }
        if within(&self.repelled) {
            return Err(NodeReason::Repelled);
        }
        Ok(())
    }

    pub(crate) fn wishes(&self, node: &Node) -> i64 {
        self.wishes.iter().filter(|((key, at), _)| node.labels.get(key) == Some(at)).map(|(_, weight)| weight).sum()
    }
}

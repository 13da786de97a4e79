//! Topology spread: no domain may have many more of a kind of pod than the emptiest.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fit::rules::node;
use crate::ledger::snapshot::Snapshot;
use crate::model::labels::{Op, Requirement, Selector};
use crate::model::node::Node;
use crate::model::pod::{Pod, SpreadRule};
use crate::model::reason::NodeReason;

/// A pod's spread rules, counted over the cluster.
#[derive(Debug)]
pub(crate) struct Spread {
    hard: Vec<Counted>,
    soft: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    key: Arc<str>,
    max_skew: u32,
    /// The pod counts itself.
    own: u32,
    /// Pods of its like in each domain that counts.
    domains: BTreeMap<Arc<str>, u32>,
    least: u32,
}

impl Spread {
    /// The pod's rules; absent where it has none.
    pub(crate) fn of(snapshot: &Snapshot, pod: &Pod) -> Option<Spread> {
        if pod.spec.spread.is_empty() {
            return None;
        }
        let (hard, soft): (Vec<&SpreadRule>, Vec<&SpreadRule>) = pod.spec.spread.iter().partition(|rule| rule.hard);
        let count = |rules: &[&SpreadRule]| rules.iter().map(|rule| counted(snapshot, pod, rule, rules)).collect();
        Some(Spread { hard: count(&hard), soft: count(&soft) })
    }

    pub(crate) fn check(&self, node: &Node) -> Result<(), NodeReason> {
        for rule in &self.hard {
            let Some(value) = node.labels.get(&rule.key) else {
                return Err(NodeReason::NoDomain { topology_key: rule.key.clone() });
            };
            let here = rule.domains.get(value).copied().unwrap_or(0);
            if (here + rule.own).saturating_sub(rule.least) > rule.max_skew {
                return Err(NodeReason::Uneven { topology_key: rule.key.clone() });
            }
        }
        Ok(())
    }

    /// How crowded the node's domains already are, for rules that only wish.
    pub(crate) fn crowd(&self, node: &Node) -> i64 {
        let here = |rule: &Counted| node.labels.get(&rule.key).and_then(|v| rule.domains.get(v)).copied().unwrap_or(0);
        self.soft.iter().map(|rule| i64::from(here(rule))).sum()
    }
}

fn counted(snapshot: &Snapshot, pod: &Pod, rule: &SpreadRule, all: &[&SpreadRule]) -> Counted {
    let selector = rule.selector.as_ref().map(|selector| {
        let own_values = rule
            .match_label_keys
            .iter()
            .filter_map(|key| Some(Requirement { key: key.clone(), op: Op::In(vec![pod.labels.get(key)?.clone()]) }));
        Selector(selector.0.iter().cloned().chain(own_values).collect())
    });
    let like = |other: &Pod| {
        other.key.namespace == pod.key.namespace && selector.as_ref().is_some_and(|s| s.selects(&other.labels))
    };
    let mut domains: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for (_, state) in snapshot.nodes() {
        let node = state.node();
        // A node counts only where every rule can be counted, as in Kubernetes.
        let counts = all.iter().all(|r| node.labels.contains_key(&r.topology_key))
            && (!rule.honor_affinity || node::matches_affinity(pod, node))
            && (!rule.honor_taints || node::tolerates(pod, node));
        let Some(value) = node.labels.get(&rule.topology_key).filter(|_| counts) else { continue };
        let there = state.pods().iter().filter_map(|ix| snapshot.pod_at(*ix));
        let lasting = there.filter(|p| !p.pod().bound().is_some_and(|b| b.terminating));
        let count = lasting.filter(|p| like(p.pod())).count() as u32;
        *domains.entry(value.clone()).or_default() += count;
    }
    let enough = rule.min_domains.is_none_or(|min| domains.len() >= min as usize);
    let least = if enough { domains.values().copied().min().unwrap_or(0) } else { 0 };
    Counted { key: rule.topology_key.clone(), max_skew: rule.max_skew, own: u32::from(like(pod)), domains, least }
}

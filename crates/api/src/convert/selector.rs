//! Selectors, affinity terms, tolerations.

use std::sync::Arc;

use divvy_core::id::Namespace;
use divvy_core::labels::{Op, Requirement, Selector};
use divvy_core::node::{Effect, NodeTerm};
use divvy_core::pod::{PodTerm, SpreadRule, Toleration, TolerationValue, Weighted};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::texts;

/// A requirement that nothing meets: what Kubernetes makes of an operator or a number it cannot read.
fn never(key: Arc<str>) -> Requirement {
    Requirement { key, op: Op::In(Vec::new()) }
}

fn requirement(key: &str, operator: &str, values: Option<Vec<String>>) -> Requirement {
    let key: Arc<str> = key.into();
    let values = texts(values);
    let number = || values.first().and_then(|v| v.parse::<i64>().ok());
    let op = match operator {
        "In" => Op::In(values),
        "NotIn" => Op::NotIn(values),
        "Exists" => Op::Exists,
        "DoesNotExist" => Op::DoesNotExist,
        "Gt" => match number() {
            Some(bound) => Op::Gt(bound),
            None => return never(key),
        },
        "Lt" => match number() {
            Some(bound) => Op::Lt(bound),
            None => return never(key),
        },
        _ => return never(key),
    };
    Requirement { key, op }
}

/// A label selector; one that is absent selects nothing, which the caller keeps as `None`.
pub(super) fn selector(selector: LabelSelector) -> Selector {
    let equal = selector.match_labels.unwrap_or_default().into_iter();
    let mut all: Vec<Requirement> =
        equal.map(|(key, value)| Requirement { key: key.into(), op: Op::In(vec![value.into()]) }).collect();
    for e in selector.match_expressions.unwrap_or_default() {
        all.push(requirement(&e.key, &e.operator, e.values));
    }
    Selector(all)
}

pub(super) fn node_terms(selector: k8s::NodeSelector) -> Vec<NodeTerm> {
    selector.node_selector_terms.into_iter().map(node_term).collect()
}

pub(super) fn node_term(term: k8s::NodeSelectorTerm) -> NodeTerm {
    let read = |list: Option<Vec<k8s::NodeSelectorRequirement>>| -> Vec<Requirement> {
        list.unwrap_or_default().into_iter().map(|r| requirement(&r.key, &r.operator, r.values)).collect()
    };
    NodeTerm { labels: read(term.match_expressions), names: read(term.match_fields) }
}

pub(super) fn topology(term: k8s::TopologySelectorTerm) -> Vec<Requirement> {
    let terms = term.match_label_expressions.unwrap_or_default().into_iter();
    terms.map(|r| Requirement { key: r.key.into(), op: Op::In(texts(Some(r.values))) }).collect()
}

/// One term of pod affinity. The API server has merged `matchLabelKeys` and `mismatchLabelKeys` into the selector already.
pub(super) fn pod_term(term: k8s::PodAffinityTerm) -> PodTerm {
    PodTerm {
        selector: term.label_selector.map(selector),
        namespaces: term.namespaces.unwrap_or_default().into_iter().map(Namespace::from).collect(),
        namespace_selector: term.namespace_selector.map(selector),
        topology_key: term.topology_key.into(),
    }
}

pub(super) fn weighted_pod_term(term: k8s::WeightedPodAffinityTerm, sign: i32) -> Weighted<PodTerm> {
    Weighted { weight: sign * term.weight, what: pod_term(term.pod_affinity_term) }
}

pub(super) fn spread(rule: k8s::TopologySpreadConstraint) -> SpreadRule {
    SpreadRule {
        max_skew: u32::try_from(rule.max_skew).unwrap_or(1),
        topology_key: rule.topology_key.into(),
        hard: rule.when_unsatisfiable == "DoNotSchedule",
        selector: rule.label_selector.map(selector),
        match_label_keys: texts(rule.match_label_keys),
        min_domains: rule.min_domains.and_then(|n| u32::try_from(n).ok()),
        honor_affinity: rule.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: rule.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// An effect by its name; none for a name from the future, which keeps nobody away today.
pub(super) fn effect(name: &str) -> Option<Effect> {
    match name {
        "NoSchedule" => Some(Effect::NoSchedule),
        "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}

/// A toleration; none where it could cover no taint (an unknown effect or operator, a bound that is no number).
pub(super) fn toleration(toleration: k8s::Toleration) -> Option<Toleration> {
    let value = toleration.value.unwrap_or_default();
    let number = || value.parse::<i64>().ok();
    Some(Toleration {
        key: toleration.key.filter(|key| !key.is_empty()).map(Arc::from),
        value: match toleration.operator.as_deref() {
            Some("Exists") => TolerationValue::Any,
            Some("Gt") => TolerationValue::Below(number()?),
            Some("Lt") => TolerationValue::Above(number()?),
            None | Some("" | "Equal") => TolerationValue::Equal(value.into()),
            Some(_) => return None,
        },
        effect: match toleration.effect.as_deref() {
            None | Some("") => None,
            Some(name) => Some(effect(name)?),
        },
    })
}

//! What a node is: cordoned, tainted, labelled, ready.

use crate::model::node::{Effect, Node};
use crate::model::pod::Pod;
use crate::model::reason::NodeReason;

/// The taint by which a cordoned node is tolerated.
fn cordon_tolerated(pod: &Pod) -> bool {
    let taint = crate::model::node::Taint {
        key: crate::keys::TAINT_UNSCHEDULABLE.into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    pod.spec.tolerations.iter().any(|t| t.covers(&taint))
}

pub(crate) fn check(pod: &Pod, node: &Node) -> Result<(), NodeReason> {
    if node.unschedulable && !cordon_tolerated(pod) {
        return Err(NodeReason::Unschedulable);
    }
    if node.unready && pod.ask.is_some() {
        return Err(NodeReason::NotReady);
    }
    let hard = |effect| matches!(effect, Effect::NoSchedule | Effect::NoExecute);
    for taint in node.taints.iter().filter(|t| hard(t.effect)) {
        if !pod.spec.tolerations.iter().any(|t| t.covers(taint)) {
            return Err(NodeReason::Taint { key: taint.key.clone(), value: taint.value.clone() });
        }
    }
    if !matches_affinity(pod, node) {
        return Err(NodeReason::Affinity);
    }
    if let Some(name) = pod.spec.features.iter().find(|f| !node.features.contains(*f)) {
        return Err(NodeReason::Feature { name: name.clone() });
    }
    Ok(())
}

/// Is it a node the pod's selector and affinity accept?
pub(crate) fn matches_affinity(pod: &Pod, node: &Node) -> bool {
    pod.spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && pod
            .spec
            .node_affinity
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|t| t.accepts(&node.labels, node.name.as_str())))
}

/// Does the pod tolerate everything that keeps pods away from this node?
pub(crate) fn tolerates(pod: &Pod, node: &Node) -> bool {
    let hard = |effect| matches!(effect, Effect::NoSchedule | Effect::NoExecute);
    node.taints.iter().filter(|t| hard(t.effect)).all(|taint| pod.spec.tolerations.iter().any(|t| t.covers(taint)))
}

pub(crate) fn wishes(pod: &Pod, node: &Node) -> i64 {
    let wished = pod.spec.node_preference.iter().filter(|w| w.what.accepts(&node.labels, node.name.as_str()));
    let soft = node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    let unwanted = soft.filter(|taint| !pod.spec.tolerations.iter().any(|t| t.covers(taint))).count();
    wished.map(|w| i64::from(w.weight)).sum::<i64>() - 100 * unwanted as i64
}

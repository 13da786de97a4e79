//! Pods without devices: away from nodes that have some, then where most CPU and memory is left, as kube-scheduler would.

use crate::ledger::snapshot::NodeState;
use crate::model::pod::Pod;

/// How good a node is for an ordinary pod.
pub(crate) fn score(pod: &Pod, state: &NodeState) -> f64 {
    let devices = !state.node().inventory.devices.is_empty();
    least_allocated(pod, state) - if devices { 1000.0 } else { 0.0 }
}

/// The part of CPU and memory that would be left, in hundredths.
pub(crate) fn least_allocated(pod: &Pod, state: &NodeState) -> f64 {
    let (total, used, want) = (&state.node().allocatable, state.used(), &pod.spec.requests);
    let left = |total: u64, used: u64, want: u64| {
        if total == 0 { 0.0 } else { 100.0 * (total.saturating_sub(used.saturating_add(want)) as f64) / total as f64 }
    };
    (left(total.cpu, used.cpu, want.cpu) + left(total.memory.0, used.memory.0, want.memory.0)) / 2.0
}

/// How evenly CPU and memory would be used, in hundredths.
pub(crate) fn balance(pod: &Pod, state: &NodeState) -> f64 {
    let (total, used, want) = (&state.node().allocatable, state.used(), &pod.spec.requests);
    let part = |total: u64, used: u64, want: u64| {
        if total == 0 { 1.0 } else { ((used.saturating_add(want)) as f64 / total as f64).min(1.0) }
    };
    let cpu = part(total.cpu, used.cpu, want.cpu);
    let memory = part(total.memory.0, used.memory.0, want.memory.0);
    100.0 * (1.0 - (cpu - memory).abs() / 2.0)
}

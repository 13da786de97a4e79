//! Ordinary resources, the number of pods, and ports of the host.

use crate::ledger::snapshot::{NodeState, Snapshot};
use crate::model::pod::Pod;
use crate::model::reason::NodeReason;

pub(crate) fn check(snapshot: &Snapshot, pod: &Pod, state: &NodeState) -> Result<(), NodeReason> {
    let node = state.node();
    if state.pods().len() >= node.max_pods as usize {
        return Err(NodeReason::TooManyPods);
    }
    if let Some(shortage) = node.allocatable.short_of(state.used(), &pod.spec.requests) {
        return Err(NodeReason::Short(shortage));
    }
    for wanted in &pod.spec.host_ports {
        let mut there =
            state.pods().iter().filter_map(|ix| snapshot.pod_at(*ix)).flat_map(|p| &p.pod().spec.host_ports);
        if there.any(|taken| taken.conflicts(wanted)) {
            return Err(NodeReason::Port { port: wanted.port });
        }
    }
    Ok(())
}

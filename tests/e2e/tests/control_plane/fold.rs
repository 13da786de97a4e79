//! Who holds what, folded from the objects alone, and compared with what there is.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::collections::BTreeMap;

use divvy_api::{convert, wire};
use divvy_core::snapshot::Snapshot;
use divvy_e2e::Cluster;
use serde_json::Value;

fn list(cluster: &Cluster, kind: &str) -> anyhow::Result<Vec<Value>> {
    let text = cluster.admin().say(&["get", kind, "--all-namespaces", "--output=json"])?;
    let mut list: Value = serde_json::from_str(&text)?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The fold of all grants, as any restart would make it.
pub(crate) fn fold(cluster: &Cluster) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::new();
    for node in list(cluster, "nodes")? {
        snapshot.put_node(convert::node(serde_json::from_value(node)?).0);
    }
    for pod in list(cluster, "pods")? {
        let pod: wire::Pod = serde_json::from_value(pod)?;
        if !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            snapshot.put_pod(convert::pod(pod, |_| false).pod);
        }
    }
    Ok(snapshot)
}

/// No device holds more than it has, and no bound pod that asked is without a grant.
pub(crate) fn assert_within_capacity(cluster: &Cluster) {
    assert_within_capacity_of(cluster, |_| true);
}

/// The same of some nodes: others may be over-subscribed on purpose.
pub(crate) fn assert_within_capacity_of(cluster: &Cluster, which: impl Fn(&str) -> bool) {
    let snapshot = fold(cluster).unwrap();
    let mut over = BTreeMap::new();
    for (_, state) in snapshot.nodes().filter(|(_, state)| which(state.node().name.as_str())) {
        for (device, book) in state.node().inventory.devices.iter().zip(state.books()) {
            if let Some(obstacle) = book.overcommit() {
                over.insert(device.id.to_string(), obstacle.to_string());
            }
        }
    }
    assert!(over.is_empty(), "over-committed: {over:?}");
    for (_, state) in snapshot.pods() {
        let pod = state.pod();
        let without = pod.ask.is_some() && pod.bound().is_some_and(|b| b.grant.is_none());
        assert!(!without, "{} is bound without a grant", pod.key);
    }
}

/// Pods that a node refused and that are still there.
pub(crate) fn refused_left(cluster: &Cluster) -> anyhow::Result<usize> {
    let snapshot = fold(cluster)?;
    let refused =
        snapshot.nodes().flat_map(|(_, state)| state.node().inventory.refused.keys().cloned().collect::<Vec<_>>());
    Ok(refused.filter(|uid| snapshot.pod(&uid.as_str().into()).is_some()).count())
}

//! Nodes, and the inventory their agents write on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::device::Inventory;
use divvy_core::id::NodeName;
use divvy_core::keys;
use divvy_core::node::{Node, Taint};

use super::{labels, resources, selector};
use crate::quantity::units;
use crate::wire;

/// Why a node's devices are not offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryProblem {
    /// The annotation is not what an agent writes.
    #[error("its inventory cannot be read ({0}); none of its devices is offered until its agent writes a good one")]
    Malformed(String),
    /// A newer agent wrote it.
    #[error("its inventory has layout {found}, this scheduler reads up to {known}; upgrade the control plane first")]
    TooNew {
        /// The annotation's version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It is older than one seen before: two agents write, or one writes late.
    #[error(
        "its inventory is stale (generation {found} after {seen}); none of its devices is offered until a newer one is written"
    )]
    Stale {
        /// The annotation's generation.
        found: u64,
        /// The newest seen.
        seen: u64,
    },
}

/// A node. Where its inventory is unusable it has no devices, and the second value says why.
pub fn node(wire: wire::Node) -> (Node, Option<InventoryProblem>) {
    let read = inventory(wire.metadata.annotations.get(keys::INVENTORY));
    let (inventory, problem) = match read {
        Ok(inventory) => (inventory, None),
        Err(problem) => (Inventory::default(), Some(problem)),
    };
    let allocatable = &wire.status.allocatable;
    let taint =
        |t: wire::Taint| Some(Taint { key: t.key.into(), value: t.value.into(), effect: selector::effect(&t.effect)? });
    let ready = wire.status.conditions.iter().find(|c| c.kind == "Ready");
    let mut node = Node {
        name: NodeName::from(wire.metadata.name.as_str()),
        taints: wire.spec.taints.into_iter().filter_map(taint).collect(),
        unschedulable: wire.spec.unschedulable,
        unready: ready.is_some_and(|c| c.status != "True"),
        max_pods: allocatable.get("pods").map_or(0, |q| u32::try_from(units(&q.0)).unwrap_or(u32::MAX)),
        allocatable: resources(allocatable, |_| false),
        volume_limits: BTreeMap::new(),
        features: wire.status.declared_features.into_iter().map(Arc::from).collect(),
        labels: labels(wire.metadata.labels),
        inventory,
    };
    for key in [keys::CORDON, keys::HAMI_CORDON] {
        if let Some(list) = wire.metadata.annotations.get(key) {
            node.cordon_devices(list);
        }
    }
    (node, problem)
}

fn inventory(text: Option<&String>) -> Result<Inventory, InventoryProblem> {
    let Some(text) = text else { return Ok(Inventory::default()) };
    #[derive(serde::Deserialize)]
    struct Layout {
        v: u32,
    }
    let malformed = |e: serde_json::Error| InventoryProblem::Malformed(e.to_string());
    let Layout { v } = serde_json::from_str(text).map_err(malformed)?;
    if v > Inventory::VERSION {
        return Err(InventoryProblem::TooNew { found: v, known: Inventory::VERSION });
    }
    let inventory: Inventory = serde_json::from_str(text).map_err(malformed)?;
    let mut ids: Vec<_> = inventory.devices.iter().map(|d| &d.id).collect();
    ids.sort();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(InventoryProblem::Malformed(format!("device {} is listed twice", twice[0])));
    }
    Ok(inventory)
}

/// How many volumes of each driver a node can attach.
pub fn volume_limits(node: &wire::CsiNode) -> BTreeMap<Arc<str>, u32> {
    let limit =
        |d: &wire::CsiDriver| Some((Arc::from(d.name.as_str()), u32::try_from(d.allocatable.as_ref()?.count?).ok()?));
    node.spec.drivers.iter().filter_map(limit).collect()
}

/// Did somebody opt this node in, in our words or in an emulated system's? None when nobody said anything.
pub fn opted_in(labels: &divvy_core::labels::Labels) -> Option<bool> {
    let said = |key: &str, yes: &str| labels.get(key).map(|value| **value == *yes);
    let ours = labels.get(keys::NODE_OPT_IN).map(|value| !matches!(&**value, "false" | "off" | "no"));
    ours.or_else(|| {
        let theirs = [(keys::VGPU_NODE_OPT_IN, "on"), (keys::KUBESHARE_NODE, "true"), (keys::GPUSHARE_NODE, "true")];
        let answers: Vec<bool> = theirs.into_iter().filter_map(|(key, yes)| said(key, yes)).collect();
        (!answers.is_empty()).then(|| answers.contains(&true))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_inventory(text: &str) -> (Node, Option<InventoryProblem>) {
        node(
            serde_json::from_value(json!({"metadata": {"name": "n1", "annotations": {(keys::INVENTORY): text}}}))
                .unwrap(),
        )
    }

    #[test]
    fn a_node_brings_its_devices_and_its_ordinary_part() {
        let inventory =
            r#"{"v":1,"generation":3,"devices":[{"id":"GPU-1","index":0,"model":"NVIDIA-H200","memory":1000}]}"#;
        let (node, problem) = node(
            serde_json::from_value(json!({
                "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {(keys::INVENTORY): inventory, (keys::CORDON): "GPU-1"}},
                "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "x", "effect": "Future"}]},
                "status": {"allocatable": {"cpu": "3500m", "memory": "8Gi", "pods": "110", (keys::SLOT): "16"},
                           "conditions": [{"type": "Ready", "status": "Unknown"}]},
            }))
            .unwrap(),
        );
        assert_eq!(problem, None);
        assert_eq!((node.allocatable.cpu, node.allocatable.memory.0, node.max_pods), (3500, 8 << 30, 110));
        assert_eq!(node.allocatable.other[keys::SLOT], 16);
        assert!(node.unschedulable && node.unready);
        assert_eq!(node.taints.len(), 1);
        assert!(node.inventory.devices[0].cordoned);
    }

    #[test]
    fn a_bad_inventory_costs_the_node_its_devices_and_nothing_else() {
        for (text, starts) in [
            ("{", "its inventory cannot be read (EOF"),
            ("[]", "its inventory cannot be read"),
            (
                r#"{"v":99,"generation":1,"devices":"who knows"}"#,
                "its inventory has layout 99, this scheduler reads up to 1",
            ),
            (
                r#"{"v":1,"generation":1,"devices":[{"id":"G","index":0,"model":"m","memory":1},{"id":"G","index":1,"model":"m","memory":1}]}"#,
                "its inventory cannot be read (device G is listed twice)",
            ),
        ] {
            let (node, problem) = with_inventory(text);
            assert!(node.inventory.devices.is_empty());
            assert!(problem.unwrap().to_string().starts_with(starts), "{text}");
        }
        let plain: wire::Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        assert_eq!(super::node(plain).1, None);
    }

    #[test]
    fn nodes_are_opted_in_and_out_in_every_systems_words() {
        let check = |key: &str, value: &str| opted_in(&[(key.into(), value.into())].into());
        assert_eq!(check(keys::NODE_OPT_IN, ""), Some(true));
        assert_eq!(check(keys::NODE_OPT_IN, "off"), Some(false));
        assert_eq!(check(keys::VGPU_NODE_OPT_IN, "on"), Some(true));
        assert_eq!(check(keys::VGPU_NODE_OPT_IN, "off"), Some(false));
        assert_eq!(check(keys::KUBESHARE_NODE, "true"), Some(true));
        assert_eq!(check(keys::GPUSHARE_NODE, "true"), Some(true));
        assert_eq!(check("other", "true"), None);
    }
}

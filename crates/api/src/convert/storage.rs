//! Claims, volumes, storage classes, disruption budgets.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_core::id::{Namespace, NodeName};
use divvy_core::keys;
use divvy_core::snapshot::DisruptionBudget;
use divvy_core::units::Bytes;
use divvy_core::volume::{Claim, ClaimKey, StorageCapacity, StorageClass, Volume};
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{labels, selector};
use crate::quantity::units;
use crate::wire;

fn bytes(amount: Option<&Quantity>) -> Bytes {
    Bytes(amount.map_or(0, |q| units(&q.0)))
}

fn modes(list: Vec<String>) -> BTreeSet<Arc<str>> {
    list.into_iter().map(Arc::from).collect()
}

/// A claim.
pub fn claim(wire: wire::Claim) -> Claim {
    let meta = wire.metadata;
    let spec = wire.spec;
    let requests = spec.resources.and_then(|r| r.requests).unwrap_or_default();
    // Before a claim's field for it there was an annotation; the API server still honours it.
    let class = meta.annotations.get(keys::BETA_STORAGE_CLASS).cloned().or(spec.storage_class_name);
    Claim {
        key: ClaimKey { namespace: Namespace::from(meta.namespace), name: meta.name.into() },
        volume: (!spec.volume_name.is_empty()).then(|| spec.volume_name.into()),
        class: class.unwrap_or_default().into(),
        modes: modes(spec.access_modes),
        block: spec.volume_mode.as_deref() == Some("Block"),
        request: bytes(requests.get("storage")),
        selector: spec.selector.map(selector::selector),
        selected_node: meta.annotations.get(keys::SELECTED_NODE).map(|node| NodeName::from(node.as_str())),
        terminating: meta.deletion_timestamp.is_some(),
        lost: wire.status.phase == "Lost",
    }
}

/// A volume.
pub fn volume(wire: wire::PersistentVolume) -> Volume {
    let meta = wire.metadata;
    let spec = wire.spec;
    let phase = wire.status.get("phase").and_then(|p| p.as_str()).unwrap_or_default();
    let claim = spec.claim_ref.as_ref().map(|c| ClaimKey {
        namespace: Namespace::from(c.namespace.clone().unwrap_or_default()),
        name: c.name.clone().unwrap_or_default().into(),
    });
    Volume {
        driver: driver(&spec),
        nodes: spec.node_affinity.and_then(|a| a.required).map(selector::node_terms),
        capacity: bytes(spec.capacity.unwrap_or_default().get("storage")),
        class: spec.storage_class_name.unwrap_or_default().into(),
        modes: modes(spec.access_modes.unwrap_or_default()),
        block: spec.volume_mode.as_deref() == Some("Block"),
        claim,
        unavailable: meta.deletion_timestamp.is_some() || matches!(phase, "Released" | "Failed"),
        labels: labels(meta.labels),
        name: meta.name.into(),
    }
}

/// The driver that attaches it. Cloud disks of the old in-tree kinds are attached by the CSI driver that replaced each.
fn driver(spec: &PersistentVolumeSpec) -> Option<(Arc<str>, Arc<str>)> {
    let pair = |driver: &str, handle: &str| Some((Arc::from(driver), Arc::from(handle)));
    if let Some(csi) = &spec.csi {
        return pair(&csi.driver, &csi.volume_handle);
    }
    if let Some(disk) = &spec.aws_elastic_block_store {
        return pair("ebs.csi.aws.com", &disk.volume_id);
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        return pair("pd.csi.storage.gke.io", &disk.pd_name);
    }
    if let Some(disk) = &spec.azure_disk {
        return pair("disk.csi.azure.com", &disk.disk_name);
    }
    if let Some(disk) = &spec.cinder {
        return pair("cinder.csi.openstack.org", &disk.volume_id);
    }
    None
}

/// A storage class; whether its driver says how much room it has is the driver's to say.
pub fn storage_class(wire: wire::StorageClass, tracks_capacity: bool) -> StorageClass {
    let by_hand = wire.provisioner == keys::NO_PROVISIONER;
    StorageClass {
        name: wire.metadata.name.into(),
        wait_for_first_consumer: wire.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        provisioner: (!by_hand).then(|| wire.provisioner.into()),
        topologies: wire.allowed_topologies.into_iter().map(selector::topology).collect(),
        tracks_capacity,
    }
}

/// How much room a driver has in one part of the cluster.
pub fn capacity(wire: wire::StorageCapacity) -> StorageCapacity {
    StorageCapacity {
        class: wire.storage_class_name.into(),
        nodes: wire.node_topology.map(selector::selector),
        largest: bytes(wire.maximum_volume_size.as_ref().or(wire.capacity.as_ref())),
    }
}

/// A disruption budget.
pub fn budget(wire: wire::DisruptionBudget) -> DisruptionBudget {
    DisruptionBudget {
        namespace: Namespace::from(wire.metadata.namespace),
        name: wire.metadata.name.into(),
        selector: wire.spec.selector.map(selector::selector),
        allowed: u32::try_from(wire.status.disruptions_allowed).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_volumes_and_classes_arrive_whole() {
        let c = claim(
            serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "n", "annotations": {(keys::SELECTED_NODE): "n1"}},
                "spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": "fast", "volumeMode": "Block",
                         "resources": {"requests": {"storage": "10Gi"}}},
                "status": {"phase": "Pending"},
            }))
            .unwrap(),
        );
        assert!(c.is_for_one_pod() && c.block && c.volume.is_none());
        assert_eq!((c.request, c.selected_node), (Bytes::gib(10), Some("n1".into())));
        let v = volume(serde_json::from_value(json!({
            "metadata": {"name": "v", "labels": {"z": "a"}},
            "spec": {"capacity": {"storage": "10Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}, "claimRef": {"namespace": "n", "name": "c"},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["a"]}]}]}}},
            "status": {"phase": "Released"},
        })).unwrap());
        assert!(v.unavailable && v.nodes.is_some());
        assert_eq!((v.driver, v.claim.unwrap().name), (Some(("d".into(), "h".into())), "c".into()));
        let s = storage_class(
            serde_json::from_value(
                json!({"metadata": {"name": "fast"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}]}),
            )
            .unwrap(),
            true,
        );
        assert!(s.wait_for_first_consumer && s.tracks_capacity && s.provisioner.is_some() && s.topologies.len() == 1);
        let by_hand = storage_class(
            serde_json::from_value(json!({"metadata": {"name": "x"}, "provisioner": keys::NO_PROVISIONER})).unwrap(),
            false,
        );
        assert_eq!(by_hand.provisioner, None);
    }
}

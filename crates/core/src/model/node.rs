//! A node as the scheduler sees it: the ordinary Kubernetes part, and the devices its agent advertises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::device::Inventory;
use crate::model::id::{DeviceId, NodeName};
use crate::model::labels::{Labels, Requirement};
use crate::model::resources::Resources;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Its taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Cordoned as a whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Its Ready condition is not True: no new work that needs its agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// What pods may request in all.
    #[serde(default)]
    pub allocatable: Resources,
    /// Most pods it may run.
    #[serde(default = "default_max_pods")]
    pub max_pods: u32,
    /// Most volumes it may attach, per driver; a driver that is not named has no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_limits: BTreeMap<Arc<str>, u32>,
    /// Kubelet features it declares.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub features: BTreeSet<Arc<str>>,
    /// Its devices. A node without an agent has none.
    #[serde(default)]
    pub inventory: Inventory,
}

fn default_max_pods() -> u32 {
    110
}

impl Node {
    /// A ready node with nothing special about it. Tests and fixtures start here.
    pub fn new(name: impl Into<NodeName>, allocatable: Resources) -> Node {
        Node {
            name: name.into(),
            labels: Labels::new(),
            taints: Vec::new(),
            unschedulable: false,
            unready: false,
            allocatable,
            max_pods: default_max_pods(),
            volume_limits: BTreeMap::new(),
            features: BTreeSet::new(),
            inventory: Inventory::default(),
        }
    }

    /// Marks the devices named in a comma-separated list (as people write it in an annotation) as taken out of service.
    pub fn cordon_devices(&mut self, list: &str) {
        let named: BTreeSet<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        for device in &mut self.inventory.devices {
            device.cordoned |= named.contains(device.id.as_str());
        }
    }

    /// The place of a device in the inventory.
    pub fn device(&self, id: &DeviceId) -> Option<usize> {
        self.inventory.devices.iter().position(|d| d.id == *id)
    }
}

/// A mark that keeps pods away unless they tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its name.
    pub key: Arc<str>,
    /// Its value.
    #[serde(default)]
    pub value: Arc<str>,
    /// What it does.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// New pods stay away, running ones are removed.
    NoExecute,
}

/// One way a node can be right: all labels hold, and all fields (only `metadata.name` exists).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    /// On its labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Requirement>,
    /// On its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Requirement>,
}

impl NodeTerm {
    /// Is this node right? A term without any requirement accepts none, as in Kubernetes.
    pub fn accepts(&self, labels: &Labels, name: &str) -> bool {
        !(self.labels.is_empty() && self.names.is_empty())
            && self.labels.iter().all(|r| r.holds(labels))
            && self.names.iter().all(|r| r.holds_of(Some(name)))
    }
}

//! What the ordinary rules read besides pods and nodes: volumes, disruption budgets, priorities, namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeSpec, TopologySelectorTerm, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::meta::{Meta, or_default};

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Its metadata.
    pub metadata: Meta,
    /// What it wants.
    pub spec: ClaimSpec,
    /// How it is doing.
    pub status: ClaimStatus,
}

/// What a claim wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// `ReadWriteOnce`, `ReadWriteOncePod`, ...
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<String>,
    /// Its StorageClass; absent means the default one, empty means none.
    pub storage_class_name: Option<String>,
    /// Its volume; empty until it is bound.
    pub volume_name: String,
    /// `Filesystem` or `Block`.
    pub volume_mode: Option<String>,
    /// Which volumes will do.
    pub selector: Option<LabelSelector>,
    /// How much.
    pub resources: Option<VolumeResourceRequirements>,
}

/// How a claim is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    /// `Pending`, `Bound`, `Lost`.
    pub phase: String,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Its metadata.
    pub metadata: Meta,
    /// Capacity, class, where it can be reached, who has it.
    pub spec: PersistentVolumeSpec,
    /// Its phase, among others.
    #[serde(deserialize_with = "or_default")]
    pub status: BTreeMap<String, Value>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Its metadata.
    pub metadata: Meta,
    /// Who makes its volumes.
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
    /// Where volumes may be made.
    #[serde(deserialize_with = "or_default")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// A CSINode: which storage drivers a node has, and how many volumes each can attach there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// Its metadata; the name is the node's.
    pub metadata: Meta,
    /// The drivers.
    pub spec: CsiNodeSpec,
}

/// The drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// One entry each.
    #[serde(deserialize_with = "or_default")]
    pub drivers: Vec<CsiDriver>,
}

/// A storage driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    /// Its name.
    pub name: String,
    /// What it can do there; absent sets no limit.
    pub allocatable: Option<CsiLimit>,
    /// The labels it places volumes by.
    #[serde(deserialize_with = "or_default")]
    pub topology_keys: Vec<String>,
}

/// How many volumes a driver can attach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiLimit {
    /// At most so many; absent means any number.
    pub count: Option<i32>,
}

/// A CSIDriver: whether it says how much room it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverDetails {
    /// It does.
    pub storage_capacity: bool,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiDriverObject {
    /// Its metadata; the name is the driver's.
    pub metadata: Meta,
    /// What it says about itself.
    pub spec: CsiDriverDetails,
}

/// A CSIStorageCapacity: how much room a driver has in one part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageCapacity {
    /// Its metadata.
    pub metadata: Meta,
    /// For which class.
    pub storage_class_name: String,
    /// For which nodes.
    pub node_topology: Option<LabelSelector>,
    /// All that is left.
    pub capacity: Option<Quantity>,
    /// The largest volume that can be made of it.
    pub maximum_volume_size: Option<Quantity>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisruptionBudget {
    /// Its metadata.
    pub metadata: Meta,
    /// Which pods.
    pub spec: DisruptionBudgetSpec,
    /// How many may go now.
    pub status: DisruptionBudgetStatus,
}

/// Which pods a budget protects.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisruptionBudgetSpec {
    /// Those.
    pub selector: Option<LabelSelector>,
}

/// How many may go now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetStatus {
    /// So many.
    pub disruptions_allowed: i32,
}

/// A PriorityClass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    /// Its metadata.
    pub metadata: Meta,
    /// The number.
    pub value: i32,
    /// `Never` keeps its pods from evicting others.
    pub preemption_policy: Option<String>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NamespaceObject {
    /// Its metadata: labels are what namespace selectors read.
    pub metadata: Meta,
}

/// A ResourceQuota.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceQuota {
    /// Its metadata.
    pub metadata: Meta,
    /// What it says.
    pub spec: ResourceQuotaSpec,
}

/// What a ResourceQuota says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceQuotaSpec {
    /// The most of each resource, by name.
    pub hard: BTreeMap<String, String>,
}

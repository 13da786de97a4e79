//! Pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::meta::{Meta, or_default};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its metadata: labels, ask, grant.
    pub metadata: Meta,
    /// What it wants.
    pub spec: PodSpec,
    /// How it is doing.
    pub status: PodStatus,
}

/// A pod of a gang that has ended well.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct FinishedPod(pub Pod);

/// What a pod wants, as far as placing it goes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to; empty while it waits.
    pub node_name: String,
    /// Who is to place it.
    pub scheduler_name: String,
    /// The number behind its PriorityClass.
    pub priority: Option<i32>,
    /// Its PriorityClass.
    pub priority_class_name: String,
    /// `Never` keeps it from evicting others.
    pub preemption_policy: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// What runs before them.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Requests of the pod as a whole, which take the place of its containers'.
    pub resources: Option<Resources>,
    /// What its runtime needs on top.
    #[serde(deserialize_with = "or_default")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Labels its node must have.
    #[serde(deserialize_with = "or_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Nodes and pods it wants to be near to or far from.
    pub affinity: Option<Affinity>,
    /// Taints it puts up with.
    #[serde(deserialize_with = "or_default")]
    pub tolerations: Vec<Toleration>,
    /// How evenly its like are to be spread.
    #[serde(deserialize_with = "or_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Its volumes.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<Volume>,
    /// What keeps it from being placed yet.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_gates: Vec<Gate>,
    /// Claims of dynamic resource allocation, by the pod's own names.
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<Value>,
    /// Uses the node's own network.
    pub host_network: bool,
    /// Seconds it may run.
    pub active_deadline_seconds: Option<i64>,
    /// Seconds it has to end.
    pub termination_grace_period_seconds: Option<i64>,
}

/// What a container wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its resources.
    pub resources: Resources,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What is reserved.
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<String, Quantity>,
    /// What may be used.
    #[serde(deserialize_with = "or_default")]
    pub limits: BTreeMap<String, Quantity>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// On the node; zero where it takes none.
    pub host_port: i32,
    /// In the container.
    pub container_port: i32,
    /// The node's address; empty means all.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// `TCP`, `UDP` or `SCTP`; empty means TCP.
    pub protocol: String,
}

/// A volume: its name, and every other field as it came (the kind of source is a field's name).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Its name within the pod.
    pub name: String,
    /// Its source, by kind.
    #[serde(flatten)]
    pub source: BTreeMap<String, Value>,
}

/// What keeps a pod from being placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Its name.
    pub name: String,
}

/// How a pod is doing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: String,
    /// Why it failed (`OutOfcpu`, `Evicted`, ...).
    pub reason: String,
    /// Where preemption makes room for it.
    pub nominated_node_name: String,
    /// When the kubelet took it.
    pub start_time: Option<Timestamp>,
    /// Its conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<PodCondition>,
    /// Its containers' states.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Its init containers' states.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// One of a pod's conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
}

/// A container's state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// Its state, by name (`running`, `waiting`, `terminated`).
    #[serde(deserialize_with = "or_default")]
    pub state: BTreeMap<String, Value>,
}

impl ContainerStatus {
    /// Did it end?
    pub fn has_ended(&self) -> bool {
        self.state.contains_key("terminated")
    }

    /// Did it end with exit code 0?
    pub fn has_ended_well(&self) -> bool {
        self.state.get("terminated").is_some_and(|end| end.get("exitCode").and_then(Value::as_i64) == Some(0))
    }
}

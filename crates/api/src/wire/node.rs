//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;

use super::meta::{Meta, or_default};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its metadata: labels, the inventory, devices taken out of service.
    pub metadata: Meta,
    /// What people want of it.
    pub spec: NodeSpec,
    /// What it says about itself.
    pub status: NodeStatus,
}

/// What people want of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// No new pods.
    pub unschedulable: bool,
    /// What keeps pods away.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What pods may use of it.
    #[serde(deserialize_with = "or_default")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Its conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// Features its kubelet declares.
    #[serde(deserialize_with = "or_default")]
    pub declared_features: Vec<String>,
}

/// One of a node's conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
}

//! `GpuCharges`: the audit trail of one namespace and hour.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was charged to the pods of one namespace in one hour: the audit trail.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuCharges",
    plural = "gpucharges",
    shortname = "gc",
    category = "divvy",
    namespaced,
    doc = "What was charged to the pods of one namespace in one hour. Written by Divvy, kept in its own namespace.",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Namespace","type":"string","jsonPath":".spec.namespace"}"#,
    printcolumn = r#"{"name":"Hour","type":"string","jsonPath":".spec.hour"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".spec.pods"}"#,
    printcolumn = r#"{"name":"Unaccounted","type":"integer","jsonPath":".spec.unaccountedLines"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuChargesSpec {
    /// Whose pods.
    pub namespace: String,
    /// Which hour, by its beginning.
    pub hour: String,
    /// How many pods.
    pub pods: u32,
    /// How many stretches nobody knows about.
    pub unaccounted_lines: u32,
    /// The charges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<ChargeLine>,
    /// Stretches of time for which nobody knows what was held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<Unaccounted>,
    /// The pods' books, exactly, for the controller to go on from. Not for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "anything")]
    pub holds: Vec<Value>,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// One charge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChargeLine {
    /// The pod.
    pub pod: String,
    /// Its identity.
    pub uid: String,
    /// Where it ran.
    pub node: String,
    /// What it held: device, model, thousandths of its time, bytes of its memory.
    pub devices: Vec<ChargedDevice>,
    /// From when.
    pub from: String,
    /// To when, within the hour; what a pod that goes on costs is in the line as of when it was written.
    pub to: String,
    /// It ran as `guarantee` or `opportunistic`.
    pub class: String,
    /// Who paid how much, by budget.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub charged: BTreeMap<String, String>,
    /// Who gave back how much.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refunded: BTreeMap<String, String>,
}

/// A part of a device that was charged for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChargedDevice {
    /// The device.
    pub device: String,
    /// Its model.
    pub model: String,
    /// Thousandths of its time.
    pub share: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// All of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

/// A stretch of time for which nobody knows what was held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Unaccounted {
    /// The pod; absent where a whole node is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The node.
    pub node: String,
    /// From when.
    pub from: String,
    /// To when.
    pub to: String,
    /// Why nobody knows.
    pub because: String,
}

//! The custom resource about how much a namespace may hold at once.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::spec::Condition;

/// How much a namespace may hold at once.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuQuota",
    plural = "gpuquotas",
    shortname = "gpuquota",
    shortname = "gq",
    category = "divvy",
    namespaced,
    status = "GpuQuotaStatus",
    doc = "How much of the devices a namespace may hold at once, in all and by model, counted from what its pods were granted.",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Cohort","type":"string","jsonPath":".spec.cohort"}"#,
    printcolumn = r#"{"name":"Devices","type":"string","jsonPath":".status.devices"}"#,
    printcolumn = r#"{"name":"Share","type":"string","jsonPath":".status.share"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".status.memory"}"#,
    printcolumn = r#"{"name":"Followed","type":"string","jsonPath":".status.conditions[?(@.type=='Followed')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuQuotaSpec {
    /// Namespaces with a quota of the same cohort lend each other what they do not use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cohort: Option<String>,
    /// Pools of nodes the namespace may use; all where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// `refuse` (the default): a pod that exceeds it now is refused when it is created. `wait`: it is let in and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_exceeded: Option<WhenExceeded>,
    /// Devices of models that no limit names: `allow` (the default) or `refuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_models: Option<OtherModels>,
    /// The limits; each holds.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("self.all(l, has(l.devices) || has(l.share) || has(l.memory))").message("a limit names devices, share or memory"))]
    #[x_kube(validation = Rule::new("self.all(l, self.exists_one(m, (has(l.model) ? l.model : '') == (has(m.model) ? m.model : '')))").message("one limit per model"))]
    pub limits: Vec<LimitSpec>,
}

/// What happens to a pod that exceeds the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenExceeded {
    /// It is refused.
    Refuse,
    /// It waits.
    Wait,
}

/// What becomes of pods on devices of models that no limit names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtherModels {
    /// They are placed there.
    Allow,
    /// They are not.
    Refuse,
}

/// How much may be held of some devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitSpec {
    /// Of devices whose model's name contains this; of all where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub model: Option<String>,
    /// Devices a part of which is held, counted once for each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<u32>,
    /// Time, in thousandths of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Memory (`80Gi`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// How much more may be borrowed of what others of the cohort do not use; any amount where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow: Option<AmountsSpec>,
    /// How much of this may be lent to them; all of it where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<AmountsSpec>,
}

/// Amounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AmountsSpec {
    /// Devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<u32>,
    /// Time, in thousandths of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// What is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuQuotaStatus {
    /// The generation this status is about.
    pub observed_generation: i64,
    /// Devices, held of allowed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub devices: String,
    /// Time, held of allowed, in thousandths of a device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub share: String,
    /// Memory, held of allowed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub memory: String,
    /// What is held, by model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldOfModel>,
    /// `Followed`: whether it is acted on, and if not, why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is held of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldOfModel {
    /// The model.
    pub model: String,
    /// Devices.
    pub devices: u64,
    /// Time, in thousandths of a device.
    pub share: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

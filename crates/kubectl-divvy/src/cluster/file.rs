//! A cluster in a file: what the scheduler would be told, and what people want to know besides. No commands, environments, secrets or
//! images of anybody's containers are in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use divvy_api::policy::GpuPolicySpec;
use divvy_core::id::NodeName;
use divvy_core::snapshot::Record;
use divvy_core::time::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::doctor::Facts;

/// What is in the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File {
    /// Layout version.
    pub(crate) v: u32,
    /// When this was true, in milliseconds since the epoch.
    pub(crate) taken_at: Time,
    /// The GpuPolicy's spec.
    #[serde(default)]
    pub(crate) policy: GpuPolicySpec,
    /// What the scheduler is told, before the policy is applied to it.
    pub(crate) cluster: Record,
    /// What else is known of nodes.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<NodeName, NodeNote>,
    /// GpuBudgets and ClusterGpuBudgets.
    #[serde(default)]
    pub(crate) budgets: Vec<Value>,
    /// GpuQuotas.
    #[serde(default)]
    pub(crate) quotas: Vec<Value>,
    /// What `doctor` looks at.
    #[serde(default)]
    pub(crate) facts: Facts,
}

/// What else is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeNote {
    /// Its internal address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// Why its devices are not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl File {
    /// The layout this code writes.
    pub(crate) const VERSION: u32 = 1;

    pub(crate) fn read(path: &Path) -> anyhow::Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let json: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no snapshot: it is not JSON", path.display()))?;
        let version = json["v"].as_u64();
        ensure!(
            version == Some(u64::from(File::VERSION)) && json.get("cluster").is_some(),
            "{} is no snapshot that this version reads: `kubectl divvy snapshot` writes one (layout {})",
            path.display(),
            File::VERSION
        );
        serde_json::from_value(json).with_context(|| format!("{} is no snapshot", path.display()))
    }
}

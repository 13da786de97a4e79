//! `GpuBudgetEntry`: what people book.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A change of a balance made by a person: who, why, how much. It cannot be changed afterwards; book another one.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuBudgetEntry",
    plural = "gpubudgetentries",
    shortname = "gbe",
    category = "divvy",
    namespaced,
    doc = "A change of a balance made by a person: a top-up, a credit or a debit, with its reason and its author.",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Budget","type":"string","jsonPath":".spec.budget"}"#,
    printcolumn = r#"{"name":"Cluster budget","type":"string","jsonPath":".spec.clusterBudget"}"#,
    printcolumn = r#"{"name":"Top-up","type":"string","jsonPath":".spec.topUp"}"#,
    printcolumn = r#"{"name":"Credit","type":"string","jsonPath":".spec.credit"}"#,
    printcolumn = r#"{"name":"Debit","type":"string","jsonPath":".spec.debit"}"#,
    printcolumn = r#"{"name":"Author","type":"string","jsonPath":".spec.author"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".spec.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("self.spec == oldSelf.spec").message("an entry is not changed once it is made; book another one"),
    validation = Rule::new("has(self.spec.budget) != has(self.spec.clusterBudget)").message("name the budget in this namespace, or a clusterBudget: exactly one"),
    validation = Rule::new("[has(self.spec.topUp), has(self.spec.credit), has(self.spec.debit)].filter(given, given).size() == 1").message("give exactly one of topUp, credit and debit")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuBudgetEntrySpec {
    /// The GpuBudget of this namespace that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Or a ClusterGpuBudget that several namespaces share; such an entry counts in Divvy's own namespace alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_budget: Option<String>,
    /// More for this period: a length of time (`5h`), or an amount of money (`20.50`), as the budget counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_up: Option<String>,
    /// Something is put right in the tenant's favour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<String>,
    /// Something is put right in the owner's favour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debit: Option<String>,
    /// Why.
    #[schemars(length(min = 1, max = 500))]
    pub reason: String,
    /// Who: the name the API server knows the writer by.
    #[schemars(length(min = 1, max = 253))]
    pub author: String,
}

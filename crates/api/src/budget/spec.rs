//! `GpuBudget` and `ClusterGpuBudget`: what people write.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::BudgetStatus;

/// A length of time: days, hours, minutes, seconds, milliseconds.
const LENGTH: &str = r"^([0-9]{1,9}(d|h|ms|m|s))+$";
/// A decimal number with at most six decimals.
const DECIMAL: &str = r"^[0-9]{1,12}(\.[0-9]{1,6})?$";

/// A namespace's budget: so much GPU time, or so much money, per period.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuBudget",
    plural = "gpubudgets",
    shortname = "gpubudget",
    shortname = "gb",
    category = "divvy",
    namespaced,
    status = "BudgetStatus",
    doc = "A namespace's budget: so much GPU time, or so much money, per period.",
    derive = "PartialEq",
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Left","type":"string","jsonPath":".status.left"}"#,
    printcolumn = r#"{"name":"Of","type":"string","jsonPath":".status.total"}"#,
    printcolumn = r#"{"name":"Per hour","type":"string","jsonPath":".status.perHour"}"#,
    printcolumn = r#"{"name":"Empty","type":"string","jsonPath":".status.empty"}"#,
    printcolumn = r#"{"name":"Renews","type":"string","jsonPath":".status.renews"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.pods"}"#,
    printcolumn = r#"{"name":"Spent","type":"string","jsonPath":".status.spent","priority":1}"#,
    printcolumn = r#"{"name":"Refunded","type":"string","jsonPath":".status.refunded","priority":1}"#,
    printcolumn = r#"{"name":"Carried","type":"string","jsonPath":".status.carried","priority":1}"#,
    printcolumn = r#"{"name":"Booked","type":"string","jsonPath":".status.booked","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("has(self.spec.gpuTime) != has(self.spec.money)").message("a budget is an amount of gpuTime or of money: give exactly one")
)]
#[serde(rename_all = "camelCase")]
pub struct GpuBudgetSpec {
    /// What it says.
    #[serde(flatten)]
    pub budget: BudgetSpec,
}

/// A budget for all namespaces that a selector chooses.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "ClusterGpuBudget",
    plural = "clustergpubudgets",
    shortname = "cgb",
    category = "divvy",
    status = "BudgetStatus",
    doc = "A budget for all namespaces that a selector chooses: one balance for each of them, or one for all together.",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Per","type":"string","jsonPath":".spec.per"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Left","type":"string","jsonPath":".status.left"}"#,
    printcolumn = r#"{"name":"Of","type":"string","jsonPath":".status.total"}"#,
    printcolumn = r#"{"name":"Per hour","type":"string","jsonPath":".status.perHour"}"#,
    printcolumn = r#"{"name":"Empty","type":"string","jsonPath":".status.empty"}"#,
    printcolumn = r#"{"name":"Renews","type":"string","jsonPath":".status.renews"}"#,
    printcolumn = r#"{"name":"Namespaces","type":"integer","jsonPath":".status.namespaces"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.pods"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("has(self.spec.gpuTime) != has(self.spec.money)").message("a budget is an amount of gpuTime or of money: give exactly one")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterGpuBudgetSpec {
    /// Which namespaces, by their labels; empty means all of them.
    #[serde(default)]
    pub selector: NamespaceSelector,
    /// `namespace` gives each chosen namespace a balance of its own: a GpuBudget of the same name, kept there for it. `selector` makes
    /// one balance for all of them together.
    pub per: Per,
    /// What it says.
    #[serde(flatten)]
    pub budget: BudgetSpec,
}

/// Whose balance it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// Each chosen namespace has its own.
    #[default]
    Namespace,
    /// All chosen namespaces share one.
    Selector,
}

/// Which namespaces, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceSelector {
    /// Labels they all have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What holds of their labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// What holds of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What is asked.
    pub operator: Operator,
    /// Of which values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// What is asked of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// It is one of the values.
    In,
    /// It is none of them, or absent.
    NotIn,
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
}

impl NamespaceSelector {
    /// Does it choose a namespace with these labels?
    pub fn chooses(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |r: &Requirement| {
            let value = labels.get(&r.key);
            match r.operator {
                Operator::In => value.is_some_and(|v| r.values.contains(v)),
                Operator::NotIn => value.is_none_or(|v| !r.values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(holds)
    }
}

/// What every budget says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetSpec {
    /// So much time of whole devices per period: `150m`, `20h`, `30d`. Half a device for an hour costs half an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = LENGTH))]
    pub gpu_time: Option<String>,
    /// Or so much money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// How often it is granted anew; without this once and for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("has(self.every) != has(self.rolling)").message("a period is a calendar's (every) or rolling: give exactly one"))]
    pub period: Option<PeriodSpec>,
    /// What things cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// How much of what was left goes into the next period. What was overdrawn always does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry_over: Option<CarryOver>,
    /// What happens when nothing is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhaustion: Option<Exhaustion>,
    /// What pods get back that Divvy evicted to make room for others. All of it where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refunds: Option<RefundsSpec>,
    /// PriorityClasses for pods that name none, set once when they are created: kube-scheduler goes by these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_classes: Option<PriorityClasses>,
}

/// An amount of money, and what devices cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Money {
    /// How much per period: `500`, `99.50`.
    #[schemars(regex(pattern = DECIMAL))]
    pub amount: String,
    /// Of what; shown beside amounts.
    #[schemars(length(min = 1, max = 8))]
    pub currency: String,
    /// What an hour of a whole device costs, by a part of its model's name (`H200`, `A100-SXM4`); where several fit the longest counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, String>,
    /// What an hour of any other device costs. Without it, what the GpuPolicy's `modelPrices` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DECIMAL))]
    pub other_price: Option<String>,
}

/// How often a budget is granted anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeriodSpec {
    /// With every new one of these, at midnight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Every>,
    /// Or counting what was spent in the latest so much time (`30d`), which moves on in thirty steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = LENGTH))]
    pub rolling: Option<String>,
    /// Where midnight is (`Europe/Berlin`); UTC where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// Calendar periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Weeks, from Monday on.
    Week,
    /// Months.
    Month,
    /// Quarters of a year.
    Quarter,
    /// Years.
    Year,
}

/// What things cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cost {
    /// `held` (the default): for the time a slice is held, used or not. `busy`: for the time the pod's work runs on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Basis>,
    /// `dominant` (the default): a slice costs the larger of its parts of the device's memory and time. `mean`: the mean of both, as
    /// GPUSharing counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    /// The slice that counts as one; a whole device where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceSpec>,
    /// What opportunistic pods pay, in hundredths of the price; nothing where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub opportunistic: Option<u8>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Time during which a slice is held.
    Held,
    /// Time during which a pod's work runs.
    Busy,
}

/// How a part of a device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The larger of memory and time.
    Dominant,
    /// The mean of both.
    Mean,
}

/// The slice that counts as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReferenceSpec {
    /// Its time, in thousandths of a device.
    #[schemars(range(min = 1, max = 1000))]
    pub share: u32,
    /// Its memory (`3840Mi`).
    pub memory: String,
}

/// How much of what was left goes into the next period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CarryOver {
    /// Hundredths of it.
    #[schemars(range(min = 0, max = 100))]
    pub percent: u8,
    /// But no more than this: a length of time, or an amount of money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<String>,
}

/// What happens when nothing is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exhaustion {
    /// `demote` (the default): pods become opportunistic. `stop`: pods are evicted, and new ones refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// How long running pods go on as before (`10m`), and are charged. New pods do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = LENGTH))]
    pub grace: Option<String>,
}

/// What happens when nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Pods become opportunistic.
    Demote,
    /// Pods are evicted, and new ones refused.
    Stop,
}

/// What pods get back that Divvy evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefundsSpec {
    /// Hundredths of what they were charged.
    #[schemars(range(min = 0, max = 100))]
    pub percent: u8,
    /// For no more than so long before the eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = LENGTH))]
    pub within: Option<String>,
}

/// PriorityClasses by standing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriorityClasses {
    /// While there is something left.
    pub in_budget: String,
    /// When there is not.
    pub out_of_budget: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_chooses_as_kubernetes_does() {
        let labels = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let selector: NamespaceSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"team": "vision"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}, {"key": "old", "operator": "DoesNotExist"}],
        }))
        .unwrap();
        assert!(selector.chooses(&labels(&[("team", "vision")])));
        assert!(selector.chooses(&labels(&[("team", "vision"), ("tier", "prod")])));
        for not in [
            vec![],
            vec![("team", "x")],
            vec![("team", "vision"), ("tier", "test")],
            vec![("team", "vision"), ("old", "")],
        ] {
            assert!(!selector.chooses(&labels(&not)), "{not:?}");
        }
        assert!(NamespaceSelector::default().chooses(&labels(&[])));
    }
}

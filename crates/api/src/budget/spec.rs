//! The custom resources about money: what people write, and what they read back.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::spec::Condition;

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
    /// What an hour of any other device costs.
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

/// How a budget stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// There is something left.
    #[default]
    InBudget,
    /// Nothing is left; running pods go on until the grace is over.
    Grace,
    /// Nothing is left: pods are opportunistic.
    OutOfBudget,
    /// Nothing is left: pods are stopped.
    Stopped,
    /// It cannot be followed.
    Invalid,
    /// Each chosen namespace has a budget of its own.
    Template,
}

/// How a budget stands, for people first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// The generation this status is about.
    pub observed_generation: i64,
    /// How it stands.
    pub state: State,
    /// In one sentence.
    pub message: String,
    /// What is left.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub left: String,
    /// What there was to spend: granted, carried over, booked and refunded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub total: String,
    /// Granted for the period.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub granted: String,
    /// Carried over from the period before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub carried: String,
    /// Top-ups and credits less debits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub booked: String,
    /// Charges.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spent: String,
    /// Given back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refunded: String,
    /// What flows out in an hour if everything stays as it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub per_hour: String,
    /// When nothing will be left at this rate, or since when nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub empty: String,
    /// When the period turns.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub renews: String,
    /// Pods that hold devices on it now.
    pub pods: u32,
    /// Namespaces it is for, where it is for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u32>,
    /// Stretches of time for which nobody knows what was held, in the charges that are kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub unaccounted: u32,
    /// Everything up to this moment is in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accounted_until: String,
    /// `Followed`: whether it is acted on, and if not, why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The books, exactly, for the controller to go on from. Not for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub books: Option<Books>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The books of one balance. Amounts are exact integers of a size JSON has no number for; times are milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Books {
    /// As of when.
    pub at: u64,
    /// Since when the balance exists.
    pub since: u64,
    /// Pods that ended before this are in the buckets' sums alone.
    pub through: u64,
    /// Since when nothing is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_since: Option<u64>,
    /// When it was out of budget: from, and until.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out: Vec<Interval>,
    /// The latest periods, or steps of a rolling one.
    pub buckets: Vec<BookBucket>,
    /// What people booked in them, by the entry's identity.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entries: BTreeMap<String, BookEntry>,
}

/// An interval of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// Its first moment.
    pub from: u64,
    /// The first after it; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// One period, or one step of a rolling one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BookBucket {
    /// Its first moment.
    pub start: u64,
    /// The first after it.
    pub end: u64,
    /// Granted and carried over, once it is over.
    pub granted: String,
    /// Charges whose details are no longer kept.
    pub folded: String,
    /// Refunds whose details are no longer kept.
    pub folded_refunds: String,
}

/// What somebody booked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BookEntry {
    /// `topUp`, `credit` or `debit`.
    pub kind: String,
    /// How much.
    pub amount: String,
    /// When.
    pub at: u64,
}

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

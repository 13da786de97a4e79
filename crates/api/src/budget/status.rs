//! How a budget stands: what people read back, and the books the controller goes on from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::spec::Condition;

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

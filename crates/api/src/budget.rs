//! Budgets, what people book on them, what was charged, and quotas: as custom resources, and the way from those to the core.
//!
//! - [`spec`]: `GpuBudget` (a namespace's own), `ClusterGpuBudget` (for the namespaces a selector chooses, one balance each or one for
//!   all); [`status`] is how both stand.
//! - [`entry`] is `GpuBudgetEntry` (top-up, credit, debit), [`charges`] is `GpuCharges` (the audit trail of one namespace and hour).
//! - [`quota`] is `GpuQuota`.
//! - [`read`]: what a budget's or quota's words mean to the core; every mistake at once.
//! - [`length`]: lengths of time as people write them (`150m`, `1d12h`).

pub mod charges;
pub mod entry;
pub mod length;
pub mod quota;
pub mod read;
pub mod spec;
pub mod status;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::wire::{Meta, Watched};

pub use charges::{GpuCharges, GpuChargesSpec};
pub use entry::{GpuBudgetEntry, GpuBudgetEntrySpec};
pub use quota::{GpuQuota, GpuQuotaSpec, GpuQuotaStatus};
pub use read::{BudgetTerms, Period, Unit, from_resource_quota, read_amount, read_budget, read_quota};
pub use spec::{BudgetSpec, ClusterGpuBudget, ClusterGpuBudgetSpec, GpuBudget, GpuBudgetSpec};
pub use status::{BudgetStatus, State};

/// One of our custom resources as it is watched: metadata cut down, specification and status whole.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(bound = "S: DeserializeOwned, T: DeserializeOwned + Default")]
pub struct Object<S, T = ()> {
    /// Its metadata.
    pub metadata: Meta,
    /// What it says.
    pub spec: S,
    /// How it stands.
    #[serde(default)]
    pub status: T,
}

/// A GpuBudget as it is watched.
pub type BudgetObject = Object<GpuBudgetSpec, BudgetStatus>;
/// A ClusterGpuBudget as it is watched.
pub type ClusterBudgetObject = Object<ClusterGpuBudgetSpec, BudgetStatus>;
/// A GpuBudgetEntry as it is watched.
pub type EntryObject = Object<GpuBudgetEntrySpec>;
/// Charges as they are watched.
pub type ChargesObject = Object<GpuChargesSpec>;
/// A GpuQuota as it is watched.
pub type QuotaObject = Object<GpuQuotaSpec, GpuQuotaStatus>;

macro_rules! watched {
    ($($kind:ty: $path:expr;)*) => {$(
        impl Watched for $kind {
            const PATH: &'static str = $path;
            const OPTIONAL: bool = true;
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    )*};
}

watched! {
    BudgetObject: divvy_core::keys::BUDGETS_PATH;
    ClusterBudgetObject: divvy_core::keys::CLUSTER_BUDGETS_PATH;
    EntryObject: divvy_core::keys::BUDGET_ENTRIES_PATH;
    ChargesObject: divvy_core::keys::CHARGES_PATH;
    QuotaObject: divvy_core::keys::QUOTAS_PATH;
}

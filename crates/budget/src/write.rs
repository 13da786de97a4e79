//! What the controller wants written, as data.

use divvy_api::budget::{BudgetSpec, BudgetStatus, GpuChargesSpec, GpuQuotaSpec, GpuQuotaStatus};
use divvy_cluster::effect::Target;
use divvy_core::ask::Class;
use divvy_core::budget::{AccountKey, Cut};
use divvy_core::id::{Namespace, NodeName};

/// One thing to write. Doing it twice is harmless.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A budget's status, on the version it was made from.
    Budget {
        /// Whose.
        key: AccountKey,
        /// The version.
        version: String,
        /// The status.
        status: Box<BudgetStatus>,
    },
    /// The status of a ClusterGpuBudget that only makes others.
    Template {
        /// Its name.
        name: String,
        /// The version.
        version: String,
        /// The status.
        status: Box<BudgetStatus>,
    },
    /// A namespace's own copy of a cluster's budget.
    Copy {
        /// Where.
        namespace: Namespace,
        /// Its name, and the cluster's budget's.
        name: String,
        /// What it says; none deletes it.
        spec: Option<Box<BudgetSpec>>,
    },
    /// A GpuQuota that says the same as a ResourceQuota.
    QuotaCopy {
        /// Where.
        namespace: Namespace,
        /// Its name, and the ResourceQuota's.
        name: String,
        /// What it says; none deletes it.
        spec: Option<Box<GpuQuotaSpec>>,
    },
    /// A quota's status.
    Quota {
        /// Where.
        namespace: Namespace,
        /// Its name.
        name: String,
        /// The version.
        version: String,
        /// The status.
        status: Box<GpuQuotaStatus>,
    },
    /// Charges of one namespace and hour.
    Charges {
        /// The object's name.
        name: String,
        /// The version; none where it is new.
        version: Option<String>,
        /// How often it had changed when this was made.
        change: u64,
        /// What it says.
        spec: Box<GpuChargesSpec>,
    },
    /// Charges that need not be kept any longer.
    Forget {
        /// The object's name.
        name: String,
    },
    /// A pod's class.
    Class {
        /// The pod.
        target: Target,
        /// Its class.
        class: Class,
        /// Why, for its owner.
        because: String,
    },
    /// A pod has to end: its budget is used up, and says so.
    Stop {
        /// The pod.
        target: Target,
        /// Why, for its owner.
        because: String,
    },
    /// A journal is read and stored up to here.
    Acknowledge {
        /// The node.
        node: NodeName,
        /// How far.
        cut: Cut,
    },
}

impl Write {
    /// Writes to our own objects are few per second; what is done to pods is not put off.
    pub fn is_paced(&self) -> bool {
        !matches!(self, Write::Class { .. } | Write::Stop { .. })
    }
}

//! What the controller hears.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::budget::{BudgetObject, ClusterBudgetObject, EntryObject, QuotaObject};
use divvy_api::policy::ClusterPolicy;
use divvy_core::budget::{Cut, Page};
use divvy_core::device::Inventory;
use divvy_core::id::{Namespace, NodeName, PodUid};

use crate::facts::PodFacts;

/// Something changed.
#[derive(Clone, Debug)]
pub enum News {
    /// A GpuBudget is like this now.
    Budget(Box<BudgetObject>),
    /// A GpuBudget is gone: its namespace and name.
    BudgetGone(String, String),
    /// A ClusterGpuBudget is like this now.
    Cluster(Box<ClusterBudgetObject>),
    /// A ClusterGpuBudget is gone.
    ClusterGone(String),
    /// Somebody booked something.
    Entry(Box<EntryObject>),
    /// A GpuQuota is like this now.
    Quota(Box<QuotaObject>),
    /// A GpuQuota is gone: its namespace and name.
    QuotaGone(String, String),
    /// A ResourceQuota says this now: its namespace and name.
    ResourceQuota(String, String, BTreeMap<String, String>),
    /// A ResourceQuota is gone: its namespace and name.
    ResourceQuotaGone(String, String),
    /// A namespace has these labels now.
    Namespace(Namespace, BTreeMap<String, String>),
    /// A namespace is gone.
    NamespaceGone(Namespace),
    /// A node is like this now.
    Node(Box<NodeSeen>),
    /// A node is gone.
    NodeGone(NodeName),
    /// A pod is like this now.
    Pod(Box<PodFacts>),
    /// A pod is gone.
    PodGone(PodUid),
    /// A node's journal says this about what came after a cut.
    Page(NodeName, Option<Cut>, Page),
    /// The policy in force: the class of pods about which nobody says anything, prices about which no budget does.
    Policy(Arc<ClusterPolicy>),
    /// Everything of a kind has been told.
    Complete(Kind),
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSeen {
    /// Its name.
    pub name: NodeName,
    /// Its devices, as the policy lets them be promised.
    pub inventory: Inventory,
    /// Where its agent answers.
    pub agent: Option<String>,
    /// How far its journal is read and stored.
    pub cut: Option<Cut>,
}

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// GpuBudgets.
    Budgets,
    /// ClusterGpuBudgets.
    Clusters,
    /// GpuBudgetEntries.
    Entries,
    /// GpuQuotas.
    Quotas,
    /// ResourceQuotas.
    ResourceQuotas,
    /// Namespaces.
    Namespaces,
    /// Nodes.
    Nodes,
    /// Pods.
    Pods,
    /// The policy.
    Policy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Budgets,
        Kind::Clusters,
        Kind::Entries,
        Kind::Quotas,
        Kind::ResourceQuotas,
        Kind::Namespaces,
        Kind::Nodes,
        Kind::Pods,
        Kind::Policy,
    ];
}

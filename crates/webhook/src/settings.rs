//! What admission is told by the cluster's policy.

use divvy_core::ask::Class;
use divvy_core::keys;
use divvy_dialects::DialectConfig;

/// What admission is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How manifests are read.
    pub dialects: DialectConfig,
    /// The class of a pod about which neither its manifest nor a budget says anything.
    pub class: Class,
    /// Who places pods.
    pub placed_by: PlacedBy,
}

/// Who places pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacedBy {
    /// Divvy's own scheduler, under its own name.
    Divvy,
    /// A kube-scheduler that asks Divvy's extender, under this name. Gangs wait behind a gate until all members fit.
    KubeScheduler {
        /// The profile's name.
        name: String,
    },
}

impl PlacedBy {
    /// The name a pod is given.
    pub fn scheduler_name(&self) -> &str {
        match self {
            PlacedBy::Divvy => keys::SCHEDULER,
            PlacedBy::KubeScheduler { name } => name,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { dialects: DialectConfig::default(), class: Class::Guarantee, placed_by: PlacedBy::Divvy }
    }
}

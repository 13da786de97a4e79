//! What admission is told by the cluster's policy.

use divvy_core::ask::Class;
use divvy_core::keys;
use divvy_dialects::DialectConfig;

use crate::standing::Standing;

/// What admission is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How manifests are read.
    pub dialects: DialectConfig,
    /// The class of a pod about which neither its manifest nor a budget says anything.
    pub class: Class,
    /// Who places pods.
    pub placed_by: PlacedBy,
    /// How the pod's namespace stands with its budgets and quotas.
    pub standing: Standing,
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
        Settings {
            dialects: DialectConfig::default(),
            class: Class::Guarantee,
            placed_by: PlacedBy::Divvy,
            standing: Standing::default(),
        }
    }
}

impl Settings {
    /// The same, with the class a pod brings taken for what its budgets gave it, if budgets cover it.
    pub fn with_class_of(&self, pod: &serde_json::Value) -> Settings {
        let mut settings = self.clone();
        let brought = pod["metadata"]["annotations"][keys::CLASS_NOW].clone();
        if settings.standing.class.is_some()
            && let Ok(class) = serde_json::from_value(brought)
        {
            settings.standing.class = Some(class);
        }
        settings
    }
}

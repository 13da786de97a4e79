//! What else bears on placing: volumes, budgets, quotas, who has done its work, and what namespaces are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::finished::Finished;
use crate::ledger::quota::Quotas;
use crate::model::id::Namespace;
use crate::model::labels::{Labels, Selector};
use crate::model::pod::Pod;
use crate::model::volume::{Claim, ClaimKey, StorageCapacity, StorageClass, Volume};

/// What else bears on placing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Surroundings {
    /// Labels of namespaces.
    pub namespaces: BTreeMap<Namespace, Labels>,
    /// PersistentVolumeClaims.
    #[serde(with = "as_list")]
    pub claims: BTreeMap<ClaimKey, Claim>,
    /// PersistentVolumes.
    pub volumes: BTreeMap<Arc<str>, Volume>,
    /// Storage classes.
    pub classes: BTreeMap<Arc<str>, StorageClass>,
    /// Room for new volumes.
    pub capacities: Vec<StorageCapacity>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// How much namespaces may hold at once.
    pub quotas: Quotas,
    /// Members of gangs that have done their work.
    #[serde(skip_serializing_if = "Finished::is_empty")]
    pub finished: Finished,
}

/// JSON has only texts as names in a map; claims are a list there.
mod as_list {
    use super::{BTreeMap, Claim, ClaimKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(claims: &BTreeMap<ClaimKey, Claim>, out: S) -> Result<S::Ok, S::Error> {
        claims.values().collect::<Vec<_>>().serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ClaimKey, Claim>, D::Error> {
        let claims = Vec::<Claim>::deserialize(from)?;
        Ok(claims.into_iter().map(|claim| (claim.key.clone(), claim)).collect())
    }
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Where it holds.
    pub namespace: Namespace,
    /// Its name.
    pub name: Arc<str>,
    /// Which pods it protects; absent protects none.
    pub selector: Option<Selector>,
    /// How many of them may be evicted now.
    pub allowed: u32,
}

impl DisruptionBudget {
    /// Is this pod one of those it protects?
    pub fn protects(&self, pod: &Pod) -> bool {
        self.namespace == pod.key.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.selects(&pod.labels))
    }
}

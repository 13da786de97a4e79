//! ResourceQuotas in HAMi's words. The API server keeps such an object and counts nothing of it; a GpuQuota of the same name says the
//! same, is counted from what pods were granted, and goes with it.

use std::collections::BTreeMap;

use divvy_api::budget::{GpuQuotaSpec, from_resource_quota};
use divvy_core::id::Namespace;

use super::Treasury;
use crate::write::Write;

/// What a ResourceQuota says (`spec.hard`).
pub(super) type Hard = BTreeMap<String, String>;

impl Treasury {
    /// GpuQuotas that are missing, outdated, or not wanted any more.
    pub(super) fn quota_copies(&self) -> Vec<Write> {
        let wanted: BTreeMap<&(Namespace, String), GpuQuotaSpec> = self
            .resource_quotas
            .iter()
            .filter_map(|(key, hard)| Some((key, from_resource_quota(hard, &self.policy)?)))
            .collect();
        let copy = |(namespace, name): &(Namespace, String), spec: Option<GpuQuotaSpec>| Write::QuotaCopy {
            namespace: namespace.clone(),
            name: name.clone(),
            spec: spec.map(Box::new),
        };
        // Somebody's own quota of the same name goes first.
        let is_due = |key: &(Namespace, String), spec: &GpuQuotaSpec| match self.quotas.get(key) {
            None => true,
            Some(kept) => kept.is_copy && kept.spec != *spec,
        };
        let due = wanted.iter().filter(|(key, spec)| is_due(key, spec));
        let left = self.quotas.iter().filter(|(key, kept)| kept.is_copy && !wanted.contains_key(key));
        let due = due.map(|(key, spec)| copy(key, Some(spec.clone())));
        due.chain(left.map(|(key, _)| copy(key, None))).collect()
    }
}

//! What namespaces hold, as their quotas' statuses say. The scheduler counts for itself; these are for people and for admission.

use std::collections::BTreeMap;

use divvy_api::budget::quota::HeldOfModel;
use divvy_api::budget::{GpuQuotaSpec, GpuQuotaStatus, QuotaObject, read_quota};
use divvy_api::policy::spec::Condition;
use divvy_core::budget::Accounting;
use divvy_core::id::Namespace;
use divvy_core::keys;
use divvy_core::quota::{Held, Quota, Usage, What};
use divvy_core::time::Time;
use divvy_core::units::{Bytes, Share};

use super::Treasury;
use super::status::followed;
use crate::write::Write;

/// A quota as it is kept in mind.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    version: String,
    generation: i64,
    pub(super) spec: GpuQuotaSpec,
    /// It says the same as a ResourceQuota of its name, and goes with it.
    pub(super) is_copy: bool,
    read: Result<Quota, Vec<String>>,
    status: GpuQuotaStatus,
}

/// What the pods of each namespace hold.
pub(super) fn holdings(accounting: &Accounting) -> BTreeMap<Namespace, Held> {
    let mut all: BTreeMap<Namespace, Held> = BTreeMap::new();
    for hold in accounting.holds().filter(|hold| hold.ended().is_none()) {
        let Some(span) = hold.spans.last() else { continue };
        let held = all.entry(hold.pod.namespace.clone()).or_default();
        for device in span.devices.iter() {
            let (share, memory) =
                if device.alone { (device.of_share, device.of_memory) } else { (device.share, device.memory) };
            held.add(&Held::of(&device.model, Usage { devices: 1, share: u64::from(share.0), memory: memory.0 }));
        }
    }
    all
}

impl Treasury {
    pub(super) fn quota(&mut self, object: QuotaObject) {
        let meta = &object.metadata;
        let key = (Namespace::from(meta.namespace.as_str()), meta.name.clone());
        let kept = Kept {
            version: meta.resource_version.clone(),
            generation: meta.generation,
            read: read_quota(&meta.name, &object.spec),
            is_copy: meta.labels.contains_key(keys::RESOURCE_QUOTA),
            spec: object.spec,
            status: object.status,
        };
        self.quotas.insert(key, kept);
    }

    pub(super) fn quota_written(&mut self, key: &(Namespace, String), version: String, status: GpuQuotaStatus) {
        if let Some(kept) = self.quotas.get_mut(key) {
            (kept.version, kept.status) = (version, status);
        }
    }

    /// Statuses of quotas that are not what they should be.
    pub(super) fn quota_writes(&self, now: Time) -> Vec<Write> {
        let Some(accounting) = self.accounting.as_ref().filter(|_| !self.quotas.is_empty()) else { return Vec::new() };
        let holdings = holdings(accounting);
        let mut writes = Vec::new();
        for ((namespace, name), kept) in &self.quotas {
            let held = holdings.get(namespace).cloned().unwrap_or_default();
            let status = status(kept, &held, now);
            if status != kept.status {
                writes.push(Write::Quota {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    version: kept.version.clone(),
                    status: Box::new(status),
                });
            }
        }
        writes
    }
}

fn status(kept: &Kept, held: &Held, now: Time) -> GpuQuotaStatus {
    let conditions: Vec<Condition> = followed(&kept.status.conditions, kept.read.as_ref().map(|_| ()), now);
    let whole = kept.read.as_ref().ok().and_then(|quota| quota.limits.iter().find(|limit| limit.model.is_none()));
    let of = |what: What, text: fn(u64) -> String| {
        let used = text(held.sum(None, what));
        match whole.and_then(|limit| limit.nominal.get(what)) {
            Some(most) => format!("{used}/{}", text(most)),
            None => used,
        }
    };
    let model = |(model, usage): (&divvy_core::id::Model, &Usage)| HeldOfModel {
        model: model.to_string(),
        devices: usage.devices,
        share: usage.share,
        memory: usage.memory,
    };
    GpuQuotaStatus {
        observed_generation: kept.generation,
        devices: of(What::Devices, |n| n.to_string()),
        share: of(What::Share, |n| Share(u32::try_from(n).unwrap_or(u32::MAX)).0.to_string()),
        memory: of(What::Memory, |n| Bytes(n).to_string()),
        held: held.models().map(model).collect(),
        conditions,
    }
}

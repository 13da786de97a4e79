//! Ordinary resources: what nodes offer and pods request besides devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::units::Bytes;

/// An amount of every ordinary resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// CPU time in thousandths of a core.
    pub cpu: u64,
    /// Memory.
    pub memory: Bytes,
    /// Ephemeral storage.
    pub storage: Bytes,
    /// Everything else that is counted, by its Kubernetes name: huge pages, extended resources of other vendors, our own slots.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<Arc<str>, u64>,
}

/// What one container requests, and when it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRequest {
    /// When it runs.
    pub role: crate::model::ask::Role,
    /// What it requests.
    pub requests: Resources,
}

impl Resources {
    /// So much CPU (in thousandths of a core) and memory, nothing else.
    pub fn of(cpu: u64, memory: Bytes) -> Resources {
        Resources { cpu, memory, ..Resources::default() }
    }

    /// What a pod needs on its node: the sum of its containers and sidecars, or the largest init container beside the sidecars that
    /// started before it, whichever is more; a request of the pod as a whole wins over both; the overhead of its runtime comes on top.
    pub fn of_pod(containers: &[ContainerRequest], whole_pod: Option<&Resources>, overhead: &Resources) -> Resources {
        let mut needed = match whole_pod {
            Some(stated) => stated.clone(),
            None => Resources::of_containers(containers),
        };
        needed.add(overhead);
        needed
    }

    fn of_containers(containers: &[ContainerRequest]) -> Resources {
        use crate::model::ask::Role;
        let (mut sidecars, mut peak, mut main) = (Resources::default(), Resources::default(), Resources::default());
        for container in containers {
            match container.role {
                Role::Sidecar => sidecars.add(&container.requests),
                Role::Init => {
                    let mut running = sidecars.clone();
                    running.add(&container.requests);
                    peak.raise(&running);
                }
                Role::Main => main.add(&container.requests),
            }
        }
        main.add(&sidecars);
        main.raise(&peak);
        main
    }

    /// Adds `more` to each amount.
    pub fn add(&mut self, more: &Resources) {
        self.cpu = self.cpu.saturating_add(more.cpu);
        self.memory = Bytes(self.memory.0.saturating_add(more.memory.0));
        self.storage = Bytes(self.storage.0.saturating_add(more.storage.0));
        for (name, amount) in &more.other {
            let entry = self.other.entry(name.clone()).or_default();
            *entry = entry.saturating_add(*amount);
        }
    }

    /// Takes `less` from each amount. What was added can always be taken: the ledger adds and takes the same values.
    pub fn sub(&mut self, less: &Resources) {
        self.cpu = self.cpu.saturating_sub(less.cpu);
        self.memory = self.memory.saturating_sub(less.memory);
        self.storage = self.storage.saturating_sub(less.storage);
        for (name, amount) in &less.other {
            if let Some(entry) = self.other.get_mut(name) {
                *entry = entry.saturating_sub(*amount);
                if *entry == 0 {
                    self.other.remove(name);
                }
            }
        }
    }

    /// Raises each amount to that of `floor` where it is less.
    pub fn raise(&mut self, floor: &Resources) {
        self.cpu = self.cpu.max(floor.cpu);
        self.memory = self.memory.max(floor.memory);
        self.storage = self.storage.max(floor.storage);
        for (name, amount) in &floor.other {
            let entry = self.other.entry(name.clone()).or_default();
            *entry = (*entry).max(*amount);
        }
    }

    /// The first resource of which `want` asks more than `self` has beyond `used`: its name, the amount wanted and the amount free.
    /// A resource of which nothing is asked never fails, not even where more is used than there is.
    pub fn short_of(&self, used: &Resources, want: &Resources) -> Option<Shortage> {
        let plain = [
            ("cpu", self.cpu, used.cpu, want.cpu),
            ("memory", self.memory.0, used.memory.0, want.memory.0),
            ("ephemeral-storage", self.storage.0, used.storage.0, want.storage.0),
        ];
        for (name, total, used, want) in plain {
            let free = total.saturating_sub(used);
            if want > 0 && want > free {
                return Some(Shortage { resource: name.into(), want, free });
            }
        }
        for (name, &want) in &want.other {
            let total = self.other.get(name).copied().unwrap_or(0);
            let free = total.saturating_sub(used.other.get(name).copied().unwrap_or(0));
            if want > 0 && want > free {
                return Some(Shortage { resource: name.clone(), want, free });
            }
        }
        None
    }
}

/// More was asked of a resource than is free.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// The resource's Kubernetes name.
    pub resource: Arc<str>,
    /// The amount wanted, in the resource's own unit (thousandths of a core for CPU).
    pub want: u64,
    /// The amount free.
    pub free: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ask::Role;

    fn container(role: Role, cpu: u64) -> ContainerRequest {
        ContainerRequest { role, requests: Resources::of(cpu, Bytes(cpu)) }
    }

    #[test]
    fn init_containers_count_by_their_maximum_and_sidecars_beside_what_follows_them() {
        let containers = [
            container(Role::Init, 500),
            container(Role::Sidecar, 100),
            container(Role::Init, 700),
            container(Role::Main, 300),
            container(Role::Main, 200),
        ];
        // init 500; then sidecar 100 with init 700 = 800; then 100 + 300 + 200 = 600
        assert_eq!(Resources::of_pod(&containers, None, &Resources::default()).cpu, 800);
        assert_eq!(Resources::of_pod(&containers, None, &Resources::of(50, Bytes(0))).cpu, 850);
        let stated = Resources::of(1000, Bytes(1));
        assert_eq!(Resources::of_pod(&containers, Some(&stated), &Resources::of(50, Bytes(0))).cpu, 1050);
    }

    #[test]
    fn a_resource_of_which_nothing_is_asked_never_falls_short() {
        let total = Resources::of(1000, Bytes(10));
        let used = Resources::of(2000, Bytes(0));
        assert_eq!(total.short_of(&used, &Resources::of(0, Bytes(10))), None);
        let short = total.short_of(&used, &Resources::of(1, Bytes(0))).unwrap();
        assert_eq!((&*short.resource, short.want, short.free), ("cpu", 1, 0));
    }
}

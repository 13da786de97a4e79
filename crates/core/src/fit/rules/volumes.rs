//! Volumes: where they can be reached, how many a node can attach, who may share them, and where missing ones can be made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::keys;
use crate::ledger::snapshot::{NodeState, PodIx, Snapshot, Surroundings};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::reason::{NodeReason, VolumeReason};
use crate::model::volume::{Claim, ClaimKey, Disk, StorageClass, Volume, VolumeStep, VolumeUse};

/// A pod's volumes, looked up once.
#[derive(Debug)]
pub(crate) struct Volumes<'a> {
    snapshot: &'a Snapshot,
    /// Something that is wrong on every node.
    broken: Option<VolumeReason>,
    disks: Vec<&'a Disk>,
    bound: Vec<&'a Volume>,
    /// Claims that are bound once the pod has a node.
    open: Vec<(&'a Claim, &'a StorageClass)>,
    /// What it attaches: driver and the driver's own name for it.
    attaches: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl<'a> Volumes<'a> {
    /// The pod's volumes; absent where it has none that matter.
    pub(crate) fn of(snapshot: &'a Snapshot, ix: PodIx, pod: &'a Pod) -> Option<Volumes<'a>> {
        if pod.spec.volumes.is_empty() {
            return None;
        }
        let around = snapshot.surroundings();
        let mut found = Volumes {
            snapshot,
            broken: None,
            disks: Vec::new(),
            bound: Vec::new(),
            open: Vec::new(),
            attaches: attached(around, pod),
        };
        for volume in &pod.spec.volumes {
            match volume {
                VolumeUse::Disk(disk) => found.disks.push(disk),
                VolumeUse::Inline(_) => {}
                VolumeUse::Claim(name) => {
                    if let Err(reason) = found.claim(around, pod, name) {
                        found.broken.get_or_insert(reason);
                    }
                }
            }
        }
        if let Some(claim) = found.taken_by_another(ix, pod) {
            found.broken.get_or_insert(VolumeReason::InUse { claim });
        }
        Some(found)
    }

    fn claim(&mut self, around: &'a Surroundings, pod: &Pod, name: &Arc<str>) -> Result<(), VolumeReason> {
        let key = ClaimKey { namespace: pod.key.namespace.clone(), name: name.clone() };
        let claim = around.claims.get(&key).ok_or_else(|| VolumeReason::NoClaim { claim: name.clone() })?;
        if claim.terminating {
            return Err(VolumeReason::ClaimTerminating { claim: name.clone() });
        }
        if claim.lost {
            return Err(VolumeReason::ClaimLost { claim: name.clone() });
        }
        if let Some(volume) = &claim.volume {
            let volume = around.volumes.get(volume).ok_or_else(|| VolumeReason::NoVolume { volume: volume.clone() })?;
            self.bound.push(volume);
            return Ok(());
        }
        match around.classes.get(&claim.class).filter(|class| class.wait_for_first_consumer) {
            Some(class) => self.open.push((claim, class)),
            None => return Err(VolumeReason::Unbound { claim: name.clone() }),
        }
        Ok(())
    }

    /// A claim that only one pod may use and another uses.
    fn taken_by_another(&self, ix: PodIx, pod: &Pod) -> Option<Arc<str>> {
        let claims = &self.snapshot.surroundings().claims;
        let single = pod.spec.volumes.iter().filter_map(|volume| match volume {
            VolumeUse::Claim(name) => {
                let key = ClaimKey { namespace: pod.key.namespace.clone(), name: name.clone() };
                claims.get(&key).filter(|c| c.is_for_one_pod()).map(|_| name)
            }
            _ => None,
        });
        let single: BTreeSet<&Arc<str>> = single.collect();
        if single.is_empty() {
            return None;
        }
        let others = self.snapshot.pods().filter(|(other, state)| {
            *other != ix && state.on().is_some() && state.pod().key.namespace == pod.key.namespace
        });
        let mut used = others.flat_map(|(_, state)| &state.pod().spec.volumes).filter_map(|volume| match volume {
            VolumeUse::Claim(name) => Some(name),
            _ => None,
        });
        used.find(|name| single.contains(name)).cloned()
    }

    pub(crate) fn check(&self, state: &NodeState) -> Result<(), NodeReason> {
        self.find(state).map_err(NodeReason::Volume)
    }

    fn find(&self, state: &NodeState) -> Result<(), VolumeReason> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let node = state.node();
        let there = || state.pods().iter().filter_map(|ix| self.snapshot.pod_at(*ix));
        for disk in &self.disks {
            let mut used = there().flat_map(|p| &p.pod().spec.volumes);
            if used.any(|volume| matches!(volume, VolumeUse::Disk(other) if other.conflicts(disk))) {
                return Err(VolumeReason::Disk { id: disk.id.clone() });
            }
        }
        self.limits(state)?;
        for volume in &self.bound {
            if !reaches(volume, node) {
                return Err(VolumeReason::Node { volume: volume.name.clone() });
            }
            if !in_zone(volume, node) {
                return Err(VolumeReason::Zone { volume: volume.name.clone() });
            }
        }
        self.assign(node).map(|_| ())
    }

    fn limits(&self, state: &NodeState) -> Result<(), VolumeReason> {
        let limits = &state.node().volume_limits;
        if limits.is_empty() || self.attaches.is_empty() {
            return Ok(());
        }
        let around = self.snapshot.surroundings();
        let there = state.pods().iter().filter_map(|ix| self.snapshot.pod_at(*ix));
        let mut all: BTreeSet<(Arc<str>, Arc<str>)> = there.flat_map(|p| attached(around, p.pod())).collect();
        all.extend(self.attaches.iter().cloned());
        let mut counts: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        for (driver, _) in &all {
            *counts.entry(driver).or_default() += 1;
        }
        let ours: BTreeSet<&Arc<str>> = self.attaches.iter().map(|(driver, _)| driver).collect();
        match ours.into_iter().find(|driver| limits.get(*driver).is_some_and(|limit| counts[*driver] > *limit)) {
            Some(driver) => Err(VolumeReason::Limit { driver: driver.clone() }),
            None => Ok(()),
        }
    }

    /// What becomes of each open claim on this node: the smallest volume that suits, or a new one.
    fn assign(&self, node: &Node) -> Result<Vec<VolumeStep>, VolumeReason> {
        let around = self.snapshot.surroundings();
        let mut taken: BTreeSet<&Arc<str>> = BTreeSet::new();
        let mut steps = Vec::new();
        for (claim, class) in &self.open {
            let suits =
                |volume: &&Volume| !taken.contains(&volume.name) && suits(claim, volume) && reaches(volume, node);
            let smallest =
                around.volumes.values().filter(suits).min_by_key(|v| (v.claim.is_none(), v.capacity, &v.name));
            if let Some(volume) = smallest.filter(|_| claim.selected_node.is_none()) {
                taken.insert(&volume.name);
                steps.push(VolumeStep::Bind { claim: claim.key.clone(), volume: volume.name.clone() });
                continue;
            }
            can_be_made(around, claim, class, node)?;
            steps.push(VolumeStep::Provision { claim: claim.key.clone(), node: node.name.clone() });
        }
        Ok(steps)
    }

    pub(crate) fn steps(&self, state: &NodeState) -> Vec<VolumeStep> {
        self.assign(state.node()).unwrap_or_default()
    }
}

/// Would this volume do for this claim?
fn suits(claim: &Claim, volume: &Volume) -> bool {
    let for_it = volume.claim.as_ref().is_none_or(|key| *key == claim.key);
    for_it
        && !volume.unavailable
        && volume.class == claim.class
        && volume.block == claim.block
        && volume.capacity >= claim.request
        && claim.modes.is_subset(&volume.modes)
        && claim.selector.as_ref().is_none_or(|s| s.selects(&volume.labels))
}

fn can_be_made(around: &Surroundings, claim: &Claim, class: &StorageClass, node: &Node) -> Result<(), VolumeReason> {
    let none = || VolumeReason::NoneToBind { claim: claim.key.name.clone() };
    if class.provisioner.is_none() {
        return Err(none());
    }
    if claim.selected_node.as_ref().is_some_and(|selected| *selected != node.name) {
        return Err(none());
    }
    let allowed =
        class.topologies.is_empty() || class.topologies.iter().any(|term| term.iter().all(|r| r.holds(&node.labels)));
    if !allowed {
        return Err(none());
    }
    let enough = !class.tracks_capacity
        || around.capacities.iter().any(|room| {
            let here = room.nodes.as_ref().is_some_and(|s| s.selects(&node.labels));
            room.class == class.name && here && room.largest >= claim.request
        });
    if enough { Ok(()) } else { Err(VolumeReason::NoRoom { claim: claim.key.name.clone() }) }
}

fn reaches(volume: &Volume, node: &Node) -> bool {
    volume.nodes.as_ref().is_none_or(|terms| terms.iter().any(|t| t.accepts(&node.labels, node.name.as_str())))
}

/// Zone and region of the volume (several joined by `__`) must be the node's, where the node says any.
fn in_zone(volume: &Volume, node: &Node) -> bool {
    let says = |key: &&str| node.labels.contains_key(*key);
    if !keys::ZONES.iter().any(says) {
        return true;
    }
    keys::ZONES.iter().all(|key| match volume.labels.get(*key) {
        None => true,
        Some(zones) => node.labels.get(*key).is_some_and(|at| zones.split("__").any(|zone| *zone == **at)),
    })
}

/// What a pod attaches to its node: driver, and the driver's own name for the volume.
fn attached(around: &Surroundings, pod: &Pod) -> BTreeSet<(Arc<str>, Arc<str>)> {
    let mut found = BTreeSet::new();
    for (i, volume) in pod.spec.volumes.iter().enumerate() {
        match volume {
            VolumeUse::Disk(_) => {}
            VolumeUse::Inline(driver) => {
                found.insert((driver.clone(), format!("{}#{i}", pod.uid).into()));
            }
            VolumeUse::Claim(name) => {
                let key = ClaimKey { namespace: pod.key.namespace.clone(), name: name.clone() };
                let Some(claim) = around.claims.get(&key) else { continue };
                let volume = claim.volume.as_ref().and_then(|name| around.volumes.get(name));
                if let Some((driver, handle)) = volume.and_then(|v| v.driver.clone()) {
                    found.insert((driver, handle));
                } else if volume.is_none()
                    && let Some(driver) = around.classes.get(&claim.class).and_then(|class| class.provisioner.clone())
                {
                    found.insert((driver, format!("{}/{}", key.namespace, key.name).into()));
                }
            }
        }
    }
    found
}

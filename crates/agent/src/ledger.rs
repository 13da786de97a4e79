//! The node's own ledger. A Binding guards its pod, not the card: two schedulers can both succeed. Here grants are taken first
//! come first served, and what would over-commit a device is refused before its container starts.
//!
//! A pod holds what its grant says from its first start until it is gone from the API server *and* none of its containers
//! runs any more. A pod that was force-deleted holds what its containers that still run use; processes of nobody's hold their
//! memory.
//!
//! Pure: what the API server, the runtime and the driver say comes in as arguments.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::ask::Role;
use divvy_core::device::{Device, Health, Inventory};
use divvy_core::grant::Grant;
use divvy_core::id::{ContainerName, DeviceId, PodKey, PodUid};
use divvy_core::ledger::{Charge, charges};
use divvy_core::units::Bytes;
use serde::{Deserialize, Serialize};

/// What is held of each device. Hardware partitions are their vendor's to count.
type PerDevice = BTreeMap<DeviceId, Charge>;

/// The most a pod holds at any time, as the scheduler counts it.
pub fn peak(grant: &Grant) -> PerDevice {
    charges(grant, &Inventory::default(), false).into_iter().collect()
}

/// A pod that holds something here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The pod.
    pub pod: PodKey,
    /// What it was granted, as it stands now.
    pub grant: Grant,
    /// Its place in the order of admissions.
    pub order: u64,
    /// Gone from the API server, with these containers still running.
    #[serde(skip)]
    pub left_behind: Option<BTreeSet<ContainerName>>,
}

impl Holder {
    fn holds(&self) -> PerDevice {
        match &self.left_behind {
            None => peak(&self.grant),
            Some(running) => {
                let mut left = self.grant.clone();
                left.containers.retain(|c| running.contains(&c.name));
                // They run beside each other, whatever their parts were.
                left.containers.iter_mut().for_each(|c| c.role = Role::Main);
                peak(&left)
            }
        }
    }
}

/// Why a grant cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Every reason, each a sentence part that names the device and who holds it.
    pub reasons: Vec<String>,
    /// It passes by itself: only containers on their way out, or foreign processes, stand in the way.
    pub passing: bool,
}

impl Refusal {
    /// Something on the node is broken, and may be mended.
    pub fn broken(why: String) -> Refusal {
        Refusal { reasons: vec![why], passing: true }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reasons.join("; "))
    }
}

/// Who holds what on this node.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    holders: BTreeMap<PodUid, Holder>,
    next: u64,
}

impl Ledger {
    /// The holders, by uid.
    pub fn holders(&self) -> &BTreeMap<PodUid, Holder> {
        &self.holders
    }

    /// What is held of each device.
    pub fn held(&self) -> BTreeMap<DeviceId, Charge> {
        self.held_without(None, |_| true)
    }

    fn held_without(&self, except: Option<&PodUid>, counts: impl Fn(&Holder) -> bool) -> PerDevice {
        let mut all = PerDevice::new();
        for (uid, holder) in &self.holders {
            if Some(uid) == except || !counts(holder) {
                continue;
            }
            for (device, held) in holder.holds() {
                let sum = all.entry(device).or_default();
                *sum = sum.beside(held);
            }
        }
        all
    }

    /// Takes a grant, or says why not. A pod that holds exactly this already is let in again: containers restart. A changed
    /// grant (resize) is judged like a new one, with what the pod held given back first.
    pub fn admit(
        &mut self,
        uid: &PodUid,
        pod: &PodKey,
        grant: &Grant,
        devices: &[Device],
        foreign: &BTreeMap<DeviceId, Bytes>,
    ) -> Result<(), Refusal> {
        if self.holders.get(uid).is_some_and(|h| h.grant == *grant && h.left_behind.is_none()) {
            return Ok(());
        }
        let known = self.holders.contains_key(uid);
        let want = peak(grant);
        let mut reasons: Vec<String> =
            grant.unprotected().map(|(name, slice)| unprotected(name, &slice.device)).collect();
        let mut all_passing = reasons.is_empty();
        for (id, need) in &want {
            let Some(device) = devices.iter().find(|d| d.id == *id) else {
                reasons.push(format!("this node has no device {id}"));
                all_passing = false;
                continue;
            };
            if let (false, Some(why)) = (known, closed(device)) {
                reasons.push(format!("{id} is {why}"));
                all_passing = false;
                continue;
            }
            let held = self.held_without(Some(uid), |_| true).remove(id).unwrap_or_default();
            let theirs = foreign.get(id).copied().unwrap_or_default();
            let against = objections(device, need, &held, theirs);
            if against.is_empty() {
                continue;
            }
            let staying = self.held_without(Some(uid), |h| h.left_behind.is_none()).remove(id).unwrap_or_default();
            all_passing &= objections(device, need, &staying, Bytes::ZERO).is_empty();
            let by = self.names_on(id, uid, theirs);
            reasons.extend(against.into_iter().map(|what| format!("{id}: {what}, held by {by}")));
        }
        if reasons.is_empty() {
            self.adopt(uid, pod, grant);
            return Ok(());
        }
        Err(Refusal { reasons, passing: all_passing })
    }

    /// Takes a grant without judging it: its containers run already, so refusing would only hide them.
    pub fn adopt(&mut self, uid: &PodUid, pod: &PodKey, grant: &Grant) {
        if let Some(holder) = self.holders.get_mut(uid) {
            holder.grant = grant.clone();
            holder.left_behind = None;
            return;
        }
        let holder = Holder { pod: pod.clone(), grant: grant.clone(), order: self.next, left_behind: None };
        self.next += 1;
        self.holders.insert(uid.clone(), holder);
    }

    /// A change of what a pod holds could not be carried out: it holds what it held before.
    pub fn put_back(&mut self, uid: &PodUid, before: Option<Holder>) {
        match before {
            Some(holder) => self.holders.insert(uid.clone(), holder),
            None => self.holders.remove(uid),
        };
    }

    /// Puts back what was written down before a restart.
    pub fn restore(&mut self, uid: PodUid, holder: Holder) {
        self.next = self.next.max(holder.order + 1);
        self.holders.insert(uid, holder);
    }

    /// Brings the ledger in line with the API server (`bound`: pods of this node that have not ended) and the runtime
    /// (`running`: containers that run, by pod). Returns the pods that hold nothing any more.
    pub fn settle(
        &mut self,
        bound: &BTreeSet<PodUid>,
        running: &BTreeMap<PodUid, BTreeSet<ContainerName>>,
    ) -> Vec<PodUid> {
        let mut released = Vec::new();
        for (uid, holder) in &mut self.holders {
            holder.left_behind = match running.get(uid) {
                _ if bound.contains(uid) => None,
                Some(containers) if !containers.is_empty() => Some(containers.clone()),
                _ => {
                    released.push(uid.clone());
                    Some(BTreeSet::new())
                }
            };
        }
        for uid in &released {
            self.holders.remove(uid);
        }
        released
    }

    /// The pods that [`Ledger::settle`] would release.
    pub fn leaving(
        &self,
        bound: &BTreeSet<PodUid>,
        running: &BTreeMap<PodUid, BTreeSet<ContainerName>>,
    ) -> BTreeSet<PodUid> {
        let is_leaving = |uid: &&PodUid| !bound.contains(*uid) && running.get(*uid).is_none_or(BTreeSet::is_empty);
        self.holders.keys().filter(is_leaving).cloned().collect()
    }

    fn names_on(&self, device: &DeviceId, except: &PodUid, foreign: Bytes) -> String {
        let mut names: Vec<String> = self
            .holders
            .iter()
            .filter(|(uid, holder)| *uid != except && holder.holds().contains_key(device))
            .map(|(_, holder)| match &holder.left_behind {
                None => holder.pod.to_string(),
                Some(_) => format!("{} (deleted, still running)", holder.pod),
            })
            .collect();
        if foreign > Bytes::ZERO {
            names.push(format!("processes without a grant ({foreign})"));
        }
        if names.is_empty() { "nobody".into() } else { names.join(", ") }
    }
}

/// What is wrong with a grant of a part of a card without isolation. No scheduler of this version makes one.
fn unprotected(container: &ContainerName, device: &DeviceId) -> String {
    format!(
        "{device}: {container} is granted a part of it without isolation, which only a container alone on a device may have"
    )
}

/// Why a device takes no new work.
fn closed(device: &Device) -> Option<String> {
    match &device.health {
        Health::Unhealthy { reason } => Some(format!("not healthy ({reason})")),
        Health::Healthy if device.cordoned => Some("cordoned".into()),
        Health::Healthy => None,
    }
}

/// What speaks against `need` on a device of which `held` is taken.
fn objections(device: &Device, need: &Charge, held: &Charge, foreign: Bytes) -> Vec<String> {
    let mut against = Vec::new();
    if held.exclusive {
        against.push("it is given out exclusively".to_owned());
    } else if need.exclusive && held.tasks > 0 {
        against.push("it is asked for exclusively and in use".to_owned());
    }
    let taken = Bytes(held.memory.0.saturating_add(foreign.0));
    let room = device.bookable_memory().saturating_sub(taken);
    if need.memory > room {
        against.push(format!("{} of memory asked, {room} of {} free", need.memory, device.bookable_memory()));
    }
    let time = device.bookable_share().saturating_sub(held.share);
    if need.share > time {
        against.push(format!("{} of its time asked, {time} free", need.share));
    }
    if let Some(most) = device.max_tasks
        && held.tasks.saturating_add(need.tasks) > most
    {
        against.push(format!("{most} containers may share it and {} do", held.tasks));
    }
    against
}

#[cfg(test)]
mod tests;

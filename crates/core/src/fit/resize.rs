//! May a pod hold other amounts of the devices it has? Asked before anything counts: the scheduler admits what fits beside what others
//! hold and beside the namespace's quota, and the command line tells whether it would.

use std::collections::BTreeMap;

use crate::ledger::quota::{Held, Usage, Verdict, What};
use crate::ledger::snapshot::{NodeState, PodState, Snapshot};
use crate::ledger::{Charge, charges};
use crate::model::device::{Device, DeviceKind};
use crate::model::grant::{Grant, Slice};
use crate::model::id::{DeviceId, PodUid};
use crate::model::units::{Bytes, Share};

/// Is there room for these amounts, the pod's own given back? Asked for what grows: what the pod holds was promised to it, however
/// little the policy has its device promise by now. Everything that is in the way, else.
pub fn fits(snapshot: &Snapshot, uid: &PodUid, next: &Grant) -> Result<(), Vec<String>> {
    let state = snapshot.pod(uid).ok_or_else(|| vec!["the pod is gone".to_owned()])?;
    let bound = state.pod().bound().ok_or_else(|| vec!["it has no node".to_owned()])?;
    let held = bound.grant.as_deref().ok_or_else(|| vec!["it holds no device".to_owned()])?;
    let node = snapshot.node(&bound.node).ok_or_else(|| vec![format!("its node {} is not known", bound.node)])?;
    let change = Change { snapshot, state, node, held, next, init_done: bound.init_done };
    let mut against = change.on_devices();
    against.extend(change.of_quota());
    if against.is_empty() { Ok(()) } else { Err(against) }
}

/// A limit that is raised beyond the card itself is a slip, or worse. One that was granted may stay: a card can be promised more often
/// than once.
pub fn too_large(held: &Grant, next: &Grant, device: &Device) -> Option<String> {
    let pairs = slices(held).zip(slices(next)).filter(|(_, next)| next.device == device.id);
    let raised = pairs.filter(|(now, next)| next.memory_limit > now.memory_limit).map(|(_, next)| next.memory_limit);
    let most = raised.max().filter(|most| *most > device.memory)?;
    Some(format!("{}: a limit of {most} is more than it has, {}", device.id, device.memory))
}

struct Change<'a> {
    snapshot: &'a Snapshot,
    state: &'a PodState,
    node: &'a NodeState,
    held: &'a Grant,
    next: &'a Grant,
    init_done: bool,
}

impl Change<'_> {
    /// What it is charged now and would be charged, by device.
    fn charges(&self) -> impl Iterator<Item = (DeviceId, Charge, Charge)> {
        let inventory = &self.node.node().inventory;
        let now: BTreeMap<DeviceId, Charge> = charges(self.held, inventory, self.init_done).into_iter().collect();
        let next = charges(self.next, inventory, self.init_done).into_iter();
        next.map(move |(id, charge)| (id.clone(), now.get(&id).copied().unwrap_or_default(), charge))
    }

    fn on_devices(&self) -> Vec<String> {
        let mut against = Vec::new();
        let devices = &self.node.node().inventory.devices;
        for (id, now, next) in self.charges() {
            let place = devices.iter().position(|device| device.id == id);
            let kind = place.and_then(|place| Some((place, self.snapshot.kinds().of(devices[place].kind)?)));
            let Some((place, kind)) = kind else {
                against.push(format!("{id}: its node does not have it any more"));
                continue;
            };
            let mut book = self.node.books()[place];
            if let Some((_, own)) = self.state.charges().iter().find(|(device, _)| *device as usize == place) {
                kind.give_back(&mut book, own);
            }
            if let Err(obstacle) = kind.room(&book, &grown(&now, &next)) {
                against.push(format!("{id}: {obstacle}"));
            }
            against.extend(too_large(self.held, self.next, &devices[place]));
        }
        against
    }

    /// What the namespace's quota says, with the figures.
    fn of_quota(&self) -> Vec<String> {
        let namespace = &self.state.pod().key.namespace;
        let quotas = &self.snapshot.surroundings().quotas;
        let mut more = Held::default();
        for (id, now, next) in self.charges() {
            let device = self.node.node().inventory.devices.iter().find(|d| d.id == id && d.kind != DeviceKind::Nic);
            let Some(device) = device else { continue };
            more.add(&Held::of(&device.model, growth(&Usage::of(&now, device), &Usage::of(&next, device))));
        }
        match quotas.check(self.snapshot.holdings(), namespace, &more) {
            Verdict::Fits | Verdict::Borrows => Vec::new(),
            Verdict::Reclaims(excess) | Verdict::Exceeds(excess) => excess.iter().map(ToString::to_string).collect(),
        }
    }
}

fn slices(grant: &Grant) -> impl Iterator<Item = &Slice> {
    grant.containers.iter().flat_map(|container| &container.slices)
}

/// The amounts of `next` that are more than is held, each whole; there is always room for none.
fn grown(now: &Charge, next: &Charge) -> Charge {
    Charge {
        memory: if next.memory > now.memory { next.memory } else { Bytes::ZERO },
        share: if next.share > now.share { next.share } else { Share::ZERO },
        tasks: if next.tasks > now.tasks { next.tasks } else { 0 },
        ..*next
    }
}

/// By how much the amounts of `next` are more than those of `now`.
fn growth(now: &Usage, next: &Usage) -> Usage {
    let more = |what: What| next.get(what).saturating_sub(now.get(what));
    Usage { devices: more(What::Devices), share: more(What::Share), memory: more(What::Memory) }
}

#[cfg(test)]
mod tests;

//! Trying a pod on one node: which devices fit each of its requests, and what it would hold.

use crate::fit::topology;
use crate::ledger::kind::{Kinds, Want};
use crate::ledger::quota::Quota;
use crate::ledger::snapshot::NodeState;
use crate::ledger::{Book, Charge, charge, charge_of};
use crate::model::ask::{ContainerAsk, DeviceAsk, GpuAsk, Role, Topology};
use crate::model::device::{Device, DeviceKind, Health};
use crate::model::grant::{ContainerGrant, Grant, Slice};
use crate::model::reason::Obstacle;
use crate::model::time::Time;
use crate::model::units::Share;

/// A pod being tried on a node: what it asks for, and what it was given so far.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// The node.
    pub node: &'a NodeState,
    /// The request.
    pub ask: &'a GpuAsk,
    kinds: Kinds,
    terms: TrialTerms<'a>,
    given: Vec<Given>,
    /// Devices on which the first container went and the others found no room.
    barred: Vec<usize>,
}

/// What a trial must keep to besides the ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrialTerms<'a> {
    /// Most containers that may share a device.
    pub max_tasks: Option<u32>,
    /// A container that books no time is refused where all time is booked (vGPU's and HAMi's rule).
    pub time_for_all: bool,
    /// The quotas of the pod's namespace: which models it may use.
    pub quotas: &'a [Quota],
    /// Devices of this node that are kept for others.
    pub kept: &'a [(usize, crate::model::id::PodKey)],
    /// By place in [`crate::Snapshot::models`], as far as that is known: where a model stands in the pod's order of preference; absent for
    /// one that will not do.
    pub models: &'a [Option<usize>],
}

/// One slice given in a trial.
#[derive(Clone, Debug)]
pub struct Given {
    /// The container's place in the ask.
    pub container: usize,
    /// When it runs.
    pub role: Role,
    /// The device's place in the inventory.
    pub device: usize,
    /// What it gets.
    pub slice: Slice,
}

impl<'a> Trial<'a> {
    /// A pod that was given nothing yet.
    pub fn new(node: &'a NodeState, ask: &'a GpuAsk, kinds: Kinds, terms: TrialTerms<'a>) -> Trial<'a> {
        Trial { node, ask, kinds, terms, given: Vec::new(), barred: Vec::new() }
    }

    /// The devices of the node.
    pub fn devices(&self) -> &'a [Device] {
        &self.node.node().inventory.devices
    }

    /// The book of a device as others left it.
    pub fn book(&self, device: usize) -> &'a Book {
        &self.node.books()[device]
    }

    /// What was given so far.
    pub fn given(&self) -> &[Given] {
        &self.given
    }

    /// The kinds of devices that are known.
    pub(super) fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// Gives the pod one more slice.
    pub(super) fn give_slice(&mut self, given: Given) {
        self.given.push(given);
    }

    /// Takes everything back and passes by the devices that the first container had; false where it had none.
    pub(super) fn begin_elsewhere(&mut self) -> bool {
        let Some(first) = self.given.first().map(|first| first.container) else { return false };
        self.barred.extend(self.given.iter().filter(|g| g.container == first).map(|g| g.device));
        self.given.clear();
        true
    }

    /// The book of a device with what the pod was given so far.
    pub fn book_with(&self, device: usize) -> Book {
        let mut book = *self.book(device);
        let held = self.held(device, None);
        if held.tasks > 0 {
            book.take(&held);
        }
        book
    }

    /// The book of a device as a container will find it: an init container runs before the pod's other containers, which were given
    /// theirs first, the others run beside them.
    pub fn beside(&self, container: &ContainerAsk, device: usize) -> Book {
        if container.role == Role::Init { *self.book(device) } else { self.book_with(device) }
    }

    /// The cards of the node of the kinds that the pod was given. What only goes with cards, as a NIC does, is none.
    pub fn cards(&self) -> impl Iterator<Item = usize> {
        let given = |kind| self.given.iter().any(|g| g.slice.kind == kind);
        let is_card = move |d: &Device| d.kind != DeviceKind::Nic && given(d.kind);
        self.devices().iter().enumerate().filter(move |(_, d)| is_card(d)).map(|(i, _)| i)
    }

    /// Where a device's model stands in the pod's order of preference; absent where it will not do.
    fn standing(&self, device: usize) -> Option<usize> {
        let known = self.terms.models.get(usize::from(self.node.model(device)));
        known.copied().unwrap_or_else(|| self.ask.models.preference(self.devices()[device].model.as_str()))
    }

    /// How many models the pod would rather have than that of a device.
    pub fn preference(&self, device: usize) -> usize {
        self.standing(device).unwrap_or(self.ask.models.only.len())
    }

    /// Is it a device the pod would take at all, full or not?
    pub fn suits(&self, device: usize) -> bool {
        suitable_if(self.ask, &self.devices()[device], || self.standing(device).is_some()).is_ok()
    }

    /// What the pod holds of a device, with one more slice for a container perhaps.
    fn held(&self, device: usize, more: Option<(usize, Role, Charge)>) -> Charge {
        if !self.given.iter().any(|g| g.device == device) {
            return more.map_or_else(Charge::default, |(.., slice)| slice);
        }
        let own = |g: &Given| (g.container, g.role, charge_of(&g.slice, self.devices().get(device)));
        let mut slices: Vec<(usize, Role, Charge)> =
            self.given.iter().filter(|g| g.device == device).map(own).collect();
        slices.extend(more);
        // The fold goes by the pod's order, the trial gives to main containers first.
        slices.sort_by_key(|(container, ..)| *container);
        charge(slices.into_iter().map(|(_, role, charge)| (role, charge)), false)
    }

    /// Does a device fit a request, and with which slice?
    pub fn fits(
        &self,
        index: usize,
        container: &ContainerAsk,
        want: &DeviceAsk,
        device: usize,
    ) -> Result<Slice, Obstacle> {
        let (info, book) = (&self.devices()[device], self.book(device));
        suitable_if(self.ask, info, || self.standing(device).is_some())?;
        if info.kind != DeviceKind::Nic && !self.terms.quotas.iter().all(|quota| quota.allows_model(&info.model)) {
            return Err(Obstacle::NotInQuota);
        }
        if let Some((_, holder)) = self.terms.kept.iter().find(|(d, _)| *d == device) {
            return Err(Obstacle::Reserved { holder: holder.clone() });
        }
        // All containers on the devices of the first one that has any.
        let of_first = |g: &&Given| g.container == self.given[0].container;
        if self.ask.topology == Topology::SameDevice
            && self.given.first().is_some_and(|first| first.container != index)
            && !self.given.iter().filter(of_first).any(|g| g.device == device)
        {
            return Err(Obstacle::Place { want: Topology::SameDevice });
        }
        if self.barred.contains(&device) && self.given.iter().all(|g| g.container == index) {
            return Err(Obstacle::Place { want: Topology::SameDevice });
        }
        let kind = self.kinds.of(want.kind).ok_or(Obstacle::Unknown)?;
        let own = self.held(device, None);
        let wanted = Want { ask: want, isolation: &self.ask.isolation };
        let slice = kind.slice(info, &self.node.node().inventory, &wanted, book.slots | own.slots)?;
        // A container sees a device once: a second request of it wants another device, unless the device is cut up.
        let again = self.given.iter().any(|g| g.container == index && g.device == device);
        if again && slice.partition.is_none() {
            return Err(Obstacle::InUse { tasks: 1 });
        }
        let held = self.held(device, Some((index, container.role, charge_of(&slice, Some(info)))));
        // A pod whose containers are to see the same devices holds them alone as a pod; else a container shares with none of its own pod.
        if held.exclusive && held.tasks > 1 && self.ask.topology != Topology::SameDevice {
            return Err(Obstacle::InUse { tasks: held.tasks });
        }
        kind.room(book, &held)?;
        if let Some(most) = self.terms.max_tasks
            && book.tasks + held.tasks > most
        {
            return Err(Obstacle::Tasks { most });
        }
        if self.terms.time_for_all && want.share.0 == 0 && slice.partition.is_none() && !want.exclusive {
            let free = self.beside(container, device).free_share();
            if free == Share::ZERO {
                return Err(Obstacle::Share { want: want.share, free });
            }
        }
        Ok(slice)
    }

    /// The grant for what was given.
    pub fn grant(&self, policy: &str, now: Time) -> Grant {
        let slices =
            |index: usize| self.given.iter().filter(|g| g.container == index).map(|g| g.slice.clone()).collect();
        let containers = self.ask.containers.iter().enumerate();
        let container = |(index, c): (usize, &ContainerAsk)| ContainerGrant {
            name: c.name.clone(),
            role: c.role,
            slices: slices(index),
        };
        Grant {
            v: Grant::VERSION,
            at: now.0,
            policy: policy.into(),
            containers: containers.map(container).collect(),
            claim: self.ask.claim.clone(),
        }
    }
}

/// Is it a device the pod would take at all, full or not?
pub fn suitable(ask: &GpuAsk, device: &Device) -> Result<(), Obstacle> {
    suitable_if(ask, device, || ask.models.preference(device.model.as_str()).is_some())
}

fn suitable_if(ask: &GpuAsk, device: &Device, is_model: impl FnOnce() -> bool) -> Result<(), Obstacle> {
    if let Health::Unhealthy { reason } = &device.health {
        return Err(Obstacle::Unhealthy { because: reason.clone() });
    }
    if device.cordoned {
        return Err(Obstacle::Cordoned);
    }
    let named = ask.devices.only.is_empty() || ask.devices.only.contains(&device.id);
    if !named || ask.devices.avoid.contains(&device.id) {
        return Err(Obstacle::NotNamed);
    }
    if device.kind != DeviceKind::Nic && !is_model() {
        return Err(Obstacle::Model);
    }
    Ok(())
}

/// The best `want.count` of devices given best first, as the pod's topology demands.
pub fn take_best(trial: &Trial<'_>, want: &DeviceAsk, ordered: &[usize]) -> Option<Vec<usize>> {
    topology::best_set(trial.node, ordered, want.count as usize, trial.ask.topology)
}

//! Trying a pod on one node: which devices fit each of its requests, and what it would hold.

use crate::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, Role, Topology};
use crate::device::{Device, DeviceKind, Health};
use crate::fit::groups;
use crate::grant::{ContainerGrant, Grant, Slice};
use crate::id::DeviceId;
use crate::kind::{Kinds, Want};
use crate::ledger::{Book, Charge, charge, charge_of};
use crate::quota::Quota;
use crate::reason::{DeviceShortfall, NodeReason, Obstacle};
use crate::snapshot::NodeState;
use crate::time::Time;
use crate::topology;
use crate::units::Share;

/// A pod being tried on a node: what it asks for, and what it was given so far.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The node.
    pub node: &'a NodeState,
    /// The request.
    pub ask: &'a GpuAsk,
    kinds: Kinds,
    terms: Terms<'a>,
    given: Vec<Given>,
    /// Devices on which the first container went and the others found no room.
    barred: Vec<usize>,
}

/// What a trial must keep to besides the ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// Most containers that may share a device.
    pub max_tasks: Option<u32>,
    /// A container that books no time is refused where all time is booked (vGPU's and HAMi's rule).
    pub time_for_all: bool,
    /// The quotas of the pod's namespace: which models it may use.
    pub quotas: &'a [Quota],
    /// Devices of this node that are kept for others.
    pub kept: &'a [(usize, crate::id::PodKey)],
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

/// How a policy chooses among the devices that fit.
pub trait Choose {
    /// Why this policy would not give a container a device that fits; absent where it would.
    fn refuses(&self, _trial: &Trial<'_>, _container: &ContainerAsk, _device: usize) -> Option<Obstacle> {
        None
    }

    /// Chooses `want.count` of `fits` for a container; absent where no choice does.
    fn choose(
        &self,
        trial: &Trial<'_>,
        container: &ContainerAsk,
        want: &DeviceAsk,
        fits: &[usize],
    ) -> Option<Vec<usize>>;
}

impl<'a> Trial<'a> {
    /// A pod that was given nothing yet.
    pub fn new(node: &'a NodeState, ask: &'a GpuAsk, kinds: Kinds, terms: Terms<'a>) -> Trial<'a> {
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

    /// Gives every container what it asks for, or says why not. Main containers and sidecars first; init containers then fit
    /// themselves into what those will hold, as far as that goes.
    ///
    /// Where all must lie on one device, the first container's choice is only a proposal: what has no room for the others is passed by.
    pub fn run(&mut self, policy: &dyn Choose) -> Result<(), NodeReason> {
        let mut said: Option<NodeReason> = None;
        loop {
            let Err(reason) = self.run_once(policy) else { return Ok(()) };
            let reason = match said {
                Some(before) => tell_more(before, &reason),
                None => reason,
            };
            let first = self.given.first().map(|first| first.container);
            let Some(first) = first.filter(|_| self.ask.topology == Topology::SameDevice) else { return Err(reason) };
            self.barred.extend(self.given.iter().filter(|g| g.container == first).map(|g| g.device));
            self.given.clear();
            said = Some(reason);
        }
    }

    fn run_once(&mut self, policy: &dyn Choose) -> Result<(), NodeReason> {
        let order =
            |init: bool| self.ask.containers.iter().enumerate().filter(move |(_, c)| (c.role == Role::Init) == init);
        let mut turns: Vec<(usize, &ContainerAsk)> = order(false).chain(order(true)).collect();
        if self.ask.dialect == Dialect::Kubegpu {
            // KubeGPU went by the names, and who comes first has the first choice.
            turns.sort_by_key(|(_, container)| (container.role == Role::Init, &container.name));
        }
        for (index, container) in turns {
            for want in &container.wants {
                self.give(policy, index, container, want)?;
            }
        }
        Ok(())
    }

    /// Gives the only request of the pod this device; false where it does not fit.
    pub(crate) fn run_on(&mut self, device: usize) -> bool {
        let [container] = &self.ask.containers[..] else { return false };
        let [want] = &container.wants[..] else { return false };
        let Ok(slice) = self.fits(0, container, want, device) else { return false };
        self.given.push(Given { container: 0, role: container.role, device, slice });
        true
    }

    fn give(
        &mut self,
        policy: &dyn Choose,
        index: usize,
        container: &ContainerAsk,
        want: &DeviceAsk,
    ) -> Result<(), NodeReason> {
        let mut fits = Vec::new();
        let mut obstacles = Vec::new();
        for (device, info) in self.devices().iter().enumerate().filter(|(_, d)| d.kind == want.kind) {
            let obstacle = match self.fits(index, container, want, device) {
                Ok(_) => policy.refuses(self, container, device),
                Err(obstacle) => Some(obstacle),
            };
            match obstacle {
                None => fits.push(device),
                Some(obstacle) => obstacles.push((info.id.clone(), obstacle)),
            }
        }
        let chosen = match self.choose_many_on_one(index, container, want, &fits) {
            Some(chosen) => Some(chosen),
            None if fits.len() < want.count as usize => None,
            None => self.choose(policy, container, want, &fits),
        };
        let Some(chosen) = chosen else {
            if fits.len() >= want.count as usize {
                obstacles = self.misplaced(want, &fits);
            }
            return Err(NodeReason::Devices(DeviceShortfall {
                container: container.name.as_str().into(),
                say_which: self.ask.containers.len() > 1 || want.groups.is_some(),
                kind: want.kind,
                want: want.count,
                fitting: fits.len() as u32,
                obstacles,
            }));
        };
        for device in chosen {
            // Chosen from those that fit; partitions of one card are cut one after another.
            if let Ok(slice) = self.fits(index, container, want, device) {
                self.given.push(Given { container: index, role: container.role, device, slice });
            }
        }
        Ok(())
    }

    fn choose(
        &self,
        policy: &dyn Choose,
        container: &ContainerAsk,
        want: &DeviceAsk,
        fits: &[usize],
    ) -> Option<Vec<usize>> {
        // What a request spells out binds, whatever the policy prefers.
        if groups::spelled_out(want).is_some() {
            return groups::choose(self, want, fits);
        }
        if matches!(want.kind, DeviceKind::Gpu | DeviceKind::Mlu) {
            return policy.choose(self, container, want, fits);
        }
        // Kinds about which policies have no opinion say themselves what suits beside the container's other devices.
        let kind = self.kinds.of(want.kind)?;
        let own = self.ask.containers.iter().position(|c| c.name == container.name);
        let beside: Vec<&Device> =
            self.given.iter().filter(|g| Some(g.container) == own).map(|g| &self.devices()[g.device]).collect();
        let mut order: Vec<usize> = fits.to_vec();
        if let Some(least) =
            kind.wants_neighbour().filter(|_| !beside.is_empty() && self.ask.topology != Topology::Best)
        {
            order.retain(|d| {
                beside.iter().any(|b| self.devices()[*d].links.get(&b.id).copied().unwrap_or_default() >= least)
            });
        }
        order.sort_by_key(|d| std::cmp::Reverse(kind.score(&self.devices()[*d], self.book(*d), &beside)));
        (order.len() >= want.count as usize).then(|| order[..want.count as usize].to_vec())
    }

    /// Several hardware partitions of one container may lie on one card, where too few cards are left for one each.
    fn choose_many_on_one(
        &self,
        index: usize,
        container: &ContainerAsk,
        want: &DeviceAsk,
        fits: &[usize],
    ) -> Option<Vec<usize>> {
        if fits.len() >= want.count as usize || want.kind != DeviceKind::Gpu {
            return None;
        }
        let cut = |d: &usize| self.devices()[*d].isolation.first() == Some(&crate::device::Isolation::Mig);
        if !fits.iter().all(cut) || fits.is_empty() {
            return None;
        }
        let mut trial = Trial { given: self.given.clone(), barred: self.barred.clone(), ..*self };
        let mut chosen = Vec::new();
        for device in fits.iter().copied() {
            while chosen.len() < want.count as usize
                && let Ok(slice) = trial.fits(index, container, want, device)
            {
                trial.given.push(Given { container: index, role: container.role, device, slice });
                chosen.push(device);
            }
        }
        (chosen.len() == want.count as usize).then_some(chosen)
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

    /// Enough devices fit one by one, but not together: too few are large enough, or they do not lie as wanted.
    fn misplaced(&self, want: &DeviceAsk, fits: &[usize]) -> Vec<(DeviceId, Obstacle)> {
        let devices: Vec<&Device> = fits.iter().map(|d| &self.devices()[*d]).collect();
        let named = |(device, obstacle): (&Device, Obstacle)| (device.id.clone(), obstacle);
        let scarce = groups::scarce(want, &devices);
        if !scarce.is_empty() {
            return scarce.into_iter().map(named).collect();
        }
        let bound = groups::spelled_out(want).is_some() && !groups::is_auto(want);
        let place = || if bound { Obstacle::Groups } else { Obstacle::Place { want: self.ask.topology } };
        devices.into_iter().map(|device| named((device, place()))).collect()
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

/// What a round of a trial said, with what a later round knows of devices that the earlier one only passed by: that the others could not
/// follow says nothing about a device, that its memory is short does.
fn tell_more(before: NodeReason, later: &NodeReason) -> NodeReason {
    let (NodeReason::Devices(mut short), NodeReason::Devices(later)) = (before.clone(), later) else { return before };
    let passed_by = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Place { want: Topology::SameDevice });
    for (device, obstacle) in short.obstacles.iter_mut().filter(|(_, obstacle)| passed_by(obstacle)) {
        if let Some((_, known)) = later.obstacles.iter().find(|(id, known)| id == device && !passed_by(known)) {
            *obstacle = known.clone();
        }
    }
    NodeReason::Devices(short)
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

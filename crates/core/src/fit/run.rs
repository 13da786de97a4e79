//! A trial from its first request to its last: every container is given what it asks for, or the node says why not.

use crate::fit::choose::Choose;
use crate::fit::groups;
use crate::fit::trial::{Given, Trial};
use crate::model::ask::{ContainerAsk, DeviceAsk, Dialect, Role, Topology};
use crate::model::device::{Device, DeviceKind};
use crate::model::id::DeviceId;
use crate::model::reason::{DeviceShortfall, NodeReason, Obstacle};

impl Trial<'_> {
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
            if self.ask.topology != Topology::SameDevice || !self.begin_elsewhere() {
                return Err(reason);
            }
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
        self.give_slice(Given { container: 0, role: container.role, device, slice });
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
                self.give_slice(Given { container: index, role: container.role, device, slice });
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
        let kind = self.kinds().of(want.kind)?;
        let own = self.ask.containers.iter().position(|c| c.name == container.name);
        let beside: Vec<&Device> =
            self.given().iter().filter(|g| Some(g.container) == own).map(|g| &self.devices()[g.device]).collect();
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
        let cut = |d: &usize| self.devices()[*d].isolation.first() == Some(&crate::model::device::Isolation::Mig);
        if !fits.iter().all(cut) || fits.is_empty() {
            return None;
        }
        let mut trial = self.clone();
        let mut chosen = Vec::new();
        for device in fits.iter().copied() {
            while chosen.len() < want.count as usize
                && let Ok(slice) = trial.fits(index, container, want, device)
            {
                trial.give_slice(Given { container: index, role: container.role, device, slice });
                chosen.push(device);
            }
        }
        (chosen.len() == want.count as usize).then_some(chosen)
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
}

/// The reason of a round of a trial, completed by a later round. Of a device that the earlier round passed by, because the other containers
/// could not follow, the later round may know more: that its memory is short.
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

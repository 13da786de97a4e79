//! How full devices, their groups and the node are, as KubeGPU counts: the mean over cards, memory and bit sets of what is used of
//! each. What is fullest afterwards is filled first, so that whole groups and nodes stay free for those who need them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::fit::{Given, Trial};
use crate::model::device::{Device, DeviceKind};

use super::names::is_bit_set;
use super::tree::{Groups, Lifted, groups, lift};

/// A resource that is used up, in millionths: whole numbers, so that equals are equal in whatever order they are summed.
const FULL: u64 = 1_000_000;

/// What is asked of one device, by name.
type Quantities = BTreeMap<String, i64>;

/// A node's devices with what a pod was given of them.
pub(crate) struct Packing<'a> {
    pub(crate) trial: &'a Trial<'a>,
    /// By the device's place in the inventory; none for what is no GPU.
    groups: Vec<Option<Groups>>,
    /// What the pod's containers ask of the devices they were given.
    own: BTreeMap<usize, Quantities>,
}

impl<'a> Packing<'a> {
    /// The node with what is `given`.
    pub(crate) fn of<'g>(trial: &'a Trial<'a>, given: impl IntoIterator<Item = &'g Given>) -> Packing<'a> {
        let found = groups(&trial.node.node().inventory);
        let groups = trial.devices().iter().map(|device| found.get(&device.id).copied()).collect();
        let mut packing = Packing { trial, groups, own: BTreeMap::new() };
        let mut asked: BTreeMap<usize, Vec<Quantities>> = BTreeMap::new();
        for given in given.into_iter().filter(|given| counts(&trial.devices()[given.device])) {
            // Devices are given in the order of the requests, so that the next device answers the next of them.
            let left = asked.entry(given.container).or_insert_with(|| requests(trial, given.container));
            let quantities = left.pop().unwrap_or_default();
            add(&mut packing.own, given.device, &quantities);
        }
        packing
    }

    /// The groups a device is in.
    pub(crate) fn groups(&self, device: usize) -> Option<Groups> {
        self.groups[device]
    }

    /// How full the node is: 1 where nothing is left.
    pub(crate) fn full(&self) -> f64 {
        let devices = self.trial.devices().iter().enumerate().filter(|(_, info)| counts(info));
        let all = devices.map(|(device, _)| self.fill(device, self.own.get(&device)));
        all.fold(Fill::default(), Fill::and).mean() as f64 / FULL as f64
    }

    /// Candidates for the next of the requests, those before it having the devices `chosen`: best first.
    ///
    /// From the outside in, a place that the pod uses already comes before one it does not, then the one that will be fuller, then the
    /// last of equals. Of a group the best device that can be had in it decides, so that a poor one does not spoil its group.
    pub(crate) fn order(&self, candidates: &[usize], wanted: &[Lifted], chosen: &[usize]) -> Vec<usize> {
        let mut own = self.own.clone();
        wanted.iter().zip(chosen).for_each(|(lifted, device)| add(&mut own, *device, &lifted.quantities));
        let next = wanted.get(chosen.len()).map(|lifted| lifted.quantities.clone()).unwrap_or_default();
        let now: Vec<Fill> = (0..self.groups.len()).map(|d| self.fill(d, own.get(&d))).collect();
        let after = |device: usize| {
            let mut with = own.get(&device).cloned().unwrap_or_default();
            merge(&mut with, &next);
            self.fill(device, Some(&with))
        };
        let after: BTreeMap<usize, Fill> = candidates.iter().map(|device| (*device, after(*device))).collect();
        let level = |of: fn(Groups) -> usize| {
            let mut places: BTreeMap<Option<usize>, Place> = BTreeMap::new();
            for (device, now) in now.iter().enumerate() {
                let place = places.entry(self.groups[device].map(of)).or_default();
                place.used |= own.contains_key(&device);
                place.now = place.now.and(*now);
                let gain = after.get(&device).map_or(0, |after| after.sum.saturating_sub(now.sum));
                place.gain = place.gain.max(gain);
            }
            move |device: usize| {
                let group = self.groups[device].map(of);
                places.get(&group).map(|place| (place.used, place.mean(), group))
            }
        };
        let (outer, inner) = (level(|groups| groups.outer), level(|groups| groups.inner));
        let rank = |d: usize| (outer(d), inner(d), own.contains_key(&d), after.get(&d).map(|fill| fill.mean()), d);
        let mut order = candidates.to_vec();
        order.sort_by_cached_key(|device| Reverse(rank(*device)));
        order
    }

    /// How full a device is with what the pod asks of it.
    fn fill(&self, device: usize, own: Option<&Quantities>) -> Fill {
        let info = &self.trial.devices()[device];
        let others = FULL / 1000 * u64::from(1000 - self.trial.book(device).left());
        let asked = |name: &str| own.and_then(|own| own.get(name)).copied().unwrap_or(0);
        let cards = if own.is_some() { FULL } else { others };
        let memory = part(u64::try_from(asked("memory")).unwrap_or(0), info.memory.0).max(others);
        let bits = info.attributes.iter().filter(|(name, _)| is_bit_set(name)).map(|(name, text)| {
            let has = text.parse::<i64>().unwrap_or(0);
            part(u64::from((has & asked(name)).count_ones()), u64::from(has.count_ones()))
        });
        bits.fold(Fill { sum: cards + memory, resources: 2 }, |fill, bits| fill.and(Fill { sum: bits, resources: 1 }))
    }
}

/// A NIC is chosen for what lies beside it: how full it is says nothing.
fn counts(device: &Device) -> bool {
    device.kind != DeviceKind::Nic
}

/// What a container asks of each of its devices, the first request last.
fn requests(trial: &Trial<'_>, container: usize) -> Vec<Quantities> {
    let wants = trial.ask.containers.get(container).into_iter().flat_map(|container| &container.wants);
    let lifted = wants.filter_map(|want| Some(lift(want.groups.as_ref()?, want.count))).flatten();
    let mut requests: Vec<Quantities> = lifted.map(|lifted| lifted.quantities).collect();
    requests.reverse();
    requests
}

fn add(own: &mut BTreeMap<usize, Quantities>, device: usize, more: &Quantities) {
    merge(own.entry(device).or_default(), more);
}

/// Those who have a device one after the other use of it what the greatest of them uses, and every bit that any of them does.
fn merge(quantities: &mut Quantities, more: &Quantities) {
    for (name, amount) in more {
        let known = quantities.entry(name.clone()).or_default();
        *known = if is_bit_set(name) { *known | *amount } else { (*known).max(*amount) };
    }
}

/// `part` of `whole` in millionths.
fn part(part: u64, whole: u64) -> u64 {
    let millionths = u128::from(part) * u128::from(FULL) / u128::from(whole.max(1));
    u64::try_from(millionths).unwrap_or(FULL).min(FULL)
}

/// How full some resources are, summed in millionths, and how many they are.
#[derive(Clone, Copy, Default)]
struct Fill {
    sum: u64,
    resources: u64,
}

impl Fill {
    fn and(self, other: Fill) -> Fill {
        Fill { sum: self.sum + other.sum, resources: self.resources + other.resources }
    }

    fn mean(self) -> u64 {
        self.sum / self.resources.max(1)
    }
}

/// A group of devices that might take a request.
#[derive(Default)]
struct Place {
    /// The pod is in it already.
    used: bool,
    now: Fill,
    /// What the request would add to the sum at best.
    gain: u64,
}

impl Place {
    fn mean(&self) -> u64 {
        Fill { sum: self.now.sum + self.gain, ..self.now }.mean()
    }
}

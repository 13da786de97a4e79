//! Which devices a request gets: those that its labels bind together or, where the scheduler chooses, the closest ones; and of what
//! would do, those in the place that is fullest afterwards.

use crate::fit::topology::levels;
use crate::fit::{Trial, take_best};
use crate::model::ask::{DeviceAsk, GroupAsk, Topology};
use crate::model::device::{Device, Link};
use crate::model::reason::Obstacle;
use crate::model::units::Bytes;

use super::packing::Packing;
use super::tree::{Lifted, lift};

/// Steps after which a search is given up. Devices that are alike are tried once, so that requests that people write take far fewer.
const STEPS: u32 = 100_000;

/// What a want spells out of its devices, where it does.
pub(crate) fn spelled_out(want: &DeviceAsk) -> Option<&GroupAsk> {
    want.groups.as_ref().filter(|groups| !groups.requests.is_empty())
}

/// Does the scheduler choose how the devices of a want lie to each other?
pub(crate) fn is_auto(want: &DeviceAsk) -> bool {
    want.groups.as_ref().is_none_or(|groups| groups.auto)
}

/// Chooses devices for a want, in the order of its requests; absent where no choice does.
pub(crate) fn choose(trial: &Trial<'_>, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
    let wanted = lift(want.groups.as_ref().unwrap_or(&GroupAsk::default()), want.count);
    let packing = Packing::of(trial, trial.given());
    let topology = trial.ask.topology;
    // Devices about which nothing in particular is asked are only to lie well to each other.
    if spelled_out(want).is_none() && (is_auto(want) || topology != Topology::Best) {
        return take_best(trial, want, &packing.order(fits, &wanted, &[]));
    }
    let search = |binding| {
        let mut search = Search { packing: &packing, wanted: &wanted, fits, binding, chosen: Vec::new(), steps: 0 };
        search.run().then_some(search.chosen)
    };
    if is_auto(want) {
        let least = if let Topology::AtLeast(least) = topology { least } else { Link::Unknown };
        levels(least).find_map(|least| search(Binding::Near(least)))
    } else {
        search(Binding::Labels)
    }
}

/// What a want spells out that too few of these devices have, however they lie: of each such device, what it lacks.
pub(crate) fn scarce<'a>(want: &DeviceAsk, devices: &[&'a Device]) -> Vec<(&'a Device, Obstacle)> {
    let wanted = lift(want.groups.as_ref().unwrap_or(&GroupAsk::default()), want.count);
    let short = wanted.iter().find_map(|request| {
        // Whoever asks for as much of it, or for more, needs one of those that have it.
        let lacks = |name: &&String| {
            let as_much = |other: &&Lifted| {
                let same = other.bit_sets.contains(*name) == request.bit_sets.contains(*name);
                let (theirs, ours) = (other.quantities.get(*name), request.quantities.get(*name));
                same && if request.bit_sets.contains(*name) { theirs == ours } else { theirs >= ours }
            };
            let enough = wanted.iter().filter(as_much).count();
            devices.iter().filter(|device| offers(device, request, name)).count() < enough
        };
        Some((request, request.quantities.keys().find(lacks)?))
    });
    let Some((request, name)) = short else { return Vec::new() };
    let lacking = devices.iter().filter(|device| !offers(device, request, name));
    let amount = request.quantities.get(name).copied().unwrap_or_default();
    let obstacle = |device: &Device| match (name.as_str(), u64::try_from(amount)) {
        ("memory", Ok(want)) => Obstacle::Memory { want: Bytes(want), free: device.memory },
        _ => Obstacle::Quantity { name: name.as_str().into(), want: amount, has: has(device, name) },
    };
    lacking.map(|device| (*device, obstacle(device))).collect()
}

/// What holds the devices of a want together.
#[derive(Clone, Copy)]
enum Binding {
    /// The labels of the requests.
    Labels,
    /// Every two are at least this close.
    Near(Link),
}

/// A device for every request, found by trying.
struct Search<'a> {
    packing: &'a Packing<'a>,
    wanted: &'a [Lifted],
    fits: &'a [usize],
    binding: Binding,
    /// For each request so far, the device it gets.
    chosen: Vec<usize>,
    steps: u32,
}

impl Search<'_> {
    /// Finds a device for each request in turn, going back where the rest cannot be served.
    fn run(&mut self) -> bool {
        let Some(next) = self.wanted.get(self.chosen.len()) else { return true };
        let open: Vec<usize> = self.fits.iter().copied().filter(|device| self.suits(next, *device)).collect();
        let mut failed: Vec<usize> = Vec::new();
        for device in self.packing.order(&open, self.wanted, &self.chosen) {
            if failed.iter().any(|other| self.alike(*other, device)) {
                continue;
            }
            self.steps += 1;
            if self.steps > STEPS {
                return false;
            }
            self.chosen.push(device);
            if self.run() {
                return true;
            }
            self.chosen.pop();
            failed.push(device);
        }
        false
    }

    fn device(&self, device: usize) -> &Device {
        &self.packing.trial.devices()[device]
    }

    /// Can the device answer the next request, beside those chosen?
    fn suits(&self, next: &Lifted, device: usize) -> bool {
        let mut chosen = self.wanted.iter().zip(&self.chosen);
        !self.chosen.contains(&device)
            && next.quantities.keys().all(|name| offers(self.device(device), next, name))
            && chosen.all(|(theirs, other)| self.together((next, device), (theirs, *other)))
    }

    /// May two requests have these devices at once?
    fn together(&self, (ours, here): (&Lifted, usize), (theirs, there): (&Lifted, usize)) -> bool {
        if let Binding::Near(least) = self.binding {
            return self.packing.trial.node.link(here, there) >= least;
        }
        let (Some(here), Some(there)) = (self.packing.groups(here), self.packing.groups(there)) else { return false };
        // A label of the inner level means something within its outer group only.
        let same_outer = ours.outer == theirs.outer;
        let same_inner = same_outer && ours.inner == theirs.inner;
        (!same_outer || here.outer == there.outer) && (!same_inner || here.inner == there.inner)
    }

    /// Is it the same for the rest of the search which of the two is taken? Then where one leads nowhere, so does the other.
    fn alike(&self, a: usize, b: usize) -> bool {
        let same_place = match self.binding {
            Binding::Labels => self.packing.groups(a) == self.packing.groups(b),
            Binding::Near(least) => {
                let near = |one: usize, other: usize| self.packing.trial.node.link(one, other) >= least;
                self.fits
                    .iter()
                    .filter(|other| **other != a && **other != b)
                    .all(|other| near(a, *other) == near(b, *other))
            }
        };
        let (a, b) = (self.device(a), self.device(b));
        same_place && a.memory == b.memory && a.attributes == b.attributes
    }
}

/// Does the device have as much of it as a request asks for? Of a set of bits one in common is enough.
fn offers(device: &Device, request: &Lifted, name: &str) -> bool {
    let amount = request.quantities.get(name).copied().unwrap_or_default();
    let has = has(device, name);
    if request.bit_sets.contains(name) { amount == 0 || has & amount != 0 } else { amount <= has }
}

/// How much of it a device has.
fn has(device: &Device, name: &str) -> i64 {
    match name {
        "cards" => 1,
        "memory" => i64::try_from(device.memory.0).unwrap_or(i64::MAX),
        _ => device.attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

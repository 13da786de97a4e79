//! What the mix of requests asks for, as far as it prices leftovers.

use std::collections::BTreeMap;

use super::mix::{Mix, Shape};
use super::several::Want;

/// Requests of one size that only certain models will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reserved {
    /// Part of a device, in thousandths.
    pub(super) size: usize,
    /// The model rule's place in the mix.
    pub(super) rule: u32,
}

/// What a mix asks for.
#[derive(Default)]
pub(super) struct Demand<'a> {
    /// By size: devices, and the CPU and memory that go with them.
    pub(super) by_size: BTreeMap<usize, [f64; 3]>,
    /// By size: pods.
    pub(super) pods: BTreeMap<usize, f64>,
    /// Requests for one device of certain models: their share of all pods, and the CPU weighted by it.
    pub(super) reserved: BTreeMap<Reserved, (f64, f64)>,
    /// Requests for several devices, and which models will do.
    pub(super) several: Vec<(Want, &'a [bool])>,
}

impl<'a> Demand<'a> {
    /// What this mix asks for of devices with so many MiB each; `accepts` says of each model rule which models it accepts.
    pub(super) fn of(mix: &Mix, typical_memory: u64, accepts: &'a [Vec<bool>]) -> Demand<'a> {
        let total: f64 = mix.counts.values().map(|count| *count as f64).sum();
        let mut demand = Demand::default();
        for (shape, count) in mix.counts.iter().filter(|(shape, _)| shape.devices > 0) {
            let by_memory = (shape.device_memory * 1000).div_ceil(typical_memory).min(1000) as usize;
            let size = (shape.part as usize).max(by_memory);
            if size > 0 {
                demand.add(mix, shape, size, *count as f64, total, &accepts[shape.rule as usize]);
            }
        }
        demand
    }

    fn add(&mut self, mix: &Mix, shape: &Shape, size: usize, count: f64, total: f64, accepted: &'a [bool]) {
        *self.pods.entry(size).or_default() += count;
        let entry = self.by_size.entry(size).or_default();
        entry[0] += count * f64::from(shape.devices);
        entry[1] += count * shape.cpu as f64;
        entry[2] += count * shape.memory as f64;
        let rule = &mix.rules.list()[shape.rule as usize];
        let share = count / total;
        if shape.devices > 1 {
            let taken = size as f64 / 1000.0 * f64::from(shape.devices);
            let want = Want { devices: shape.devices as usize, cpu: shape.cpu, taken, share };
            self.several.push((want, accepted));
        } else if !(rule.only.is_empty() && rule.avoid.is_empty()) {
            let entry = self.reserved.entry(Reserved { size, rule: shape.rule }).or_default();
            *entry = (entry.0 + share, entry.1 + share * shape.cpu as f64);
        }
    }

    /// CPU that pods with devices ask for.
    pub(super) fn cpu_beside_devices(&self) -> f64 {
        self.by_size.values().map(|[_, cpu, _]| cpu).sum()
    }

    /// Devices that are asked for.
    pub(super) fn devices(&self) -> f64 {
        self.by_size.iter().map(|(size, [count, ..])| *size as f64 / 1000.0 * count).sum()
    }
}

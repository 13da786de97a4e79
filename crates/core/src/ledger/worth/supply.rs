//! What is left of a cluster: by model, how many devices have how much left, and what is wholly free where.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::Book;
use crate::model::device::{Device, DeviceKind};
use crate::model::resources::Resources;

use super::prices::WHOLE;
use super::several::Room;
use super::{MANY, left};

/// What a node has and what is in use of it, as its books say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftover<'a> {
    /// Ordinary resources it has for pods.
    pub(crate) total: &'a Resources,
    /// Ordinary resources in use.
    pub(crate) used: &'a Resources,
    /// Its devices, and the book of each.
    pub(crate) devices: &'a [Device],
    pub(crate) books: &'a [Book],
    /// The model of each device, by place in the cluster's list of models.
    pub(crate) models: &'a Arc<[u16]>,
}

impl Leftover<'_> {
    /// The devices that count: all but those that only go with others.
    fn own(&self) -> impl Iterator<Item = (u16, &Book)> {
        let devices = self.devices.iter().zip(self.books).zip(self.models.iter());
        devices.filter(|((device, _), _)| device.kind != DeviceKind::Nic).map(|((_, book), model)| (*model, book))
    }
}

/// What is left of all nodes.
pub(super) struct Supply {
    /// By model and remainder in thousandths: how many devices.
    pub(super) remainders: Vec<Vec<u32>>,
    /// By model: the wholly free devices of each node.
    pub(super) rooms: Vec<Vec<Room>>,
    /// CPU of all nodes, and of those with devices.
    pub(super) cpu: u64,
    pub(super) cpu_beside_devices: u64,
    /// Memory of all devices together.
    memory: u128,
    pub(super) devices: u64,
}

impl Supply {
    pub(super) fn of<'a>(models: usize, nodes: impl Iterator<Item = Leftover<'a>>) -> Supply {
        let mut supply = Supply {
            remainders: vec![vec![0u32; WHOLE + 1]; models],
            rooms: vec![Vec::new(); models],
            cpu: 0,
            cpu_beside_devices: 0,
            memory: 0,
            devices: 0,
        };
        nodes.for_each(|node| supply.add(&node));
        supply
    }

    fn add(&mut self, node: &Leftover<'_>) {
        let mut free = BTreeMap::<u16, usize>::new();
        for (model, book) in node.own() {
            let left = usize::from(left(book));
            if let Some(by) = self.remainders.get_mut(usize::from(model)) {
                by[left] += 1;
            }
            *free.entry(model).or_default() += usize::from(left == WHOLE);
            self.memory += u128::from(book.memory.0);
            self.devices += 1;
        }
        let cpu = node.total.cpu;
        self.cpu = self.cpu.saturating_add(cpu);
        self.cpu_beside_devices = self.cpu_beside_devices.saturating_add(if free.is_empty() { 0 } else { cpu });
        for (model, free) in free {
            let room = Room { free: free.min(MANY), cpu: cpu.saturating_sub(node.used.cpu) };
            if let Some(by) = self.rooms.get_mut(usize::from(model)) {
                by.push(room);
            }
        }
    }

    /// The mean memory of a device in MiB.
    pub(super) fn typical_memory(&self) -> u64 {
        ((self.memory / u128::from(self.devices.max(1))) as u64 >> 20).max(1)
    }

    /// All that is left of devices, in devices.
    pub(super) fn left(&self) -> f64 {
        let remainders = self.remainders.iter().flat_map(|by| by.iter().enumerate());
        remainders.map(|(left, count)| left as f64 * f64::from(*count) / 1000.0).sum()
    }
}

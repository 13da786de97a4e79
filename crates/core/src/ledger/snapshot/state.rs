//! What is known of one node, and of one pod.

use std::sync::Arc;

use super::{NodeIx, PodIx};
use crate::ledger::kind::Kinds;
use crate::ledger::quota::{Held, Usage};
use crate::ledger::worth::Leftover;
use crate::ledger::{Book, Charge};
use crate::model::device::{DeviceKind, Inventory, Link};
use crate::model::id::Model;
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::resources::Resources;
use crate::model::units::Share;

/// Most models that are told apart: more than are on the market. Names come from agents, and each has 16 KiB in the tables of what leftovers
/// are worth; twice as many have twice that, in tables that are made anew every few hundred pods. Devices of further models are placed as all
/// others, and are worth nothing in particular to pods that name them.
const MOST_MODELS: usize = 256;

/// A node, its books, and who is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub(super) node: Arc<Node>,
    pub(super) books: Vec<Book>,
    pub(super) used: Resources,
    pub(super) pods: Vec<PodIx>,
    links: Arc<[Link]>,
    models: Arc<[u16]>,
}

impl NodeState {
    pub(super) fn new(node: Node, kinds: Kinds, known: &mut Vec<Model>) -> NodeState {
        let devices = &node.inventory.devices;
        let book = |device: &crate::model::device::Device| {
            kinds.of(device.kind).map_or_else(Book::default, |kind| kind.node_added(device, &node.inventory))
        };
        let books = devices.iter().map(book).collect();
        let link = |a: &crate::model::device::Device, b: &crate::model::device::Device| {
            let (there, back) = (a.links.get(&b.id), b.links.get(&a.id));
            there.copied().unwrap_or_default().max(back.copied().unwrap_or_default())
        };
        let links = devices.iter().flat_map(|a| devices.iter().map(move |b| link(a, b))).collect();
        let mut place = |model: &Model| {
            let found = known.iter().position(|known| known == model);
            let place = found.unwrap_or(known.len());
            if place >= MOST_MODELS {
                return u16::MAX;
            }
            if found.is_none() {
                known.push(model.clone());
            }
            place as u16
        };
        let models = devices.iter().map(|device| place(&device.model)).collect();
        NodeState { books, used: Resources::default(), pods: Vec::new(), links, models, node: Arc::new(node) }
    }

    /// The node as it was told.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The books of its devices, in the order of its inventory.
    pub fn books(&self) -> &[Book] {
        &self.books
    }

    /// Ordinary resources in use.
    pub fn used(&self) -> &Resources {
        &self.used
    }

    /// The pods on it, in no particular order.
    pub fn pods(&self) -> &[PodIx] {
        &self.pods
    }

    /// How two of its devices are connected.
    pub fn link(&self, a: usize, b: usize) -> Link {
        self.links.get(a * self.books.len() + b).copied().unwrap_or_default()
    }

    /// What it has and what is in use of it.
    pub(crate) fn leftover(&self) -> Leftover<'_> {
        Leftover {
            total: &self.node.allocatable,
            used: &self.used,
            devices: &self.node.inventory.devices,
            books: &self.books,
            models: &self.models,
        }
    }

    /// The model of a device, by place in [`super::Snapshot::models`]; beyond it for one that is not told apart.
    pub(crate) fn model(&self, device: usize) -> u16 {
        self.models.get(device).copied().unwrap_or(u16::MAX)
    }

    /// Does it have a device of this kind?
    pub fn has(&self, kind: DeviceKind) -> bool {
        self.node.inventory.devices.iter().any(|d| d.kind == kind)
    }
}

/// A pod and what it is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pub(super) pod: Pod,
    /// Where its charges stand; absent for a waiting pod and for one whose node is not known.
    pub(super) on: Option<NodeIx>,
    pub(super) charges: Vec<(u32, Charge)>,
    /// Evicted in an open transaction: neither waiting nor bound.
    pub(super) evicted: bool,
}

impl PodState {
    /// Not charged anything yet.
    pub(super) fn new(pod: Pod) -> PodState {
        PodState { pod, on: None, charges: Vec::new(), evicted: false }
    }

    /// The pod.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The node it is on.
    pub fn on(&self) -> Option<NodeIx> {
        self.on
    }

    /// What it is charged, by place of the device in the node's inventory.
    pub fn charges(&self) -> &[(u32, Charge)] {
        &self.charges
    }

    /// What it holds, as quotas count it.
    pub fn holding(&self, inventory: &Inventory) -> Held {
        let mut held = Held::default();
        for (device, charge) in &self.charges {
            if let Some(device) = inventory.devices.get(*device as usize).filter(|d| d.kind != DeviceKind::Nic) {
                held.add(&Held::of(&device.model, Usage::of(charge, device)));
            }
        }
        held
    }

    /// Devices it holds, in thousandths: of each the larger of its share and its part of the memory, all of one it holds alone.
    pub fn weight(&self, books: &[Book]) -> u64 {
        let one = |(device, charge): &(u32, Charge)| {
            let memory = books.get(*device as usize).map_or(0, |book| {
                let whole = u128::from(book.memory.0.max(1));
                (u128::from(charge.memory.0) * 1000 / whole).min(1000) as u64
            });
            if charge.exclusive { u64::from(Share::WHOLE.0) } else { memory.max(u64::from(charge.share.0)) }
        };
        self.charges.iter().map(one).sum()
    }
}

//! A node as a board sees it: what is left of it, close together.

use crate::ledger::snapshot::NodeState;
use crate::ledger::worth::{Rest, Worth};
use crate::model::device::{DeviceKind, Isolation};

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Nothing about it is special: no taints, one model of GPU that is told apart, none cut into partitions. Simple pods can be rated by this
    /// alone.
    pub(super) plain: bool,
    pub(super) pods_left: u32,
    pub(super) rest: Rest,
    pub(super) memory_left: u64,
    pub(super) model: u16,
    pub(super) devices: Vec<Slot>,
    /// The most share and the most memory that is free on any of its open devices, and how many of them are idle: most nodes that cannot
    /// take a pod show it here.
    pub(super) most_share: u32,
    pub(super) most_memory: u64,
    pub(super) idle: usize,
}

/// One device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// It takes new work, and nobody holds it alone.
    pub(super) open: bool,
    pub(super) idle: bool,
    pub(super) share: u32,
    pub(super) share_total: u32,
    pub(super) memory: u64,
    pub(super) memory_total: u64,
    /// Of this, parts are reckoned.
    pub(super) bookable: u64,
    pub(super) tasks: u32,
    pub(super) tasks_left: u32,
}

impl Seat {
    pub(super) fn of(state: &NodeState, worth: &Worth) -> Seat {
        let mut seat = Seat {
            plain: false,
            pods_left: 0,
            rest: Rest::default(),
            memory_left: 0,
            model: 0,
            devices: Vec::with_capacity(state.books().len()),
            most_share: 0,
            most_memory: 0,
            idle: 0,
        };
        seat.refresh(state, worth);
        seat
    }

    /// Something happened on the node.
    pub(super) fn refresh(&mut self, state: &NodeState, worth: &Worth) {
        let node = state.node();
        let devices = &node.inventory.devices;
        let ordinary = |d: &crate::model::device::Device| {
            d.kind == DeviceKind::Gpu && d.isolation.first() != Some(&Isolation::Mig) && d.bookable_memory().0 < 1 << 50
        };
        let slot = |(book, device): (&crate::ledger::Book, &crate::model::device::Device)| Slot {
            open: book.open && book.exclusive == 0,
            idle: book.pods == 0,
            share: book.free_share().0,
            share_total: book.share.0,
            memory: book.free_memory().0,
            memory_total: book.memory.0,
            bookable: device.bookable_memory().0,
            tasks: book.tasks,
            tasks_left: book.max_tasks.saturating_sub(book.tasks),
        };
        self.rest.refresh(&state.leftover(), worth);
        self.devices.clear();
        self.devices.extend(state.books().iter().zip(devices).map(slot));
        let open = || self.devices.iter().filter(|slot| slot.open);
        self.most_share = open().map(|slot| slot.share).max().unwrap_or(0);
        self.most_memory = open().map(|slot| slot.memory).max().unwrap_or(0);
        self.idle = open().filter(|slot| slot.idle).count();
        self.plain = node.taints.is_empty()
            && !node.unschedulable
            && !node.unready
            && self.rest.uniform
            && (devices.is_empty() || state.model(0) != u16::MAX)
            && devices.iter().all(ordinary);
        self.pods_left = node.max_pods.saturating_sub(state.pods().len() as u32);
        self.memory_left = node.allocatable.memory.saturating_sub(state.used().memory).0;
        self.model = if state.books().is_empty() { 0 } else { state.model(0) };
    }
}

//! Devices are a kind, not a constant. A kind says what a slice of one of its devices is, whether there is room for it, and how
//! well a device suits beside others; everything else (queue, gangs, preemption, ledger) is the same for all.
//!
//! How to add one: `docs/adding-a-device.md`.

mod gpu;
mod mlu;
mod nic;

use crate::ask::{DeviceAsk, MemoryAsk};
use crate::device::{Device, DeviceKind, Inventory, Isolation, Link};
use crate::grant::Slice;
use crate::ledger::{Book, Charge};
use crate::reason::Obstacle;
use crate::units::{Bytes, Share};

pub use gpu::Gpu;
pub use mlu::Mlu;
pub use nic::Nic;

/// The placing half of a kind of device.
pub trait DeviceScheduler: std::fmt::Debug + Send + Sync {
    /// The kind it stands for.
    fn kind(&self) -> DeviceKind;

    /// A node came, or changed: the empty book of one of its devices.
    fn node_added(&self, device: &Device, inventory: &Inventory) -> Book {
        Book::open(device, inventory.foreign.get(&device.id).copied().unwrap_or_default())
    }

    /// A node went. The books go with it; a kind that keeps more forgets it here.
    fn node_removed(&self, _inventory: &Inventory) {}

    /// Does the device fit, and what would its slice be? All amounts absolute. `taken` are the hardware partitions already taken.
    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle>;

    /// Is there room for all that one pod would hold of the device, beside what others hold?
    fn room(&self, book: &Book, charge: &Charge) -> Result<(), Obstacle> {
        book.room(charge)
    }

    /// How well it suits beside the devices already chosen for the container: more is better. A placement policy that has its own
    /// opinion about the kind decides before this.
    fn score(&self, _device: &Device, _book: &Book, _beside: &[&Device]) -> i64 {
        0
    }

    /// Must every device of the container lie on one switch (or closer) with one of `beside`?
    fn wants_neighbour(&self) -> Option<Link> {
        None
    }

    /// A pod takes what it was granted.
    fn take(&self, book: &mut Book, charge: &Charge) {
        book.take(charge);
    }

    /// A pod returns what it was granted.
    fn give_back(&self, book: &mut Book, charge: &Charge) {
        book.give_back(charge);
    }
}

/// One request of one container, with what the pod says about isolation.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The request.
    pub ask: &'a DeviceAsk,
    /// Ways of isolation the pod accepts; empty accepts all.
    pub isolation: &'a [Isolation],
}

/// The kinds a scheduler knows.
#[derive(Clone, Copy, Debug)]
pub struct Kinds(pub &'static [&'static dyn DeviceScheduler]);

impl Default for Kinds {
    fn default() -> Kinds {
        Kinds(&[&Gpu, &Mlu, &Nic])
    }
}

impl Kinds {
    /// The one that stands for `kind`.
    pub fn of(&self, kind: DeviceKind) -> Option<&'static dyn DeviceScheduler> {
        self.0.iter().copied().find(|k| k.kind() == kind)
    }
}

/// The bytes a memory request comes to on this device.
pub fn memory_of(ask: MemoryAsk, device: &Device, inventory: &Inventory) -> Bytes {
    match ask {
        MemoryAsk::Nothing => Bytes::ZERO,
        MemoryAsk::Bytes(bytes) => bytes,
        MemoryAsk::Part(part) => device.bookable_memory().thousandths(part),
        MemoryAsk::NodeUnits(units) => inventory.memory_unit.of(units),
    }
}

/// The slice of a device that is shared by memory and time: what GPUs and MLUs have in common.
fn shared_slice(device: &Device, inventory: &Inventory, want: &Want<'_>) -> Result<Slice, Obstacle> {
    let ask = want.ask;
    let memory = memory_of(ask.memory, device, inventory);
    let memory_limit = match ask.memory_limit {
        // A limit of nothing means: whatever the device has.
        Some(MemoryAsk::Nothing) => device.memory,
        Some(limit) => memory_of(limit, device, inventory),
        None if memory == Bytes::ZERO => device.memory,
        None => memory,
    };
    let isolation = isolation(device, want)?;
    Ok(Slice {
        device: device.id.clone(),
        kind: device.kind,
        memory,
        memory_limit: memory_limit.max(memory),
        share: ask.share,
        share_limit: ask.share_limit.max(ask.share),
        exclusive: ask.exclusive,
        isolation,
        partition: None,
    })
}

/// The best way of isolation that the device offers and the pod accepts. A pod alone on its device needs none.
fn isolation(device: &Device, want: &Want<'_>) -> Result<Isolation, Obstacle> {
    let accepted = |way: &Isolation| want.isolation.is_empty() || want.isolation.contains(way);
    if let Some(way) = device.isolation.iter().copied().filter(|way| *way != Isolation::Mig).find(accepted) {
        return Ok(way);
    }
    let alone = want.ask.exclusive || want.ask.share == Share::WHOLE;
    if (device.isolation.is_empty() || alone) && accepted(&Isolation::None) {
        return Ok(if device.isolation.is_empty() && !alone { Isolation::Intercept } else { Isolation::None });
    }
    if device.isolation.is_empty() && accepted(&Isolation::Intercept) {
        return Ok(Isolation::Intercept);
    }
    Err(Obstacle::Isolation { want: want.isolation.to_vec() })
}

//! Who holds what: the fold of all grants on a node into one book per device. A restart folds the bound pods again and is whole.

use serde::{Deserialize, Serialize};

use crate::model::ask::Role;
use crate::model::device::{Device, Inventory};
use crate::model::grant::{Grant, Slice};
use crate::model::id::DeviceId;
use crate::model::mig;
use crate::model::reason::Obstacle;
use crate::model::units::{Bytes, Share};

/// What one pod holds of one device: the most it needs at any one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// Memory.
    pub memory: Bytes,
    /// Time.
    pub share: Share,
    /// Containers that use it at once.
    pub tasks: u32,
    /// One of them wants to be alone.
    pub exclusive: bool,
    /// Hardware partitions it occupies, one bit per slot of the device.
    pub slots: u32,
}

impl Charge {
    /// Both at once.
    pub fn beside(self, other: Charge) -> Charge {
        Charge {
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
            share: Share(self.share.0.saturating_add(other.share.0)),
            tasks: self.tasks.saturating_add(other.tasks),
            exclusive: self.exclusive || other.exclusive,
            slots: self.slots | other.slots,
        }
    }

    fn or(self, other: Charge) -> Charge {
        Charge {
            memory: self.memory.max(other.memory),
            share: self.share.max(other.share),
            tasks: self.tasks.max(other.tasks),
            exclusive: self.exclusive || other.exclusive,
            slots: self.slots | other.slots,
        }
    }
}

/// Folds the slices a pod holds on one device, given in the order of its containers, into what it needs there at any one time:
/// init containers one after another, sidecars beside all that follows them, main containers together.
pub fn charge(slices: impl IntoIterator<Item = (Role, Charge)>, init_done: bool) -> Charge {
    let (mut sidecars, mut peak, mut main) = (Charge::default(), Charge::default(), Charge::default());
    for (role, slice) in slices {
        match role {
            Role::Sidecar => sidecars = sidecars.beside(slice),
            Role::Init if init_done => {}
            Role::Init => peak = peak.or(sidecars.beside(slice)),
            Role::Main => main = main.beside(slice),
        }
    }
    main.beside(sidecars).or(peak)
}

/// What one slice alone charges.
pub fn charge_of(slice: &Slice, device: Option<&Device>) -> Charge {
    let slots = slice.partition.as_ref().map_or(0, |name| device.map_or(0, |device| mig::slots(device, name)));
    Charge { memory: slice.memory, share: slice.share, tasks: 1, exclusive: slice.is_alone(), slots }
}

/// What a grant charges, device by device, in the order in which the devices first occur.
pub fn charges(grant: &Grant, inventory: &Inventory, init_done: bool) -> Vec<(DeviceId, Charge)> {
    let mut seen: Vec<&DeviceId> = Vec::new();
    for slice in grant.containers.iter().flat_map(|c| &c.slices) {
        if !seen.contains(&&slice.device) {
            seen.push(&slice.device);
        }
    }
    let of_device = |id: &DeviceId| {
        let device = inventory.devices.iter().find(|d| d.id == *id);
        let slices = grant.containers.iter().flat_map(|c| c.slices.iter().map(move |s| (c.role, s)));
        charge(slices.filter(|(_, s)| s.device == *id).map(|(role, s)| (role, charge_of(s, device))), init_done)
    };
    seen.into_iter().map(|id| (id.clone(), of_device(id))).collect()
}

/// The book of one device: what it offers, and what of it is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Book {
    /// Memory that may be promised in all.
    pub memory: Bytes,
    /// Time that may be promised in all.
    pub share: Share,
    /// Most containers at once; [`u32::MAX`] where nobody set a cap.
    pub max_tasks: u32,
    /// New work may come.
    pub open: bool,
    /// Memory held.
    pub used_memory: Bytes,
    /// Time held.
    pub used_share: Share,
    /// Containers that hold a part.
    pub tasks: u32,
    /// Pods that hold a part.
    pub pods: u32,
    /// Pods among them that want to be alone.
    pub exclusive: u32,
    /// Hardware partitions that are taken.
    pub slots: u32,
}

impl Book {
    /// The empty book of a device. Memory that processes without a grant hold on it is not offered.
    pub fn open(device: &Device, foreign: Bytes) -> Book {
        Book {
            memory: device.bookable_memory().saturating_sub(foreign),
            share: device.bookable_share(),
            max_tasks: device.max_tasks.unwrap_or(u32::MAX),
            open: device.is_open(),
            ..Book::default()
        }
    }

    /// Memory nobody holds. Never wraps: more held than offered means none is free.
    pub fn free_memory(&self) -> Bytes {
        self.memory.saturating_sub(self.used_memory)
    }

    /// Time nobody holds.
    pub fn free_share(&self) -> Share {
        self.share.saturating_sub(self.used_share)
    }

    /// What is free of the device, in thousandths: `min(free time / time, free memory / memory)`; 0 of one that a pod holds alone. A device
    /// without memory goes by its time.
    pub(crate) fn left(&self) -> u32 {
        if self.exclusive > 0 {
            return 0;
        }
        let share = thousandths(u64::from(self.free_share().0), u64::from(self.share.0));
        let memory = thousandths(self.free_memory().0, self.memory.0);
        if self.memory.0 == 0 { share } else { share.min(memory) }
    }

    /// Nobody holds any part of it.
    pub fn is_idle(&self) -> bool {
        self.pods == 0
    }

    /// Is there room for this, beside what others hold?
    pub fn room(&self, charge: &Charge) -> Result<(), Obstacle> {
        if self.exclusive > 0 {
            return Err(Obstacle::HeldAlone);
        }
        // Several containers of the pod itself are no company: whether they may be together is asked where they are placed.
        if charge.exclusive && self.pods > 0 {
            return Err(Obstacle::InUse { tasks: self.tasks });
        }
        let free = self.free_memory();
        if charge.memory > free {
            return Err(Obstacle::Memory { want: charge.memory, free });
        }
        let free = self.free_share();
        if charge.share > free {
            return Err(Obstacle::Share { want: charge.share, free });
        }
        if self.max_tasks.saturating_sub(self.tasks) < charge.tasks {
            return Err(Obstacle::Tasks { most: self.max_tasks });
        }
        if self.slots & charge.slots != 0 {
            return Err(Obstacle::Partition { want: None });
        }
        Ok(())
    }

    /// Writes a pod's charge into the book. The fold is the truth and never refuses; [`Book::room`] is asked before, by those who decide.
    pub fn take(&mut self, charge: &Charge) {
        self.used_memory = Bytes(self.used_memory.0.saturating_add(charge.memory.0));
        self.used_share = Share(self.used_share.0.saturating_add(charge.share.0));
        self.tasks = self.tasks.saturating_add(charge.tasks);
        self.pods += 1;
        self.exclusive += u32::from(charge.exclusive);
        self.slots |= charge.slots;
    }

    /// Takes a pod's charge out of the book again.
    pub fn give_back(&mut self, charge: &Charge) {
        self.used_memory = self.used_memory.saturating_sub(charge.memory);
        self.used_share = self.used_share.saturating_sub(charge.share);
        self.tasks = self.tasks.saturating_sub(charge.tasks);
        self.pods = self.pods.saturating_sub(1);
        self.exclusive = self.exclusive.saturating_sub(u32::from(charge.exclusive));
        self.slots &= !charge.slots;
    }

    /// What is held beyond what there is: nothing, unless two leaders both bound, or a device lost memory.
    pub fn overcommit(&self) -> Option<Obstacle> {
        if self.used_memory > self.memory {
            return Some(Obstacle::Memory { want: self.used_memory, free: self.memory });
        }
        if self.used_share > self.share {
            return Some(Obstacle::Share { want: self.used_share, free: self.share });
        }
        if self.tasks > self.max_tasks {
            return Some(Obstacle::Tasks { most: self.max_tasks });
        }
        (self.exclusive > 0 && self.pods > 1).then_some(Obstacle::HeldAlone)
    }
}

/// `part` of `whole` in thousandths, rounded down.
fn thousandths(part: u64, whole: u64) -> u32 {
    match part.checked_mul(1000) {
        _ if whole == 0 => 0,
        Some(part) => (part / whole).min(1000) as u32,
        None => (u128::from(part) * 1000 / u128::from(whole)).min(1000) as u32,
    }
}

/// The books of one node's devices, in the order of its inventory. The scheduler keeps one per node, an agent its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    /// One book per device.
    pub books: Vec<Book>,
}

impl Ledger {
    /// The empty ledger of a node.
    pub fn open(inventory: &Inventory) -> Ledger {
        let foreign = |d: &Device| inventory.foreign.get(&d.id).copied().unwrap_or_default();
        Ledger { books: inventory.devices.iter().map(|d| Book::open(d, foreign(d))).collect() }
    }

    /// Is there room for this grant, beside what others hold? If not, what stands in the way on each device. A device the node does
    /// not have stands in the way too.
    pub fn room(&self, inventory: &Inventory, grant: &Grant, init_done: bool) -> Result<(), Vec<(DeviceId, Obstacle)>> {
        let mut obstacles = Vec::new();
        for (id, charge) in charges(grant, inventory, init_done) {
            let index = inventory.devices.iter().position(|d| d.id == id);
            match index.and_then(|i| self.books.get(i)).map(|book| book.room(&charge)) {
                Some(Ok(())) => {}
                Some(Err(obstacle)) => obstacles.push((id, obstacle)),
                None => obstacles.push((id, Obstacle::Unknown)),
            }
        }
        if obstacles.is_empty() { Ok(()) } else { Err(obstacles) }
    }

    /// Writes a grant into the books. Parts on devices the node no longer has are left out: they come back with the device.
    pub fn take(&mut self, inventory: &Inventory, grant: &Grant, init_done: bool) {
        self.each(inventory, grant, init_done, Book::take);
    }

    /// Takes a grant out of the books again. Must be given what [`Ledger::take`] was given.
    pub fn give_back(&mut self, inventory: &Inventory, grant: &Grant, init_done: bool) {
        self.each(inventory, grant, init_done, Book::give_back);
    }

    fn each(&mut self, inventory: &Inventory, grant: &Grant, init_done: bool, write: fn(&mut Book, &Charge)) {
        for (id, charge) in charges(grant, inventory, init_done) {
            let index = inventory.devices.iter().position(|d| d.id == id);
            if let Some(book) = index.and_then(|i| self.books.get_mut(i)) {
                write(book, &charge);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(mib: u64, share: u32) -> Charge {
        Charge { memory: Bytes::mib(mib), share: Share(share), tasks: 1, ..Charge::default() }
    }

    #[test]
    fn hm_08_the_init_container_is_charged_until_it_has_ended() {
        let slices = [(Role::Init, part(20_000, 0)), (Role::Main, part(10_000, 0))];
        assert_eq!(charge(slices, false).memory, Bytes::mib(20_000));
        assert_eq!(charge(slices, true).memory, Bytes::mib(10_000));
        let card = Device::gpu("GPU-0", 0, "A", Bytes::mib(24_000));
        assert_eq!(Book::open(&card, Bytes::ZERO).room(&charge(slices, false)), Ok(()));
    }

    #[test]
    fn sidecars_are_charged_beside_what_follows_them() {
        let slices = [
            (Role::Sidecar, part(100, 50)),
            (Role::Init, part(700, 10)),
            (Role::Main, part(300, 200)),
            (Role::Main, part(200, 0)),
        ];
        let held = charge(slices, false);
        assert_eq!((held.memory, held.share, held.tasks), (Bytes::mib(800), Share(250), 3));
    }

    #[test]
    fn al_22_more_used_than_offered_leaves_nothing_free() {
        let mut book = Book { memory: Bytes(10), ..Book::default() };
        book.take(&Charge { memory: Bytes(11), tasks: 1, ..Charge::default() });
        assert_eq!(book.free_memory(), Bytes::ZERO);
        assert!(book.overcommit().is_some());
    }

    #[test]
    fn one_that_wants_to_be_alone_comes_only_to_an_idle_device_and_keeps_others_away() {
        let card = Device::gpu("GPU-0", 0, "A", Bytes::gib(16));
        let mut book = Book::open(&card, Bytes::ZERO);
        let alone = Charge { exclusive: true, ..part(1024, 0) };
        assert_eq!(book.room(&alone), Ok(()));
        book.take(&alone);
        assert_eq!(book.room(&part(1, 0)), Err(Obstacle::HeldAlone));
        book.give_back(&alone);
        book.take(&part(1, 0));
        assert_eq!(book.room(&alone), Err(Obstacle::InUse { tasks: 1 }));
    }
}

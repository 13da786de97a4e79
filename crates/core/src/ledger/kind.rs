//! Devices are a kind, not a constant. A kind says what a slice of one of its devices is, whether there is room for it, and how
//! well a device suits beside others; everything else (queue, gangs, preemption, ledger) is the same for all.
//!
//! How to add one: `docs/design/adding-a-device.md`.

mod gpu;
mod mlu;
mod nic;

use crate::ledger::{Book, Charge};
use crate::model::ask::{DeviceAsk, MemoryAsk};
use crate::model::device::{Device, DeviceKind, Inventory, Isolation, Link};
use crate::model::grant::Slice;
use crate::model::reason::Obstacle;
use crate::model::units::Bytes;

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

/// The best way of isolation that the device offers and the pod accepts. Only a pod that is alone on its device needs none.
fn isolation(device: &Device, want: &Want<'_>) -> Result<Isolation, Obstacle> {
    let alone = want.ask.is_alone();
    let accepted = |way: &Isolation| {
        (*way != Isolation::None || alone) && (want.isolation.is_empty() || want.isolation.contains(way))
    };
    // A device that says nothing about isolation is kept by interception, unless a pod has it alone.
    let unsaid: &[Isolation] = if alone { &[Isolation::None, Isolation::Intercept] } else { &[Isolation::Intercept] };
    let offered = if device.isolation.is_empty() { unsaid } else { &device.isolation };
    let best = offered.iter().copied().filter(|way| *way != Isolation::Mig).find(accepted);
    best.ok_or_else(|| Obstacle::Isolation { want: want.isolation.to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::units::Share;

    const WAYS: [Isolation; 4] = [Isolation::Mig, Isolation::Driver, Isolation::Intercept, Isolation::None];

    fn ways() -> impl Strategy<Value = Vec<Isolation>> {
        prop::collection::vec(prop::sample::select(&WAYS[..]), 0..5)
    }

    fn ask() -> impl Strategy<Value = DeviceAsk> {
        let memory = prop_oneof![
            Just(MemoryAsk::Nothing),
            (0u64..100).prop_map(|gib| MemoryAsk::Bytes(Bytes::gib(gib))),
            (0u32..=1000).prop_map(|part| MemoryAsk::Part(Share(part))),
            (0u64..100).prop_map(MemoryAsk::NodeUnits),
        ];
        let kind = prop::sample::select(&[DeviceKind::Gpu, DeviceKind::Mlu, DeviceKind::Nic][..]);
        let share = prop_oneof![Just(0), Just(1000), 0u32..=1000].prop_map(Share);
        let limit = (prop::option::of(memory.clone()), 0u32..=1000);
        let partition = prop::option::of(prop::sample::select(&["1g.5gb", "nothing-offers-this"][..]));
        (kind, memory, limit, share, any::<bool>(), partition).prop_map(
            |(kind, memory, (memory_limit, share_limit), share, exclusive, partition)| DeviceAsk {
                kind,
                memory,
                memory_limit,
                share,
                share_limit: Share(share_limit),
                exclusive,
                partition: partition.map(Into::into),
                ..DeviceAsk::default()
            },
        )
    }

    proptest! {
        /// The audit's opinion of a slice is formed by other code: a plan on which the two disagree is thrown away.
        #[test]
        fn what_a_device_is_said_to_give_is_what_was_asked_for(
            ask in ask(),
            offered in ways(),
            model in prop::sample::select(&["MLU370-X8", "MLU270-S4", "A100"][..]),
        ) {
            let mut device = Device { kind: ask.kind, isolation: offered, ..Device::gpu("G", 0, model, Bytes::gib(80)) };
            device.attributes.insert(crate::model::mig::PROFILES.into(), "1g.5gb:4864:1:0,1,2,3,4,5,6;7g.40gb:40192:8:0".into());
            let inventory = Inventory { devices: vec![device.clone()], ..Inventory::default() };
            let want = Want { ask: &ask, isolation: &[] };
            if let Ok(slice) = Kinds::default().of(ask.kind).unwrap().slice(&device, &inventory, &want, 0) {
                let wrong = crate::plan::audit::compare_slice(&crate::testing::ask(ask.clone()), &ask, &slice, &inventory);
                prop_assert_eq!(wrong, None, "{:?}", slice);
            }
        }

        #[test]
        fn a_part_of_a_card_without_isolation_is_never_granted(ask in ask(), offered in ways(), accepted in ways()) {
            let device = Device { kind: ask.kind, isolation: offered, ..Device::gpu("G", 0, "MLU370-X8", Bytes::gib(80)) };
            let inventory = Inventory { devices: vec![device.clone()], ..Inventory::default() };
            let want = Want { ask: &ask, isolation: &accepted };
            let kind = Kinds::default().of(ask.kind).unwrap();
            if let Ok(slice) = kind.slice(&device, &inventory, &want, 0) {
                prop_assert!(!slice.is_unprotected(), "{slice:?}");
                if slice.isolation == Isolation::None && ask.kind != DeviceKind::Nic {
                    let mut book = Book::open(&device, Bytes::ZERO);
                    book.take(&crate::ledger::charge_of(&slice, Some(&device)));
                    prop_assert_eq!(book.room(&Charge { tasks: 1, ..Charge::default() }), Err(Obstacle::HeldAlone));
                }
            }
        }
    }

    #[test]
    fn a_card_with_an_unprotected_tenant_of_an_earlier_version_takes_no_further_tenant() {
        let device = Device::gpu("G", 0, "A100", Bytes::gib(80));
        let slice = Slice {
            device: device.id.clone(),
            kind: DeviceKind::Gpu,
            memory: Bytes::gib(1),
            memory_limit: Bytes::gib(1),
            share: Share(1),
            share_limit: Share::WHOLE,
            exclusive: false,
            isolation: Isolation::None,
            partition: None,
        };
        let mut book = Book::open(&device, Bytes::ZERO);
        book.take(&crate::ledger::charge_of(&slice, Some(&device)));
        assert_eq!(book.room(&Charge { tasks: 1, ..Charge::default() }), Err(Obstacle::HeldAlone));
    }
}

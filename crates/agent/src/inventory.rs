//! What the node says about itself: the inventory annotation that schedulers read, and extended resources for people who read
//! `kubectl describe node`. Pure.

use std::collections::BTreeMap;

use divvy_core::device::{Device, DeviceKind, Inventory, MemoryUnit};
use divvy_core::id::{DeviceId, PodUid};
use divvy_core::keys;
use divvy_core::units::Bytes;

/// gpu-manager counts memory in blocks of this size.
const VCUDA_BLOCK: u64 = 256 << 20;

/// Whose resource names the node's status shows besides our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Advertise {
    /// Ours alone.
    Native,
    /// Also those of every emulated system.
    All,
}

/// Everything that goes into the annotation.
pub struct Facts<'a> {
    /// The devices, marked with health and cordon.
    pub devices: &'a [Device],
    /// The driver's version.
    pub driver: &'a str,
    /// The unit of gpushare's memory.
    pub memory_unit: MemoryUnit,
    /// Refused grants.
    pub refused: &'a BTreeMap<PodUid, String>,
    /// Memory of processes without a grant.
    pub foreign: &'a BTreeMap<DeviceId, Bytes>,
}

impl Facts<'_> {
    /// The annotation's content, as generation `generation`.
    pub fn inventory(&self, generation: u64) -> Inventory {
        Inventory {
            v: Inventory::VERSION,
            generation,
            devices: self.devices.to_vec(),
            memory_unit: self.memory_unit,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            driver: self.driver.to_owned(),
            refused: self.refused.iter().map(|(uid, why)| (uid.to_string(), why.clone())).collect(),
            foreign: self.foreign.clone(),
        }
    }

    /// What `kubectl describe node` shows under Capacity. Devices that take no new work still count: pods run on them.
    pub fn capacity(&self, slots_per_device: usize, advertise: Advertise) -> BTreeMap<&'static str, u64> {
        let of = |kind: DeviceKind| self.devices.iter().filter(move |d| d.kind == kind);
        let slots = slots_per_device as u64;
        let (cards, mlus) = (of(DeviceKind::Gpu).count() as u64, of(DeviceKind::Mlu).count() as u64);
        let memory: u64 = of(DeviceKind::Gpu).map(|d| d.bookable_memory().0).sum();
        let share: u64 = of(DeviceKind::Gpu).map(|d| u64::from(d.bookable_share().0)).sum();
        let mut capacity = BTreeMap::new();
        if cards > 0 {
            capacity.insert(keys::GPU, cards * slots);
            capacity.insert(keys::GPU_MEMORY, memory);
            capacity.insert(keys::GPU_SHARE, share);
        }
        if advertise == Advertise::Native {
            return capacity;
        }
        if cards > 0 {
            capacity.insert(keys::VCUDA_CORE, share / 10);
            capacity.insert(keys::VCUDA_MEMORY, memory / VCUDA_BLOCK);
            capacity.insert(keys::GPUSHARE_COUNT, cards);
            let unit = self.memory_unit.of(1).0;
            capacity.insert(keys::GPUSHARE_MEMORY, of(DeviceKind::Gpu).map(|d| d.bookable_memory().0 / unit).sum());
            capacity.insert(keys::VGPU_COUNT, cards * slots);
        }
        if mlus > 0 {
            capacity.insert(keys::MLU_COUNT, mlus * slots);
        }
        capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_different_size_each_count_with_their_own_and_units_are_floored_per_card() {
        // AL-21: cards of 12 and 16 units make 28. AL-14: 32510 MiB is 31 GiB.
        let device = |i: u32, mib| Device::gpu(format!("G{i}"), i, "T4", Bytes::mib(mib));
        let capacity = |devices: &[Device], unit| {
            let (refused, foreign) = (BTreeMap::new(), BTreeMap::new());
            Facts { devices, driver: "", memory_unit: unit, refused: &refused, foreign: &foreign }
                .capacity(16, Advertise::All)
        };
        let mixed = capacity(&[device(0, 12 << 10), device(1, 16 << 10)], MemoryUnit::GiB);
        assert_eq!(mixed[keys::GPUSHARE_MEMORY], 28);
        assert_eq!(mixed[keys::GPUSHARE_COUNT], 2);
        assert_eq!(mixed[keys::VCUDA_CORE], 200);
        assert_eq!(mixed[keys::VCUDA_MEMORY], 28 * 4);
        assert_eq!(mixed[keys::GPU_SHARE], 2000);
        assert_eq!(capacity(&[device(0, 32510)], MemoryUnit::GiB)[keys::GPUSHARE_MEMORY], 31);
        assert_eq!(capacity(&[device(0, 32510)], MemoryUnit::MiB)[keys::GPUSHARE_MEMORY], 32510);
        assert!(capacity(&[], MemoryUnit::GiB).is_empty());
    }
}

//! What the node says about itself: the inventory annotation that schedulers read, and extended resources for people who read
//! `kubectl describe node`. Pure.

use std::collections::BTreeMap;

use divvy_core::device::{Device, DeviceKind, Inventory, MemoryUnit};
use divvy_core::id::{DeviceId, PodUid};
use divvy_core::keys;
use divvy_core::units::Bytes;
use divvy_dialects::node::emulate_node;

/// Whose resource names the node's status shows besides our own, and whose annotations the node carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Advertise {
    /// Ours alone.
    Native,
    /// Also those of every emulated system.
    All,
}

/// How the node presents itself.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whose names to show.
    pub advertise: Advertise,
    /// The unit of gpushare's memory.
    pub memory_unit: MemoryUnit,
    /// Slots per device.
    pub slots_per_device: usize,
    /// What a context takes of a part of a card; nothing where contexts come on top.
    pub context: Bytes,
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
    /// Pods that are to be evicted.
    pub evict: &'a BTreeMap<PodUid, String>,
    /// Memory of processes without a grant.
    pub foreign: &'a BTreeMap<DeviceId, Bytes>,
}

impl Facts<'_> {
    /// The annotation's content, as generation `generation`.
    pub fn inventory(&self, generation: u64) -> Inventory {
        let texts =
            |of: &BTreeMap<PodUid, String>| of.iter().map(|(uid, why)| (uid.to_string(), why.clone())).collect();
        Inventory {
            v: Inventory::VERSION,
            generation,
            devices: self.devices.to_vec(),
            memory_unit: self.memory_unit,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            driver: self.driver.to_owned(),
            refused: texts(self.refused),
            evict: texts(self.evict),
            foreign: self.foreign.clone(),
        }
    }

    /// What `kubectl describe node` shows under Capacity. Devices that take no new work still count: pods run on them.
    pub fn capacity(&self, node: &str, style: Style) -> BTreeMap<String, u64> {
        let mut capacity = match style.advertise {
            Advertise::Native => BTreeMap::new(),
            Advertise::All => emulate_node(node, &self.inventory(0)).capacity,
        };
        let cards: Vec<&Device> = self.devices.iter().filter(|d| d.kind == DeviceKind::Gpu).collect();
        if !cards.is_empty() {
            let slots = style.slots_per_device as u64;
            capacity.insert(keys::GPU.into(), cards.len() as u64 * slots);
            capacity.insert(keys::GPU_MEMORY.into(), cards.iter().map(|d| d.bookable_memory().0).sum());
            capacity.insert(keys::GPU_SHARE.into(), cards.iter().map(|d| u64::from(d.bookable_share().0)).sum());
        }
        capacity
    }

    /// Annotations in which the emulated systems' tools look for the node's devices.
    pub fn annotations(&self, node: &str, style: Style) -> BTreeMap<String, String> {
        match style.advertise {
            Advertise::Native => BTreeMap::new(),
            Advertise::All => emulate_node(node, &self.inventory(0)).annotations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_shows_our_names_and_on_demand_everybody_elses() {
        let devices = [0, 1].map(|i| Device::gpu(format!("G{i}"), i, "T4", Bytes::gib(16)));
        let (pods, foreign) = (BTreeMap::new(), BTreeMap::new());
        let facts = Facts {
            devices: &devices,
            driver: "",
            memory_unit: MemoryUnit::GiB,
            refused: &pods,
            evict: &pods,
            foreign: &foreign,
        };
        let style =
            |advertise| Style { advertise, memory_unit: MemoryUnit::GiB, slots_per_device: 16, context: Bytes::ZERO };
        let all = facts.capacity("n", style(Advertise::All));
        assert_eq!((all[keys::GPU], all[keys::GPU_MEMORY], all[keys::GPU_SHARE]), (32, 32 << 30, 2000));
        assert_eq!((all[keys::VCUDA_CORE], all[keys::GPUSHARE_MEMORY]), (200, 32));
        let ours = facts.capacity("n", style(Advertise::Native));
        assert_eq!(ours.keys().collect::<Vec<_>>(), [keys::GPU, keys::GPU_MEMORY, keys::GPU_SHARE]);
        assert!(Facts { devices: &[], ..facts }.capacity("n", style(Advertise::All)).is_empty());
    }
}

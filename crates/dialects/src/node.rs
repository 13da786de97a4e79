//! What the emulated systems showed on a node: capacities by their names, and annotations with the node's devices.
//!
//! For people and tools that read them. Divvy itself reads none of this back: its truth about a node is the inventory.

use std::collections::BTreeMap;

use divvy_core::device::{Device, DeviceKind, Health, Inventory};
use divvy_core::groups as tree;
use divvy_core::keys;
use divvy_core::units::Bytes;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// One block of `vcuda-memory`.
const BLOCK: u64 = 256 << 20;
/// Tasks per card where the inventory sets no cap: the charts' `deviceSplitCount`.
const SPLIT: u32 = 10;

/// What is seen of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEmulation {
    /// Extended resources for its status.
    pub capacity: BTreeMap<String, u64>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Everything the emulated systems would show about the node `name` with these devices.
pub fn emulate_node(name: &str, inventory: &Inventory) -> NodeEmulation {
    NodeEmulation { capacity: capacity(inventory), annotations: annotations(name, inventory) }
}

fn of_kind(inventory: &Inventory, kind: DeviceKind) -> Vec<&Device> {
    let mut devices: Vec<&Device> = inventory.devices.iter().filter(|device| device.kind == kind).collect();
    devices.sort_by_key(|device| device.index);
    devices
}

/// Capacities by the emulated systems' names. Each card counts with its own size, whatever the first one's is.
pub fn capacity(inventory: &Inventory) -> BTreeMap<String, u64> {
    let gpus = of_kind(inventory, DeviceKind::Gpu);
    let mlus = of_kind(inventory, DeviceKind::Mlu);
    let mut capacity = BTreeMap::new();
    let mut put = |key: &str, amount: u64| capacity.insert(key.to_owned(), amount);
    let slots =
        |devices: &[&Device]| devices.iter().map(|device| u64::from(device.max_tasks.unwrap_or(SPLIT))).sum::<u64>();
    if !gpus.is_empty() {
        let unit = inventory.memory_unit.of(1).0;
        put(keys::VCUDA_CORE, gpus.len() as u64 * 100);
        put(keys::VCUDA_MEMORY, gpus.iter().map(|device| device.memory).sum::<Bytes>().0 / BLOCK);
        put(keys::GPUSHARE_COUNT, gpus.len() as u64);
        put(keys::GPUSHARE_MEMORY, gpus.iter().map(|device| device.bookable_memory().0 / unit).sum());
        put(keys::VGPU_COUNT, slots(&gpus));
    }
    if !mlus.is_empty() {
        put(keys::MLU_COUNT, slots(&mlus));
    }
    capacity
}

fn annotations(name: &str, inventory: &Inventory) -> BTreeMap<String, String> {
    let gpus = of_kind(inventory, DeviceKind::Gpu);
    let mlus = of_kind(inventory, DeviceKind::Mlu);
    let mut annotations = BTreeMap::new();
    if !gpus.is_empty() {
        annotations.insert(keys::KUBEGPU_DEVICE_INFO.to_owned(), kubegpu(name, inventory).to_string());
        annotations.insert(keys::VGPU_NODE_REGISTER.to_owned(), vgpu_register(inventory));
        annotations.insert(keys::HAMI_NODE_REGISTER.to_owned(), hami_register(inventory).to_string());
    }
    if !mlus.is_empty() {
        annotations
            .insert(keys::VGPU_NODE_MLU_REGISTER.to_owned(), register(&mlus, |device| (0, device.registered_type())));
    }
    annotations
}

/// KubeGPU's node annotation: the count, and cards and memory of each device under its hierarchical name. Both come from the same
/// list, so that a device that disappears disappears from both.
pub fn kubegpu(name: &str, inventory: &Inventory) -> Value {
    let groups = tree::groups(inventory);
    let gpus = of_kind(inventory, DeviceKind::Gpu);
    let mut list = BTreeMap::from([(keys::VGPU_COUNT.to_owned(), gpus.len() as u64)]);
    for device in gpus {
        if let Some(groups) = groups.get(&device.id) {
            let path = tree::node_name(*groups, &device.id);
            list.insert(format!("{path}/cards"), 1);
            list.insert(format!("{path}/memory"), device.memory.0);
        }
    }
    json!({ "name": name, "capacity": list, "allocatable": list })
}

/// 4paradigm's register: `UUID,split,MiB,cores,TYPE,numa,health:` for each card, exactly seven fields.
pub fn vgpu_register(inventory: &Inventory) -> String {
    register(&of_kind(inventory, DeviceKind::Gpu), |device| (device.bookable_share().0 / 10, device.registered_type()))
}

fn register(devices: &[&Device], about: impl Fn(&Device) -> (u32, String)) -> String {
    devices
        .iter()
        .map(|device| {
            let (cores, kind) = about(device);
            format!(
                "{},{},{},{cores},{},{},{}:",
                device.id,
                device.max_tasks.unwrap_or(SPLIT),
                device.bookable_memory().0 / MIB,
                kind.replace([',', ':'], "-"),
                device.numa.unwrap_or(0),
                device.health == Health::Healthy,
            )
        })
        .collect()
}

/// HAMi's register: a JSON array of cards.
pub fn hami_register(inventory: &Inventory) -> Value {
    let cards = of_kind(inventory, DeviceKind::Gpu).into_iter().map(|device| {
        json!({
            "id": device.id,
            "index": device.index,
            "count": device.max_tasks.unwrap_or(SPLIT),
            "devmem": device.bookable_memory().0 / MIB,
            "devcore": device.bookable_share().0 / 10,
            "type": device.registered_type(),
            "numa": device.numa.unwrap_or(0),
            "mode": mode(device),
            "health": device.health == Health::Healthy,
        })
    });
    Value::Array(cards.collect())
}

fn mode(device: &Device) -> &'static str {
    if device.isolation.first() == Some(&divvy_core::device::Isolation::Mig) { "mig" } else { "hami-core" }
}

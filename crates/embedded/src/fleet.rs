//! The nodes: what their agents would write about them.

use divvy_core::device::{Device, Inventory, Isolation, Link};
use divvy_core::keys;
use divvy_core::units::Bytes;
use serde_json::{Value, json};

/// Slots per card: how many containers the kubelet could start on it.
const SLOTS: usize = 16;

/// A card's model.
#[derive(Clone, Copy, Debug)]
struct Model {
    name: &'static str,
    mib: u64,
}

const H200: Model = Model { name: "NVIDIA-H200", mib: 143_771 };
const A100: Model = Model { name: "NVIDIA-A100-SXM4-80GB", mib: 81_920 };
const L4: Model = Model { name: "NVIDIA-L4", mib: 23_034 };
const T4: Model = Model { name: "Tesla-T4", mib: 15_360 };

/// A kind of node.
struct Shape {
    prefix: &'static str,
    cards: &'static [Model],
    cpus: u32,
    memory_gib: u32,
    /// All cards see each other through NVSwitch; else in pairs on a PCIe switch.
    nvswitch: bool,
}

const BIG: Shape = Shape { prefix: "h200", cards: &[H200; 8], cpus: 192, memory_gib: 2048, nvswitch: true };
const MIDDLE: Shape = Shape { prefix: "a100", cards: &[A100; 8], cpus: 128, memory_gib: 1024, nvswitch: true };
const SMALL: Shape = Shape { prefix: "t4", cards: &[T4; 4], cpus: 48, memory_gib: 192, nvswitch: false };
const MIXED: Shape =
    Shape { prefix: "mixed", cards: &[A100, A100, L4, L4, T4, T4], cpus: 64, memory_gib: 512, nvswitch: false };

/// In which order kinds of nodes come.
const ORDER: [&Shape; 12] =
    [&BIG, &MIDDLE, &SMALL, &MIDDLE, &BIG, &MIXED, &SMALL, &MIDDLE, &BIG, &SMALL, &MIDDLE, &MIXED];

/// So many nodes as the API server would show them, their names numbered by kind.
pub fn nodes(count: usize) -> Vec<Value> {
    let mut numbers = std::collections::BTreeMap::new();
    (0..count)
        .map(|n| {
            let shape = ORDER[n % ORDER.len()];
            let number = numbers.entry(shape.prefix).and_modify(|n| *n += 1).or_insert(1);
            node(shape, &format!("{}-{number:02}", shape.prefix), n)
        })
        .collect()
}

fn node(shape: &Shape, name: &str, place: usize) -> Value {
    let amounts = json!({
        "cpu": shape.cpus.to_string(),
        "memory": format!("{}Gi", shape.memory_gib),
        "ephemeral-storage": "4Ti",
        "pods": "250",
        (keys::SLOT): (shape.cards.len() * SLOTS).to_string(),
    });
    json!({
        "metadata": {
            "name": name,
            "labels": {
                (keys::SIMULATED): "true",
                (keys::NODE_OPT_IN): "true",
                (keys::HOSTNAME): name,
                (keys::ZONE): format!("zone-{}", place % 3),
                (keys::POOL): shape.prefix,
            },
            "annotations": {(keys::INVENTORY): text(&inventory(shape, name))},
        },
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// An inventory as an agent writes it.
pub(crate) fn text(inventory: &Inventory) -> String {
    serde_json::to_string(inventory).unwrap_or_default()
}

fn inventory(shape: &Shape, name: &str) -> Inventory {
    let id = |index: usize| format!("GPU-{name}-{index}");
    let link = |a: usize, b: usize| match (shape.nvswitch, a / 2 == b / 2) {
        (true, _) => Link::NvLink,
        (false, true) => Link::SingleSwitch,
        (false, false) => Link::SameCpu,
    };
    let device = |(index, model): (usize, &Model)| {
        let mut device = Device::gpu(id(index), index as u32, model.name, Bytes::mib(model.mib));
        device.numa = Some(u32::from(index >= shape.cards.len().div_ceil(2)));
        let others = (0..shape.cards.len()).filter(|other| *other != index);
        device.links = others.map(|other| (id(other).into(), link(index, other))).collect();
        device.isolation = vec![Isolation::Intercept];
        device
    };
    Inventory {
        generation: 1,
        devices: shape.cards.iter().enumerate().map(device).collect(),
        agent: "simulated".into(),
        ..Inventory::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_as_an_agents_would_be() {
        let all = nodes(24);
        let mut models = std::collections::BTreeSet::new();
        let mut names = std::collections::BTreeSet::new();
        for value in all {
            let (node, problem) = divvy_api::convert::node(serde_json::from_value(value).unwrap());
            assert_eq!(problem, None, "{}", node.name);
            assert!(!node.unready);
            models.extend(node.inventory.devices.iter().map(|d| d.model.to_string()));
            assert!(names.insert(node.name));
        }
        assert_eq!(models.len(), 4);
    }
}

//! What the emulated systems show on a node.

use divvy_core::device::{DeviceKind, Health, Isolation, MemoryUnit};
use divvy_core::keys::*;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::node::{capacity, emulate_node, hami_register, kubegpu, vgpu_register};
use serde_json::json;

use crate::support::node;

#[test]
fn al_21_cards_of_different_size_each_count_with_their_own() {
    let capacity = capacity(&node(&[("A", 12 * 1024), ("B", 16 * 1024)]));
    assert_eq!(capacity[GPUSHARE_MEMORY], 28);
    assert_eq!(capacity[GPUSHARE_COUNT], 2);
}

#[test]
fn al_14_units_are_rounded_down_per_card() {
    let mut inventory = node(&[("A", 32510), ("B", 15079)]);
    assert_eq!(capacity(&inventory)[GPUSHARE_MEMORY], 31 + 14);
    inventory.memory_unit = MemoryUnit::MiB;
    assert_eq!(capacity(&inventory)[GPUSHARE_MEMORY], 32510 + 15079);
}

#[test]
fn gpu_managers_capacity_is_hundredths_and_blocks() {
    let capacity = capacity(&node(&[("A", 1024), ("B", 1100)]));
    assert_eq!((capacity[VCUDA_CORE], capacity[VCUDA_MEMORY]), (200, 8));
}

#[test]
fn a_node_without_cards_shows_none_of_their_names() {
    let emulation = emulate_node("n1", &node(&[]));
    assert!(emulation.capacity.is_empty() && emulation.annotations.is_empty());
}

#[test]
fn fp_18_the_register_has_seven_fields_whatever_a_model_is_called() {
    let mut inventory = node(&[("GPU-1", 16384), ("GPU-2", 16384)]);
    inventory.devices[0].model = "Tesla,V100:x".into();
    inventory.devices[0].numa = Some(1);
    inventory.devices[1].health = Health::Unhealthy { reason: "XID 48".into() };
    inventory.devices[1].max_tasks = Some(5);
    assert_eq!(
        vgpu_register(&inventory),
        "GPU-1,10,16384,100,NVIDIA-Tesla-V100-x,1,true:GPU-2,5,16384,100,NVIDIA-V100,0,false:"
    );
}

#[test]
fn fp_11_registered_memory_is_the_scaled_one() {
    let mut inventory = node(&[("G", 16384)]);
    inventory.devices[0].bookable_memory = Some(Bytes::mib(29491));
    inventory.devices[0].bookable_share = Some(Share(1500));
    assert_eq!(vgpu_register(&inventory), "G,10,29491,150,NVIDIA-V100,0,true:");
}

#[test]
fn hami_registers_cards_as_json() {
    let mut inventory = node(&[("G", 16384)]);
    inventory.devices[0].isolation = vec![Isolation::Mig, Isolation::Intercept];
    let expected = json!([{ "id": "G", "index": 0, "count": 10, "devmem": 16384, "devcore": 100, "type": "NVIDIA-V100", "numa": 0,
        "mode": "mig", "health": true }]);
    assert_eq!(hami_register(&inventory), expected);
}

#[test]
fn kg_31_a_device_that_is_gone_leaves_count_and_list_together() {
    let all = kubegpu("n1", &node(&[("A", 1024), ("B", 1024)]));
    assert_eq!(all["capacity"][VGPU_COUNT], 2);
    assert_eq!(all["capacity"]["resource/group/gpugrp1/1/gpugrp0/1/gpu/B/memory"], 1 << 30);
    let less = kubegpu("n1", &node(&[("A", 1024)]));
    let expected = json!({ VGPU_COUNT: 1, "resource/group/gpugrp1/0/gpugrp0/0/gpu/A/cards": 1,
        "resource/group/gpugrp1/0/gpugrp0/0/gpu/A/memory": 1 << 30 });
    assert_eq!(less, json!({ "name": "n1", "capacity": expected, "allocatable": expected }));
}

#[test]
fn mlus_are_registered_under_their_own_names() {
    let mut inventory = node(&[("MLU-1", 24576)]);
    inventory.devices[0].kind = DeviceKind::Mlu;
    inventory.devices[0].model = "MLU370-X4".into();
    let emulation = emulate_node("n1", &inventory);
    assert_eq!(emulation.annotations[VGPU_NODE_MLU_REGISTER], "MLU-1,10,24576,0,MLU-MLU370-X4,0,true:");
    assert_eq!(emulation.capacity, [(MLU_COUNT.to_owned(), 10)].into());
}

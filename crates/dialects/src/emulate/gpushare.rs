//! Aliyun gpushare: the card's number and everybody's units, on the pod and in its containers, from which applications size themselves.

use std::collections::BTreeMap;

use divvy_core::ask::Role;
use divvy_core::grant::Slice;
use divvy_core::keys;

use super::{Bound, Emulation, Promised, VISIBLE_DEVICES, ids, pairs};

const CONTAINER: &str = "ALIYUN_COM_GPU_MEM_CONTAINER";

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let unit = bound.place.inventory.memory_unit.of(1).0;
    let units = |slices: &[&Slice]| slices.iter().map(|slice| slice.memory.0 / unit).sum::<u64>();
    let granted: Vec<_> = bound.containers().map(|granted| (granted.grant, granted.gpus())).collect();
    let running: u64 =
        granted.iter().filter(|(grant, _)| grant.role != Role::Init).map(|(_, slices)| units(slices)).sum();
    let starting = granted.iter().filter(|(grant, _)| grant.role == Role::Init).map(|(_, slices)| units(slices)).max();
    let pod_units = running.max(starting.unwrap_or(0));

    let mut cards: Vec<u32> = Vec::new();
    let mut largest = 0;
    let mut allocation: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (grant, slices) in &granted {
        let number = position(bound, grant.name.as_str());
        for slice in slices {
            let Some(device) = bound.device(slice) else { continue };
            largest = largest.max(device.bookable_memory().0 / unit);
            if !cards.contains(&device.index) {
                cards.push(device.index);
            }
            if let Some(number) = number {
                let here = allocation.entry(number.to_string()).or_default();
                *here.entry(device.index.to_string()).or_default() += slice.memory.0 / unit;
            }
        }
    }
    let index = cards.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut emulation = Emulation {
        annotations: pairs([
            (keys::GPUSHARE_INDEX, index.clone()),
            (keys::GPUSHARE_DEVICE, largest.to_string()),
            (keys::GPUSHARE_POD, pod_units.to_string()),
            (keys::GPUSHARE_ASSIGNED, "false".into()),
            (keys::GPUSHARE_ASSUME_TIME, bound.nanoseconds()),
        ]),
        started: pairs([(keys::GPUSHARE_ASSIGNED, "true".into())]),
        ..Emulation::default()
    };
    if cards.len() > 1 {
        let text = serde_json::to_string(&allocation).unwrap_or_default();
        emulation.annotations.insert(keys::GPUSHARE_ALLOCATION.into(), text);
    }
    for (grant, slices) in granted {
        let device = slices.first().and_then(|slice| bound.device(slice));
        let own: Vec<String> = slices.iter().filter_map(|slice| Some(bound.device(slice)?.index.to_string())).collect();
        let env = pairs([
            (VISIBLE_DEVICES, ids(&slices)),
            (keys::GPUSHARE_INDEX, own.join(",")),
            (keys::GPUSHARE_POD, pod_units.to_string()),
            (CONTAINER, units(&slices).to_string()),
            (keys::GPUSHARE_DEVICE, device.map_or(0, |device| device.bookable_memory().0 / unit).to_string()),
        ]);
        emulation.containers.insert(grant.name.clone(), Promised { env, ..Promised::default() });
    }
    emulation
}

/// A container's place in the pod's list, by which gpushare's tools know it. They know no init containers.
fn position(bound: &Bound<'_>, name: &str) -> Option<usize> {
    let mut main = bound.pod.containers().into_iter().filter(|container| container.role == Role::Main);
    main.find(|container| container.name() == name).map(|container| container.index)
}

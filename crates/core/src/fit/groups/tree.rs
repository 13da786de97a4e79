//! A node's devices in KubeGPU's two levels of groups, and requests lifted to the same two levels.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys;
use crate::model::ask::GroupAsk;
use crate::model::device::{Device, DeviceKind, Inventory, Link};
use crate::model::id::DeviceId;

use super::names::{self, DEVICE, INNER, Name, OUTER};

/// The groups a device is in, numbered per node in the order of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The group of everything with any known way to each other.
    pub outer: usize,
    /// The group of everything that shares a switch or better.
    pub inner: usize,
}

/// The groups of every GPU of a node. A group is everything that hangs together, so that each device is in exactly one of each level.
pub fn groups(inventory: &Inventory) -> BTreeMap<DeviceId, Groups> {
    let mut devices: Vec<&Device> = inventory.devices.iter().filter(|device| device.kind == DeviceKind::Gpu).collect();
    devices.sort_by_key(|device| device.index);
    let inner = connected(&devices, |link| link >= Link::MultiSwitch);
    let outer = connected(&devices, |link| link > Link::Unknown);
    devices
        .iter()
        .enumerate()
        .map(|(n, device)| (device.id.clone(), Groups { outer: outer[n], inner: inner[n] }))
        .collect()
}

/// The number of each device's component.
fn connected(devices: &[&Device], near: impl Fn(Link) -> bool) -> Vec<usize> {
    let linked = |a: &Device, b: &Device| {
        let link = |from: &Device, to: &Device| from.links.get(&to.id).copied().unwrap_or_default();
        near(link(a, b).max(link(b, a)))
    };
    let mut group: Vec<Option<usize>> = vec![None; devices.len()];
    let mut next = 0;
    for start in 0..devices.len() {
        if group[start].is_some() {
            continue;
        }
        let mut reached = vec![start];
        while let Some(at) = reached.pop() {
            group[at] = Some(next);
            reached.extend(
                (0..devices.len()).filter(|other| group[*other].is_none() && linked(devices[at], devices[*other])),
            );
        }
        next += 1;
    }
    group.into_iter().flatten().collect()
}

/// A device's full name on its node, without the quantity.
pub fn node_name(groups: Groups, device: &DeviceId) -> String {
    format!("{}/{OUTER}/{}/{INNER}/{}/{DEVICE}/{device}", keys::KUBEGPU_GROUP, groups.outer, groups.inner)
}

/// A request for one device, lifted to two levels: its path without the quantity, and the quantities asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifted {
    /// The label of its outer group.
    pub outer: String,
    /// The label of its inner group.
    pub inner: String,
    /// Its full name without a quantity.
    pub path: String,
    /// What is asked of it (`cards`, `memory`, bit sets), by name.
    pub quantities: BTreeMap<String, i64>,
    /// Those of them that are sets of bits, of which one in common is enough.
    pub bit_sets: BTreeSet<String>,
}

/// What a request says about where its device lies.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    outer: Option<String>,
    inner: Option<String>,
    device: String,
}

/// The requests of one container, completed to `count` devices. A device without a group gets one of its own, and so does a group
/// without an outer one: what shares no label is free to lie anywhere. Nothing of a device is no request for it; whoever wants anything
/// of it wants its card, without which the container would not see it.
pub fn lift(ask: &GroupAsk, count: u32) -> Vec<Lifted> {
    let mut devices: BTreeMap<Labels, Asked> = BTreeMap::new();
    for (text, amount) in ask.requests.iter().filter(|(_, amount)| **amount != 0) {
        let Some(name) = names::without_prefix(text).and_then(Name::read) else { continue };
        let label = |kind: &str| name.groups.iter().find(|(k, _)| *k == kind).map(|(_, label)| (*label).to_owned());
        let Some(device) = label(DEVICE) else { continue };
        let labels = Labels { outer: label(OUTER), inner: label(INNER), device };
        let asked = devices.entry(labels).or_insert_with(card);
        asked.quantities.insert(name.quantity.to_owned(), *amount);
        let is_bit_set = match ask.scorers.get(text) {
            Some(&LEFTOVER) => false,
            Some(&ENUM) => true,
            _ => name.is_enum(),
        };
        if is_bit_set {
            asked.bit_sets.insert(name.quantity.to_owned());
        }
    }
    let used: BTreeSet<String> = devices.keys().map(|labels| labels.device.clone()).collect();
    let mut fresh = Fresh::new(used);
    while devices.len() < count as usize {
        devices.insert(Labels { outer: None, inner: None, device: fresh.next() }, card());
    }
    let mut inner_fresh = Fresh::new(devices.keys().filter_map(|labels| labels.inner.clone()).collect());
    let mut outer_fresh = Fresh::new(devices.keys().filter_map(|labels| labels.outer.clone()).collect());
    let mut outer_of: BTreeMap<String, String> = BTreeMap::new();
    // Devices in the order of their labels, numbers by value, so that `gpu/10` comes after `gpu/9`.
    let mut ordered: Vec<_> = devices.into_iter().collect();
    ordered.sort_by_key(|(labels, _)| (labels.device.parse::<u64>().unwrap_or(u64::MAX), labels.device.clone()));
    ordered
        .into_iter()
        .map(|(Labels { outer, inner, device }, Asked { quantities, bit_sets })| {
            let inner = inner.unwrap_or_else(|| inner_fresh.next());
            let outer =
                outer.unwrap_or_else(|| outer_of.entry(inner.clone()).or_insert_with(|| outer_fresh.next()).clone());
            let path = format!("{}/{OUTER}/{outer}/{INNER}/{inner}/{DEVICE}/{device}", keys::KUBEGPU_GROUP);
            Lifted { outer, inner, path, quantities, bit_sets }
        })
        .collect()
}

/// What a request asks of its device.
struct Asked {
    quantities: BTreeMap<String, i64>,
    bit_sets: BTreeSet<String>,
}

/// The scorers a request may name: its quantity is an amount, or a set of bits. Otherwise the quantity's name says which.
const LEFTOVER: i32 = 1;
const ENUM: i32 = 2;

/// One card and nothing else.
fn card() -> Asked {
    Asked { quantities: [("cards".to_owned(), 1)].into(), bit_sets: BTreeSet::new() }
}

/// The lowest numbers that are not labels yet.
struct Fresh {
    used: BTreeSet<String>,
    next: u64,
}

impl Fresh {
    fn new(used: BTreeSet<String>) -> Fresh {
        Fresh { used, next: 0 }
    }

    fn next(&mut self) -> String {
        loop {
            let label = self.next.to_string();
            self.next += 1;
            if !self.used.contains(&label) {
                return label;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::units::Bytes;

    use super::*;

    fn asks(requests: &[(&str, i64)]) -> GroupAsk {
        let requests =
            requests.iter().map(|(rest, amount)| (format!("{}/{rest}", keys::KUBEGPU_GROUP), *amount)).collect();
        GroupAsk { auto: false, requests, scorers: BTreeMap::new() }
    }

    fn paths(lifted: &[Lifted]) -> Vec<&str> {
        lifted.iter().map(|device| device.path.strip_prefix(keys::KUBEGPU_GROUP).unwrap()).collect()
    }

    #[test]
    fn kg_16_a_count_is_filled_up_with_free_devices() {
        let lifted = lift(&asks(&[("gpu/0/cards", 1), ("gpu/0/memory", 5)]), 3);
        assert_eq!(
            paths(&lifted),
            ["/gpugrp1/0/gpugrp0/0/gpu/0", "/gpugrp1/1/gpugrp0/1/gpu/1", "/gpugrp1/2/gpugrp0/2/gpu/2"]
        );
        assert_eq!(lifted[0].quantities, [("cards".to_owned(), 1), ("memory".to_owned(), 5)].into());
        assert_eq!(lifted[1].quantities, [("cards".to_owned(), 1)].into());
    }

    #[test]
    fn kg_17_devices_of_one_group_stay_together() {
        let lifted = lift(&asks(&[("gpugrp0/A/gpu/a/cards", 1), ("gpugrp0/A/gpu/b/cards", 1)]), 2);
        assert_eq!(paths(&lifted), ["/gpugrp1/0/gpugrp0/A/gpu/a", "/gpugrp1/0/gpugrp0/A/gpu/b"]);
    }

    #[test]
    fn whatever_is_asked_of_a_device_asks_for_its_card_and_nothing_asks_for_nothing() {
        let lifted = lift(&asks(&[("gpu/0/cards", 0), ("gpu/1/enumType", 3), ("gpu/2/memory", 5)]), 2);
        assert_eq!(paths(&lifted), ["/gpugrp1/0/gpugrp0/0/gpu/1", "/gpugrp1/1/gpugrp0/1/gpu/2"]);
        assert!(lifted.iter().all(|device| device.quantities["cards"] == 1), "{lifted:?}");
    }

    fn linked(links: &[(usize, usize, Link)], count: u32) -> Inventory {
        let id = |n: usize| DeviceId::from(format!("GPU-{n}"));
        let mut devices: Vec<Device> =
            (0..count).map(|n| Device::gpu(id(n as usize), n, "NVIDIA-V100", Bytes::mib(16384))).collect();
        for (a, b, link) in links {
            devices[*a].links.insert(id(*b), *link);
        }
        Inventory { v: Inventory::VERSION, generation: 1, devices, ..Inventory::default() }
    }

    #[test]
    fn kg_19_pairs_on_a_switch_and_quads_on_a_bridge_are_two_levels() {
        let mut links = Vec::new();
        for a in 0..8 {
            for b in a + 1..8 {
                if a / 2 == b / 2 {
                    links.push((a, b, Link::SingleSwitch));
                } else if a / 4 == b / 4 {
                    links.push((a, b, Link::HostBridge));
                }
            }
        }
        let groups = groups(&linked(&links, 8));
        let outer: Vec<usize> = groups.values().map(|g| g.outer).collect();
        let inner: Vec<usize> = groups.values().map(|g| g.inner).collect();
        assert_eq!(outer, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(inner, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(
            node_name(groups[&DeviceId::from("GPU-5")], &"GPU-5".into()),
            format!("{}/gpugrp1/1/gpugrp0/2/gpu/GPU-5", keys::KUBEGPU_GROUP)
        );
    }

    #[test]
    fn kg_21_a_chain_of_links_is_one_group() {
        let groups = groups(&linked(&[(0, 1, Link::SingleSwitch), (1, 2, Link::SingleSwitch)], 3));
        assert!(groups.values().all(|g| *g == Groups { outer: 0, inner: 0 }), "{groups:?}");
    }

    #[test]
    fn kg_18_devices_without_known_links_stand_alone() {
        let groups = groups(&linked(&[], 4));
        let seen: Vec<(usize, usize)> = groups.values().map(|g| (g.outer, g.inner)).collect();
        assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    }
}

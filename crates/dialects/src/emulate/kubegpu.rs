//! KubeGPU: its annotation with the scheduler's answers filled in, and the devices in the container's environment.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use divvy_core::ask::{GpuAsk, GroupAsk, Role};
use divvy_core::grant::{Grant, Slice};
use divvy_core::groups::{self as tree, Groups, Lifted};
use divvy_core::id::DeviceId;
use divvy_core::keys;
use serde_json::{Map, Value, json};

use super::{Bound, Emulation, Granted, Place, Promised, VISIBLE_DEVICES, ids, pairs};
use crate::kubegpu::{annotation_key, answer_key};
use crate::manifest::PodManifest;

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let mut emulation = Emulation::default();
    emulation.annotations.insert(answer_key(bound.pod).into(), result(bound).to_string());
    for granted in bound.containers() {
        let env = pairs([(VISIBLE_DEVICES, ids(&granted.gpus()))]);
        emulation.containers.insert(granted.grant.name.clone(), Promised { env, ..Promised::default() });
    }
    emulation
}

/// The pod's annotation as KubeGPU's scheduler would have written it back: with `podname`, `nodename`, and for each container the
/// requests as they were understood (`devrequests`) and what each was allocated from (`allocatefrom`).
pub fn kubegpu_result(pod: &PodManifest<'_>, ask: &GpuAsk, grant: &Grant, place: &Place<'_>) -> Value {
    result(&Bound { pod, ask, grant, place })
}

fn result(bound: &Bound<'_>) -> Value {
    let written = annotation_key(bound.pod).and_then(|key| bound.pod.annotation(key));
    let mut info = match written.and_then(|text| serde_json::from_str(&text).ok()) {
        Some(Value::Object(info)) => info,
        _ => Map::new(),
    };
    info.insert("podname".into(), bound.pod.identity("name").into());
    info.insert("nodename".into(), bound.place.node.into());
    LISTS.iter().for_each(|list| strip(&mut info, list));
    let groups = tree::groups(bound.place.inventory);
    let old = answer_key(bound.pod) == keys::KUBEGPU_POD_2018;
    let spell = |name: String| if old { in_2018(&name) } else { name };
    for granted in bound.containers() {
        let list = field(&info, LISTS[usize::from(granted.grant.role != Role::Main)]);
        let entry = object(info.entry(list).or_insert_with(|| json!({})));
        let container = object(entry.entry(granted.grant.name.as_str()).or_insert_with(|| json!({})));
        let (mut requests, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (lifted, slice) in assignment(bound, &granted, &groups) {
            let Some(found) = groups.get(&slice.device) else { continue };
            let node = tree::node_name(*found, &slice.device);
            for (quantity, amount) in &lifted.quantities {
                let name = spell(format!("{}/{quantity}", lifted.path));
                requests.insert(name.clone(), *amount);
                sources.insert(name, spell(format!("{node}/{quantity}")));
            }
        }
        container.insert("devrequests".into(), json!(requests));
        container.insert("allocatefrom".into(), json!(sources));
    }
    Value::Object(info)
}

/// Where running and init containers are listed.
const LISTS: [&str; 2] = ["runningcontainer", "initcontainer"];

/// The field as the user wrote it: Go reads JSON in whatever case, and two fields of one name would contradict each other.
fn field(info: &Map<String, Value>, name: &str) -> String {
    info.keys().find(|key| key.eq_ignore_ascii_case(name)).map_or_else(|| name.to_owned(), Clone::clone)
}

/// Takes away what only the scheduler writes, which a copied manifest may bring from another pod: node agents would believe it.
fn strip(info: &mut Map<String, Value>, list: &str) {
    let list = field(info, list);
    let containers = info.get_mut(&list).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    for container in containers.filter_map(Value::as_object_mut) {
        container.retain(|key, _| !["devrequests", "allocatefrom"].iter().any(|own| key.eq_ignore_ascii_case(own)));
    }
}

/// The name as it was written in 2018.
fn in_2018(name: &str) -> String {
    name.replacen(keys::KUBEGPU_GROUP, keys::KUBEGPU_GROUP_2018, 1)
}

/// The object in `value`; whatever else was there gives way.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object of it"),
    }
}

/// Which granted device answers which request.
fn assignment<'a>(
    bound: &Bound<'a>,
    granted: &Granted<'a>,
    groups: &BTreeMap<DeviceId, Groups>,
) -> Vec<(Lifted, &'a Slice)> {
    let slices = granted.gpus();
    let ask = granted.ask.wants.iter().find_map(|want| want.groups.as_ref());
    let spelled = ask.filter(|ask| !ask.requests.is_empty());
    let Some(ask) = spelled else {
        // Nothing was spelled out: the requests read as the devices lie.
        return slices
            .iter()
            .copied()
            .zip(as_they_lie(&slices, groups))
            .map(|(slice, lifted)| (lifted, slice))
            .collect();
    };
    let wanted = tree::lift(&GroupAsk { auto: false, ..ask.clone() }, slices.len() as u32);
    let (binding, chosen) = (!ask.auto, Vec::new());
    let mut matching = Matching { bound, groups, wanted: &wanted, slices: &slices, binding, chosen, steps: 10_000 };
    if !matching.complete() {
        matching.chosen = (0..slices.len()).collect(); // the grant stands, whoever made it: then in order
    }
    let chosen: Vec<&Slice> = matching.chosen.iter().map(|n| slices[*n]).collect();
    if !ask.auto {
        return wanted.into_iter().zip(chosen).collect();
    }
    // Labels did not bind: written back, they would say of the devices what is not so.
    let lying = as_they_lie(&chosen, groups).into_iter().zip(wanted);
    lying.map(|(place, wanted)| Lifted { quantities: wanted.quantities, ..place }).zip(chosen).collect()
}

/// A device for each request, found by trying.
struct Matching<'a, 'b> {
    bound: &'b Bound<'a>,
    groups: &'b BTreeMap<DeviceId, Groups>,
    wanted: &'b [Lifted],
    slices: &'b [&'a Slice],
    /// What shares a label must lie in one group.
    binding: bool,
    /// For each request so far, which slice answers it.
    chosen: Vec<usize>,
    /// Nodes have few devices; a strange grant must not keep us busy.
    steps: u32,
}

impl Matching<'_, '_> {
    /// Finds a device for each request in turn, going back where the rest cannot be served.
    fn complete(&mut self) -> bool {
        if self.chosen.len() == self.wanted.len() {
            return true;
        }
        for n in 0..self.slices.len() {
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            if !self.answers(n) {
                continue;
            }
            self.chosen.push(n);
            if self.complete() {
                return true;
            }
            self.chosen.pop();
        }
        false
    }

    /// Can slice `n` answer the next request, beside those chosen?
    fn answers(&self, n: usize) -> bool {
        let next = &self.wanted[self.chosen.len()];
        let memory = next.quantities.get("memory").and_then(|memory| u64::try_from(*memory).ok()).unwrap_or(0);
        let large = self.bound.device(self.slices[n]).is_some_and(|device| device.memory.0 >= memory);
        let Some(here) = self.groups.get(&self.slices[n].device) else { return false };
        let beside = self.chosen.iter().zip(self.wanted).all(|(other, theirs)| {
            let Some(there) = self.groups.get(&self.slices[*other].device) else { return false };
            let same_outer = self.binding && theirs.outer == next.outer;
            let same_inner = same_outer && theirs.inner == next.inner;
            (!same_outer || here.outer == there.outer) && (!same_inner || here.inner == there.inner)
        });
        large && beside && !self.chosen.contains(&n)
    }
}

/// Requests for exactly these devices. Groups are numbered as KubeGPU walked a node's shape: those with most of the devices first, the
/// inner ones anew in each outer one, and so the devices in each inner one.
fn as_they_lie(slices: &[&Slice], groups: &BTreeMap<DeviceId, Groups>) -> Vec<Lifted> {
    let place = |slice: &&Slice| groups.get(&slice.device).copied().unwrap_or(Groups { outer: 0, inner: 0 });
    let places: Vec<Groups> = slices.iter().map(place).collect();
    let outers = by_size(places.iter().map(|place| place.outer));
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    places
        .iter()
        .map(|place| {
            let beside = places.iter().filter(|other| other.outer == place.outer);
            let inners = by_size(beside.map(|other| other.inner));
            let number = |list: &[usize], group| list.iter().position(|known| *known == group).unwrap_or_default();
            let (outer, inner) = (number(&outers, place.outer), number(&inners, place.inner));
            let count = counts.entry((outer, inner)).or_default();
            let path = tree::node_name(Groups { outer, inner }, &count.to_string().into());
            *count += 1;
            Lifted {
                outer: outer.to_string(),
                inner: inner.to_string(),
                path,
                quantities: [("cards".to_owned(), 1)].into(),
                bit_sets: Default::default(),
            }
        })
        .collect()
}

/// Which groups there are, those that come most often first, and of equals the one that comes first.
fn by_size(all: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sizes: Vec<(usize, usize)> = Vec::new();
    for group in all {
        match sizes.iter_mut().find(|(known, _)| *known == group) {
            Some((_, size)) => *size += 1,
            None => sizes.push((group, 1)),
        }
    }
    sizes.sort_by_key(|(_, size)| Reverse(*size));
    sizes.into_iter().map(|(group, _)| group).collect()
}

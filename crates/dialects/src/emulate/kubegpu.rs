//! KubeGPU: its annotation with the scheduler's answers filled in, and the devices in the container's environment.

use std::collections::BTreeMap;

use divvy_core::ask::{GpuAsk, GroupAsk, Role};
use divvy_core::grant::{Grant, Slice};
use divvy_core::id::DeviceId;
use divvy_core::keys;
use divvy_core::kubegpu::{self as tree, Groups, Lifted};
use serde_json::{Map, Value, json};

use super::{Bound, Emulation, Granted, Place, Promised, VISIBLE_DEVICES, ids, pairs};
use crate::kubegpu::annotation_key;
use crate::manifest::PodManifest;

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let mut emulation = Emulation::default();
    let key = annotation_key(bound.pod).unwrap_or(keys::KUBEGPU_DEVICE_INFO);
    emulation.annotations.insert(key.into(), result(bound).to_string());
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
    let groups = tree::groups(bound.place.inventory);
    for granted in bound.containers() {
        let list = if granted.grant.role == Role::Main { "runningcontainer" } else { "initcontainer" };
        let entry = object(info.entry(list).or_insert_with(|| json!({})));
        let container = object(entry.entry(granted.grant.name.as_str()).or_insert_with(|| json!({})));
        let (mut requests, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (lifted, slice) in assignment(bound, &granted, &groups) {
            let Some(found) = groups.get(&slice.device) else { continue };
            let node = tree::node_name(*found, &slice.device);
            for (quantity, amount) in &lifted.quantities {
                requests.insert(format!("{}/{quantity}", lifted.path), *amount);
                sources.insert(format!("{}/{quantity}", lifted.path), format!("{node}/{quantity}"));
            }
        }
        container.insert("devrequests".into(), json!(requests));
        container.insert("allocatefrom".into(), json!(sources));
    }
    Value::Object(info)
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
    let mut matching = Matching { bound, groups, wanted: &wanted, slices: &slices, chosen: Vec::new(), steps: 10_000 };
    if !matching.complete() {
        matching.chosen = (0..slices.len()).collect(); // the grant stands, whoever made it: then in order
    }
    let chosen = matching.chosen;
    wanted.into_iter().zip(chosen).map(|(lifted, n)| (lifted, slices[n])).collect()
}

/// A device for each request, found by trying.
struct Matching<'a, 'b> {
    bound: &'b Bound<'a>,
    groups: &'b BTreeMap<DeviceId, Groups>,
    wanted: &'b [Lifted],
    slices: &'b [&'a Slice],
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
            let same_outer = theirs.outer == next.outer;
            let same_inner = same_outer && theirs.inner == next.inner;
            (!same_outer || here.outer == there.outer) && (!same_inner || here.inner == there.inner)
        });
        large && beside && !self.chosen.contains(&n)
    }
}

/// Requests for exactly these devices, their groups numbered in the order in which they come.
fn as_they_lie(slices: &[&Slice], groups: &BTreeMap<DeviceId, Groups>) -> Vec<Lifted> {
    let (mut outers, mut inners): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let number = |list: &mut Vec<usize>, group: usize| match list.iter().position(|known| *known == group) {
        Some(n) => n,
        None => {
            list.push(group);
            list.len() - 1
        }
    };
    slices
        .iter()
        .map(|slice| {
            let found = groups.get(&slice.device).copied().unwrap_or(Groups { outer: 0, inner: 0 });
            let (outer, inner) = (number(&mut outers, found.outer), number(&mut inners, found.inner));
            let count = counts.entry(inner).or_default();
            let path = tree::node_name(Groups { outer, inner }, &count.to_string().into());
            *count += 1;
            Lifted {
                outer: outer.to_string(),
                inner: inner.to_string(),
                path,
                quantities: [("cards".to_owned(), 1)].into(),
            }
        })
        .collect()
}

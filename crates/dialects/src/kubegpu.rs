//! KubeGPU: a JSON annotation that names devices in a tree, beside the count in a container's resources. Whole GPUs only.
//!
//! The annotation is what makes a pod KubeGPU's: `nvidia.com/gpu` alone is read by the vGPU dialects, unless the policy says that it is
//! KubeGPU's, too. The names of 2018 are turned into those of 2019. Where KubeGPU passed over a user's words (a topology switch at container level, as its README shows it; memory without
//! cards), they count here.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, GroupAsk, Role};
use divvy_core::groups::{Name, without_prefix};
use divvy_core::keys;
use serde_json::{Map, Value};

use crate::config::{DialectConfig, NvidiaFlavour};
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::quantity;
use crate::reading::{Draft, Spoken};
use crate::suggest;

const DIALECT: Dialect = Dialect::Kubegpu;
const MOST_DEVICES: u64 = 1024;

/// The fields of the annotation, and of a container in it.
const POD_FIELDS: [&str; 5] = ["requests", "runningcontainer", "initcontainer", "podname", "nodename"];
const CONTAINER_FIELDS: [&str; 4] = ["requests", "devrequests", "allocatefrom", "scorer"];
const SWITCHES: [&str; 2] = [keys::KUBEGPU_TOPOLOGY, keys::KUBEGPU_TOPOLOGY_2018];

/// The annotation in use, if any.
pub(crate) fn annotation_key(pod: &PodManifest<'_>) -> Option<&'static str> {
    [keys::KUBEGPU_DEVICE_INFO, keys::KUBEGPU_POD_2018].into_iter().find(|key| pod.annotation(key).is_some())
}

/// The annotation in which a pod of KubeGPU's is answered: the one in use, or that of the year whose count the pod has.
pub(crate) fn answer_key(pod: &PodManifest<'_>) -> &'static str {
    annotation_key(pod).unwrap_or(if has_old_count(pod) { keys::KUBEGPU_POD_2018 } else { keys::KUBEGPU_DEVICE_INFO })
}

fn has_old_count(pod: &PodManifest<'_>) -> bool {
    pod.containers().iter().any(|container| container.names(keys::KUBEGPU_COUNT_2018))
}

/// Is `nvidia.com/gpu` KubeGPU's in this pod? With its annotation it is; without, where the policy says so and nothing of the pod is
/// asked for by a part of a card.
pub(crate) fn owns_count(pod: &PodManifest<'_>, config: &DialectConfig) -> bool {
    let names = &config.vgpu.names;
    let parts = [&names.resource_mem, &names.resource_mem_percentage, &names.resource_cores];
    let in_parts = || pod.containers().iter().any(|container| parts.iter().any(|key| container.names(key)));
    annotation_key(pod).is_some() || (config.nvidia == NvidiaFlavour::Kubegpu && !in_parts())
}

/// Reads the annotation and the counts.
pub(crate) fn read(pod: &PodManifest<'_>, config: &DialectConfig) -> Spoken {
    let has_count = || pod.containers().iter().any(|container| container.names(keys::VGPU_COUNT));
    let speaks = annotation_key(pod).is_some() || has_old_count(pod) || (owns_count(pod, config) && has_count());
    if !speaks {
        return Spoken::Silent;
    }
    let key = answer_key(pod);
    let mut mistakes = Vec::new();
    let mut reader = Annotation { key, mistakes: &mut mistakes };
    let info = pod.annotation(key).map(|text| reader.json(&text)).unwrap_or_default();
    reader.near_misses(&info, "", &POD_FIELDS);
    let (mut of_pod, mut of_containers) = (Switches::new(), Switches::new());
    reader.switch(get(&info, "requests"), "requests", &mut of_pod);
    let mut containers = Vec::new();
    let listed = [(Role::Main, "runningcontainer"), (Role::Init, "initcontainer")]
        .map(|(role, field)| (role, reader.containers(&info, field)));
    for (role, field) in [(Role::Main, "runningcontainer"), (Role::Init, "initcontainer")] {
        let known: Vec<String> = pod
            .containers()
            .iter()
            .filter(|c| (c.role == Role::Main) == (role == Role::Main))
            .map(|c| c.name().into_owned())
            .collect();
        let names: Vec<String> =
            listed.iter().filter(|(r, _)| *r == role).flat_map(|(_, map)| map.keys().cloned()).collect();
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            let near = suggest::nearest(&name, known.iter().map(String::as_str));
            let mend =
                near.map_or(format!("the pod has: {}", known.join(", ")), |near| format!("did you mean {near}?"));
            reader.wrong(format!("{field}.{name}"), "", "no such container in this pod", &mend);
        }
    }
    for container in pod.containers() {
        let name = container.name();
        let (_, map) = &listed[usize::from(container.role != Role::Main)];
        let field = if container.role == Role::Main { "runningcontainer" } else { "initcontainer" };
        let spelled = map
            .get(&*name)
            .map(|info| reader.container(info, &format!("{field}.{name}"), &mut of_containers))
            .unwrap_or_default();
        let mut count = spelled.count;
        for key in [keys::VGPU_COUNT, keys::KUBEGPU_COUNT_2018] {
            count = count.max(container.amount(key, "a whole number of GPUs", DIALECT, reader.mistakes).unwrap_or(0));
        }
        let count = count.max(spelled.devices.len() as u64);
        if count > MOST_DEVICES {
            let field = Field::resource(&name, keys::VGPU_COUNT);
            let mistake = Mistake::about(
                DIALECT,
                field,
                &count.to_string(),
                "is more GPUs than any node has",
                "ask per pod, not per job",
            );
            reader.mistakes.push(mistake);
        } else if count > 0 {
            let groups = GroupAsk { auto: true, requests: spelled.requests, scorers: spelled.scorers };
            let want = DeviceAsk { groups: Some(groups), ..DeviceAsk::whole(count as u32) };
            containers.push(ContainerAsk { name: (*name).into(), role: container.role, wants: vec![want] });
        }
    }
    // The pod's own switch is the one that KubeGPU read; those of containers count where there is none.
    let auto = reader.auto(if of_pod.is_empty() { &of_containers } else { &of_pod });
    for groups in
        containers.iter_mut().flat_map(|c: &mut ContainerAsk| &mut c.wants).filter_map(|want| want.groups.as_mut())
    {
        groups.auto = auto;
    }
    Spoken::from(Some(Draft::new(GpuAsk::of(DIALECT, containers), Field::annotation(key))), DIALECT, mistakes)
}

/// A field, whatever the case of its letters: Go reads JSON so.
fn get<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    object.get(field).or_else(|| object.iter().find(|(key, _)| key.eq_ignore_ascii_case(field)).map(|(_, value)| value))
}

/// The values of the topology switch, and where each is written.
type Switches = BTreeMap<i64, String>;

/// The number that was meant, where it is written as a Kubernetes quantity.
fn meant(value: &Value) -> Option<u64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    quantity::whole(&text).ok()
}

/// What the annotation says about one container.
#[derive(Default)]
struct Spelled {
    count: u64,
    requests: BTreeMap<String, i64>,
    scorers: BTreeMap<String, i32>,
    /// The distinct devices named, each by its path.
    devices: BTreeSet<String>,
}

struct Annotation<'m> {
    key: &'static str,
    mistakes: &'m mut Vec<Mistake>,
}

impl Annotation<'_> {
    /// The annotation's value; an empty one where it is not what it should be, so that the rest of the pod is still read.
    fn json(&mut self, text: &str) -> Map<String, Value> {
        let (problem, mend) = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(info)) => return info,
            Ok(_) => ("is not a JSON object".to_owned(), r#"write {"runningcontainer": {...}}"#),
            Err(error) => (
                format!("is not JSON (line {}, column {})", error.line(), error.column()),
                "write one JSON object with quoted names",
            ),
        };
        self.mistakes.push(Mistake::about(DIALECT, Field::annotation(self.key), text, &problem, mend));
        Map::new()
    }

    /// Fields that nobody reads, but that are nearly one of those that are read. Others are passed over, as Go does.
    fn near_misses(&mut self, object: &Map<String, Value>, within: &str, known: &[&str]) {
        let strange = |field: &&String| !known.iter().any(|known| known.eq_ignore_ascii_case(field));
        for field in object.keys().filter(strange) {
            if let Some(near) = suggest::nearest(field, known.iter().copied()) {
                let mend = format!("did you mean {near}?");
                self.wrong(format!("{within}{field}"), "", "no such field", &mend);
            }
        }
    }

    /// Does the scheduler choose the topology?
    fn auto(&mut self, switches: &Switches) -> bool {
        for (value, path) in switches.iter().filter(|(value, _)| !matches!(value, 0 | 1)) {
            let mend = "write 1 (the scheduler chooses the topology) or 0 (the requests are binding)";
            self.wrong(path.clone(), &value.to_string(), "is not a valid value of the topology switch", mend);
        }
        if let (Some(path), true) = (switches.get(&0), switches.contains_key(&1)) {
            self.wrong(path.clone(), "0 and 1", "contradicts itself", "write it once, in the pod's requests");
        }
        !switches.contains_key(&0)
    }

    fn wrong(&mut self, within: String, value: &str, problem: &str, mend: &str) {
        let field = Field::within(self.key, within);
        self.mistakes.push(match value {
            "" => Mistake::at(DIALECT, field, problem, mend),
            value => Mistake::about(DIALECT, field, value, problem, mend),
        });
    }

    /// The containers listed under `field`.
    fn containers(&mut self, info: &Map<String, Value>, field: &str) -> BTreeMap<String, Map<String, Value>> {
        let mut found = BTreeMap::new();
        match get(info, field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    match value {
                        Value::Object(info) => {
                            found.insert(name.clone(), info.clone());
                        }
                        Value::Null => {}
                        other => self.wrong(
                            format!("{field}.{name}"),
                            &other.to_string(),
                            "is not an object",
                            r#"write {"requests": {...}}"#,
                        ),
                    }
                }
            }
            Some(other) => self.wrong(
                field.into(),
                &other.to_string(),
                "is not an object",
                "write container names with their requests",
            ),
        }
        found
    }

    fn numbers<'v>(&mut self, map: Option<&'v Value>, within: &str) -> Vec<(&'v str, i64)> {
        let mut numbers = Vec::new();
        match map {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    match value.as_i64() {
                        Some(number) => numbers.push((name.as_str(), number)),
                        None => {
                            let mend = meant(value).map_or_else(
                                || "write a number without quotes".to_owned(),
                                |number| {
                                    format!("write {number}: a whole number without quotes or unit, memory in bytes")
                                },
                            );
                            let path = format!("{within}.{name}");
                            self.wrong(path, &value.to_string(), "is not a whole number", &mend);
                        }
                    }
                }
            }
            Some(other) => {
                self.wrong(within.into(), &other.to_string(), "is not an object", "write names with numbers")
            }
        }
        numbers
    }

    /// The topology switch, where it stands among `requests`.
    fn switch(&mut self, requests: Option<&Value>, within: &str, switches: &mut Switches) {
        for (name, value) in self.numbers(requests, within) {
            if !self.is_switch(name, value, within, switches) {
                self.near_switch(name, within);
            }
        }
    }

    /// Notes the value where the name is that of the topology switch.
    fn is_switch(&mut self, name: &str, value: i64, within: &str, switches: &mut Switches) -> bool {
        let found = SWITCHES.contains(&name);
        if found {
            switches.entry(value).or_insert_with(|| format!("{within}.{name}"));
        }
        found
    }

    /// A name that is nearly that of the switch is a slip; any other may be somebody else's.
    fn near_switch(&mut self, name: &str, within: &str) {
        if let Some(near) = suggest::nearest(name, SWITCHES) {
            self.wrong(format!("{within}.{name}"), "", "no such request", &format!("did you mean {near}?"));
        }
    }

    fn container(&mut self, info: &Map<String, Value>, within: &str, switches: &mut Switches) -> Spelled {
        self.near_misses(info, &format!("{within}."), &CONTAINER_FIELDS);
        let mut spelled = Spelled::default();
        let path = format!("{within}.requests");
        for (text, amount) in self.numbers(get(info, "requests"), &path) {
            let here = || format!("{path}.{text}");
            if self.is_switch(text, amount, &path, switches) {
                continue;
            }
            if text == keys::VGPU_COUNT || text == keys::KUBEGPU_COUNT_2018 {
                match u64::try_from(amount) {
                    Ok(count) => spelled.count = spelled.count.max(count),
                    Err(_) => self.wrong(here(), &amount.to_string(), "is negative", "write a number of GPUs"),
                }
                continue;
            }
            let Some(rest) = without_prefix(text) else {
                self.near_switch(text, &path);
                continue;
            };
            let Some(name) = Name::read(rest) else {
                let mend = format!(
                    "write {}/gpugrp1/A/gpugrp0/B/gpu/0/cards: kinds and labels in turn, then the quantity",
                    keys::KUBEGPU_GROUP
                );
                self.wrong(here(), "", "is not a hierarchical name", &mend);
                continue;
            };
            let Some(device) = name.device().filter(|_| name.is_of_a_tree()) else {
                let mend = format!(
                    "write {}/gpugrp1/A/gpugrp0/B/gpu/0/{}; gpugrp1/A and gpugrp0/B may be left out",
                    keys::KUBEGPU_GROUP,
                    name.quantity
                );
                self.wrong(here(), "", "names no GPU in groups that nodes have", &mend);
                continue;
            };
            if amount == 0 {
                continue; // nothing is asked for
            }
            if amount < 0 && !name.is_enum() {
                self.wrong(here(), &amount.to_string(), "is negative", "write 0 or more");
                continue;
            }
            if name.quantity == "cards" && amount > 1 {
                self.wrong(
                    here(),
                    &amount.to_string(),
                    "asks for one device several times",
                    "write 1 card for each device, under its own label",
                );
                continue;
            }
            // Memory or bits without cards booked them on a card that the container never saw; the card is meant.
            spelled.requests.insert(format!("{device}/cards"), 1);
            spelled.devices.insert(device);
            spelled.requests.insert(name.to_string(), amount);
        }
        for (text, scorer) in self.numbers(get(info, "scorer"), &format!("{within}.scorer")) {
            let Some(name) = without_prefix(text).and_then(Name::read) else { continue };
            match i32::try_from(scorer) {
                Ok(scorer) => {
                    spelled.scorers.insert(name.to_string(), scorer);
                }
                Err(_) => self.wrong(
                    format!("{within}.scorer.{text}"),
                    &scorer.to_string(),
                    "is not a scorer",
                    "write 0, 1 or 2",
                ),
            }
        }
        spelled
    }
}

//! KubeGPU: a JSON annotation that names devices in a tree, beside the count in a container's resources. Whole GPUs only.
//!
//! The annotation is what makes a pod KubeGPU's: `nvidia.com/gpu` alone is read by the vGPU dialects. The names of 2018 are turned into
//! those of 2019. Where KubeGPU passed over a user's words (a topology switch at container level, as its README shows it; memory without
//! cards), they count here.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, GroupAsk, Role};
use divvy_core::keys;
use divvy_core::kubegpu::{Name, without_prefix};
use serde_json::{Map, Value};

use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};
use crate::suggest;

const DIALECT: Dialect = Dialect::Kubegpu;
const MOST_DEVICES: u64 = 1024;

/// The annotation in use, if any.
pub(crate) fn annotation_key(pod: &PodManifest<'_>) -> Option<&'static str> {
    [keys::KUBEGPU_DEVICE_INFO, keys::KUBEGPU_POD_2018].into_iter().find(|key| pod.annotation(key).is_some())
}

/// Reads the annotation and the counts.
pub(crate) fn read(pod: &PodManifest<'_>) -> Spoken {
    let key = annotation_key(pod);
    let old_count = pod.containers().iter().any(|container| container.names(keys::KUBEGPU_COUNT_2018));
    if key.is_none() && !old_count {
        return Spoken::Silent;
    }
    let mut mistakes = Vec::new();
    let key = key.unwrap_or(keys::KUBEGPU_DEVICE_INFO);
    let mut reader = Annotation { key, mistakes: &mut mistakes };
    let info = match pod.annotation(key) {
        None => Map::new(),
        Some(text) => match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(info)) => info,
            Ok(_) => return reader.refuse(&text, "is not a JSON object", r#"write {"runningcontainer": {...}}"#),
            Err(error) => {
                let problem = format!("is not JSON (line {}, column {})", error.line(), error.column());
                return reader.refuse(&text, &problem, "write one JSON object with quoted names");
            }
        },
    };
    let mut switches = BTreeSet::new();
    reader.switch(get(&info, "requests"), "requests", &mut switches);
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
            .map(|info| reader.container(info, &format!("{field}.{name}"), &mut switches))
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
    let auto = match switches.iter().copied().collect::<Vec<_>>().as_slice() {
        [] | [1] => true,
        [0] => false,
        [0, 1] => {
            reader.wrong(
                keys::KUBEGPU_TOPOLOGY.into(),
                "0 and 1",
                "contradicts itself",
                "write it once, in the pod's requests",
            );
            true
        }
        invalid => {
            let value = invalid.iter().map(i64::to_string).collect::<Vec<_>>().join(" and ");
            let mend = "write 1 (the scheduler chooses the topology) or 0 (the requests are binding)";
            reader.wrong(keys::KUBEGPU_TOPOLOGY.into(), &value, "is not a valid value of the topology switch", mend);
            true
        }
    };
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
    fn refuse(self, text: &str, problem: &str, mend: &str) -> Spoken {
        Spoken::from(None, DIALECT, vec![Mistake::about(DIALECT, Field::annotation(self.key), text, problem, mend)])
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
                        None => self.wrong(
                            format!("{within}.{name}"),
                            &value.to_string(),
                            "is not a whole number",
                            "write a number without quotes",
                        ),
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
    fn switch(&mut self, requests: Option<&Value>, within: &str, switches: &mut BTreeSet<i64>) {
        for (name, value) in self.numbers(requests, within) {
            if name == keys::KUBEGPU_TOPOLOGY || name == keys::KUBEGPU_TOPOLOGY_2018 {
                switches.insert(value);
            }
        }
    }

    fn container(&mut self, info: &Map<String, Value>, within: &str, switches: &mut BTreeSet<i64>) -> Spelled {
        let mut spelled = Spelled::default();
        let path = format!("{within}.requests");
        for (text, amount) in self.numbers(get(info, "requests"), &path) {
            let here = || format!("{path}.{text}");
            if text == keys::KUBEGPU_TOPOLOGY || text == keys::KUBEGPU_TOPOLOGY_2018 {
                switches.insert(amount);
                continue;
            }
            if text == keys::VGPU_COUNT || text == keys::KUBEGPU_COUNT_2018 {
                match u64::try_from(amount) {
                    Ok(count) => spelled.count = spelled.count.max(count),
                    Err(_) => self.wrong(here(), &amount.to_string(), "is negative", "write a number of GPUs"),
                }
                continue;
            }
            let Some(rest) = without_prefix(text) else { continue };
            let Some(name) = Name::read(rest) else {
                let mend = format!(
                    "write {}/gpugrp1/A/gpugrp0/B/gpu/0/cards: kinds and labels in turn, then the quantity",
                    keys::KUBEGPU_GROUP
                );
                self.wrong(here(), "", "is not a hierarchical name", &mend);
                continue;
            };
            if name.is_enum() {
                spelled.requests.insert(name.to_string(), amount);
                continue;
            }
            if amount < 0 {
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
            if amount > 0
                && let Some(device) = name.device()
            {
                // Memory without cards booked memory on a card that the container never saw; the card is meant.
                spelled.requests.insert(format!("{device}/cards"), 1);
                spelled.devices.insert(device);
            }
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

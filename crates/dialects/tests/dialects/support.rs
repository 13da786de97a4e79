//! Pods in a few words, and readings taken apart.

use std::collections::BTreeSet;

use divvy_core::ask::{DeviceAsk, GpuAsk, MemoryAsk};
use divvy_core::device::{Device, Inventory, Isolation, MemoryUnit};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::units::Bytes;
use divvy_dialects::emulate::Place;
use divvy_dialects::{DialectConfig, Field, Hints, Mistake, PodManifest, Reading, parse, sentence};
use divvy_dialects::{Emulation, emulate};
use serde_json::{Value, json};

/// A pod under construction.
#[derive(Clone, Debug)]
pub(crate) struct Pod(pub(crate) Value);

/// A pod with one container `main` that asks for `resources` in its limits.
pub(crate) fn pod(resources: &[(&str, &str)]) -> Pod {
    bare().container("main", resources)
}

/// A pod without containers.
pub(crate) fn bare() -> Pod {
    Pod(
        json!({ "kind": "Pod", "metadata": { "name": "p", "labels": {}, "annotations": {} }, "spec": { "containers": [] } }),
    )
}

impl Pod {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Pod {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Pod {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    pub(crate) fn container(self, name: &str, resources: &[(&str, &str)]) -> Pod {
        self.add("containers", name, resources)
    }

    pub(crate) fn init(self, name: &str, resources: &[(&str, &str)]) -> Pod {
        self.add("initContainers", name, resources)
    }

    pub(crate) fn sidecar(self, name: &str, resources: &[(&str, &str)]) -> Pod {
        let mut pod = self.add("initContainers", name, resources);
        pod.last("initContainers")["restartPolicy"] = "Always".into();
        pod
    }

    fn add(mut self, list: &str, name: &str, resources: &[(&str, &str)]) -> Pod {
        let limits: Value = resources
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let spec = self.0["spec"].as_object_mut().unwrap();
        let containers = spec.entry(list).or_insert_with(|| json!([])).as_array_mut().unwrap();
        containers.push(json!({ "name": name, "image": "x", "resources": { "limits": limits } }));
        self
    }

    fn last(&mut self, list: &str) -> &mut Value {
        self.0["spec"][list].as_array_mut().unwrap().last_mut().unwrap()
    }

    /// Sets a field of the last ordinary container.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Pod {
        self.last("containers")[field] = value;
        self
    }

    pub(crate) fn env(self, name: &str, value: &str) -> Pod {
        self.with("env", json!([{ "name": name, "value": value }]))
    }

    pub(crate) fn spec(mut self, field: &str, value: Value) -> Pod {
        self.0["spec"][field] = value;
        self
    }

    pub(crate) fn read(&self) -> Reading {
        self.read_with(&DialectConfig::default())
    }

    pub(crate) fn read_with(&self, config: &DialectConfig) -> Reading {
        parse(&PodManifest::new(&self.0), config)
    }

    pub(crate) fn ask(&self) -> GpuAsk {
        ask(self.read()).0
    }

    pub(crate) fn ask_with(&self, config: &DialectConfig) -> GpuAsk {
        ask(self.read_with(config)).0
    }

    pub(crate) fn hints(&self) -> Hints {
        ask(self.read()).1
    }

    /// The only want of the only container.
    pub(crate) fn want(&self) -> DeviceAsk {
        only_want(&self.ask())
    }

    pub(crate) fn mistakes(&self) -> Vec<Mistake> {
        mistakes(self.read())
    }

    pub(crate) fn mistakes_with(&self, config: &DialectConfig) -> Vec<Mistake> {
        mistakes(self.read_with(config))
    }

    /// All mistakes in one text.
    pub(crate) fn refusal(&self) -> String {
        sentence(&self.mistakes())
    }
}

pub(crate) fn only_want(ask: &GpuAsk) -> DeviceAsk {
    assert_eq!(ask.containers.len(), 1, "{ask:?}");
    assert_eq!(ask.containers[0].wants.len(), 1, "{ask:?}");
    ask.containers[0].wants[0].clone()
}

pub(crate) fn ask(reading: Reading) -> (GpuAsk, Hints) {
    match reading {
        Reading::Ask(ask, hints) => (*ask, hints),
        Reading::Refused(mistakes) => panic!("refused: {}", sentence(&mistakes)),
        Reading::NotOurs => panic!("asks for nothing"),
    }
}

pub(crate) fn mistakes(reading: Reading) -> Vec<Mistake> {
    match reading {
        Reading::Refused(mistakes) => mistakes,
        other => panic!("not refused: {other:?}"),
    }
}

/// The keys of the fields that are wrong.
pub(crate) fn wrong_keys(mistakes: &[Mistake]) -> Vec<&str> {
    mistakes
        .iter()
        .map(|mistake| match &mistake.field {
            Field::Label(key) | Field::Annotation { key, .. } | Field::Resource { key, .. } => key.as_str(),
            Field::Env { name, .. } => name,
            Field::Spec(path) => path,
        })
        .collect()
}

/// A node with these cards, each `(id, MiB)`.
pub(crate) fn node(cards: &[(&str, u64)]) -> Inventory {
    let device =
        |(index, (id, mib)): (usize, &(&str, u64))| Device::gpu(*id, index as u32, "NVIDIA-V100", Bytes::mib(*mib));
    Inventory {
        v: Inventory::VERSION,
        generation: 1,
        devices: cards.iter().enumerate().map(device).collect(),
        memory_unit: MemoryUnit::GiB,
        agent: "0.1.0".into(),
        driver: "550.54.15".into(),
        ..Inventory::default()
    }
}

/// Grants each container the devices named for it, with exactly what it asked for.
pub(crate) fn grant(ask: &GpuAsk, inventory: &Inventory, devices: &[&[&str]]) -> Grant {
    let containers = ask.containers.iter().zip(devices).map(|(container, ids)| {
        let wants = container.wants.iter().flat_map(|want| std::iter::repeat_n(want, want.count as usize));
        let slices = wants.zip(*ids).map(|(want, id)| {
            let device = inventory.devices.iter().find(|device| device.id.as_str() == *id).unwrap();
            let absolute = |memory: MemoryAsk| match memory {
                MemoryAsk::Nothing => Bytes::ZERO,
                MemoryAsk::Bytes(bytes) => bytes,
                MemoryAsk::Part(part) => device.bookable_memory().thousandths(part),
                MemoryAsk::NodeUnits(units) => inventory.memory_unit.of(units),
            };
            let memory = absolute(want.memory);
            Slice {
                device: (*id).into(),
                kind: want.kind,
                memory,
                memory_limit: want.memory_limit.map_or(memory, absolute).max(memory),
                share: want.share,
                share_limit: want.share_limit,
                exclusive: want.exclusive,
                isolation: Isolation::Intercept,
                partition: None,
            }
        });
        ContainerGrant { name: container.name.clone(), role: container.role, slices: slices.collect() }
    });
    Grant {
        v: Grant::VERSION,
        at: 1_700_000_000_123,
        policy: "frag".into(),
        containers: containers.collect(),
        claim: None,
    }
}

impl Pod {
    /// The pod as the API server knows it.
    pub(crate) fn named(mut self, namespace: &str, name: &str, uid: &str) -> Pod {
        for (field, value) in [("namespace", namespace), ("name", name), ("uid", uid)] {
            self.0["metadata"][field] = value.into();
        }
        self
    }

    /// What its users find once it is bound to these devices of node `n1`.
    pub(crate) fn bound(
        &self,
        config: &DialectConfig,
        inventory: &Inventory,
        devices: &[&[&str]],
        ports_taken: &[u16],
    ) -> Emulation {
        let ask = self.ask_with(config);
        let grant = grant(&ask, inventory, devices);
        let ports_taken: BTreeSet<u16> = ports_taken.iter().copied().collect();
        let place = Place { node: "n1", inventory, ports_taken: &ports_taken };
        emulate(&PodManifest::new(&self.0), &ask, &grant, &place)
    }
}

/// An emulation as a text that can be compared at a glance.
pub(crate) fn shown(emulation: &Emulation) -> String {
    let mut out = String::new();
    for (key, value) in &emulation.annotations {
        out += &format!("annotation {key}={value}\n");
    }
    for (key, value) in &emulation.started {
        out += &format!("started    {key}={value}\n");
    }
    for (container, promised) in &emulation.containers {
        out += &format!("container {container}\n");
        for (key, value) in &promised.env {
            out += &format!("  env {key}={value}\n");
        }
        for mount in &promised.mounts {
            out += &format!(
                "  mount {} <- {:?}{}\n",
                mount.path,
                mount.source,
                if mount.read_only { " (ro)" } else { "" }
            );
        }
        for file in &promised.files {
            out += &format!("  file {} ({} bytes)\n", file.path, file.content.len());
        }
    }
    out
}

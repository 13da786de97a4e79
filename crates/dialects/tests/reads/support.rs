//! Pods in a few words, and readings taken apart.

use divvy_core::ask::{DeviceAsk, GpuAsk};
use divvy_dialects::{DialectConfig, Field, Hints, Mistake, PodManifest, Reading, parse, sentence};
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

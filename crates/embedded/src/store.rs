//! What an API server does for the control plane, in memory: objects with versions, admission by the webhook's functions, one
//! write per effect, and everything that changes told as [`Change`]s.

mod admission;
mod effects;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use divvy_api::reader::PodReader;
use divvy_api::{convert, wire};
use divvy_cluster::change::{Change, Kind};
use divvy_cluster::effect::Target;
use divvy_core::ask::Class;
use divvy_core::device::Inventory;
use divvy_core::id::{Namespace, NodeName, PodKey, PodUid};
use divvy_core::keys;
use divvy_core::time::Time;
use divvy_webhook::Settings;
use serde_json::{Value, json};

pub use admission::Refused;

/// Events remembered.
const TOLD: usize = 500;

/// Something people were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Time,
    /// About whom: `namespace/pod`, or a node.
    pub about: String,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Bad news.
    pub warning: bool,
}

/// A handle on the store. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Embedded(Arc<Mutex<Store>>);

impl Embedded {
    /// The store itself, until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects.
#[derive(Debug, Default)]
pub struct Store {
    now: Time,
    version: u64,
    pods: BTreeMap<PodUid, Value>,
    names: BTreeMap<PodKey, PodUid>,
    nodes: BTreeMap<String, Value>,
    namespaces: BTreeMap<String, Value>,
    /// What admission is told by the policy.
    pub settings: Settings,
    /// What budgets say about namespaces.
    classes: BTreeMap<Namespace, Class>,
    reader: PodReader,
    changes: Vec<Change>,
    told: VecDeque<Told>,
    /// How many things people were told so far.
    tellings: u64,
    binds: u64,
}

impl Store {
    /// It is this time now.
    pub fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    /// Pods of a namespace that say nothing about it are admitted in this class.
    pub fn set_class(&mut self, namespace: &Namespace, class: Class) {
        self.classes.insert(namespace.clone(), class);
    }

    /// What changed since this was last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Says of every kind that all there is of it was told.
    pub fn complete(&mut self) {
        self.changes.extend(Kind::ALL.map(|kind| Change::Complete(kind, u64::MAX)));
    }

    /// What people were told after the first so many tellings, as far as it is remembered, and how many there were by now.
    pub fn told_since(&self, tellings: u64) -> (Vec<Told>, u64) {
        let fresh = self.tellings.saturating_sub(tellings).min(self.told.len() as u64) as usize;
        (self.told.iter().skip(self.told.len() - fresh).cloned().collect(), self.tellings)
    }

    /// How many pods there are.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// All pods, as they are stored.
    pub fn all_pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.values()
    }

    /// How many pods were bound so far.
    pub fn binds(&self) -> u64 {
        self.binds
    }

    /// A node as it is stored.
    pub fn node(&self, name: &str) -> Option<&Value> {
        self.nodes.get(name)
    }

    /// Makes a namespace with these labels, if there is none of that name.
    pub fn ensure_namespace(&mut self, name: &str, labels: Value) {
        if self.namespaces.contains_key(name) {
            return;
        }
        let told = labels.as_object().into_iter().flatten();
        let told = told.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect();
        self.namespaces.insert(name.to_owned(), labels);
        self.changes.push(Change::Namespace(Namespace::from(name), told));
    }

    /// Stores a node.
    pub fn put_node(&mut self, node: Value) {
        let Ok(read) = serde_json::from_value::<wire::Node>(node.clone()) else { return };
        self.nodes.insert(read.metadata.name.clone(), node);
        let (node, problem) = convert::node(read);
        self.changes.push(Change::Node(Box::new(node), problem));
    }

    /// Changes what a node's agent says about its devices.
    pub fn change_inventory(&mut self, node: &str, change: impl FnOnce(&mut Inventory)) {
        let Some(mut object) = self.nodes.get(node).cloned() else { return };
        let annotation = &mut object["metadata"]["annotations"][keys::INVENTORY];
        let Some(mut inventory) = annotation.as_str().and_then(|text| serde_json::from_str::<Inventory>(text).ok())
        else {
            return;
        };
        change(&mut inventory);
        inventory.generation += 1;
        *annotation = Value::from(crate::fleet::text(&inventory));
        self.put_node(object);
    }

    /// A kubelet started a pod.
    pub fn start(&mut self, uid: &PodUid) {
        let now = stamp(self.now);
        self.change_pod(uid, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["startTime"] = json!(now);
            condition(pod, json!({"type": "Ready", "status": "True", "lastTransitionTime": now}));
        });
    }

    /// A pod ended, or is no more.
    pub fn remove(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.names.remove(&key(&pod));
        self.version += 1;
        self.changes.push(Change::PodGone(uid.clone()));
    }

    /// Somebody deletes a pod: one that has a node has time to end.
    pub fn delete(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get(uid) else { return };
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            return self.remove(uid);
        }
        let now = stamp(self.now);
        self.change_pod(uid, |pod| {
            let deleted = &mut pod["metadata"]["deletionTimestamp"];
            if deleted.is_null() {
                *deleted = json!(now);
            }
        });
    }

    /// Tells people something.
    pub fn tell(&mut self, about: String, reason: &str, message: String, warning: bool) {
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        self.tellings += 1;
        self.told.push_back(Told { at: self.now, about, reason: reason.to_owned(), message, warning });
    }

    /// Finds the pod that is meant, and no other that has taken its name since.
    fn find(&self, target: &Target) -> Option<&Value> {
        self.pods.get(&target.uid)
    }

    fn change_pod(&mut self, uid: &PodUid, change: impl FnOnce(&mut Value)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        change(pod);
        self.version += 1;
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let pod = pod.clone();
        self.announce(pod);
    }

    fn announce(&mut self, pod: Value) {
        match serde_json::from_value::<wire::Pod>(pod) {
            Ok(pod) => self.changes.push(Change::Pod(Box::new(self.reader.read(pod)))),
            Err(error) => self.tell("the store".into(), "Unreadable", error.to_string(), true),
        }
    }
}

/// Sets the condition of that type.
fn condition(pod: &mut Value, condition: Value) {
    let status = &mut pod["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|other| other["type"] != condition["type"]);
        conditions.push(condition);
    }
}

fn key(pod: &Value) -> PodKey {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    PodKey::new(text("namespace"), text("name"))
}

/// A moment as the API spells it.
fn stamp(at: Time) -> String {
    let at = i64::try_from(at.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.unwrap_or_default().to_string()
}

/// The node of that name, as the core names it.
pub(crate) fn node_name(name: &str) -> NodeName {
    NodeName::from(name)
}

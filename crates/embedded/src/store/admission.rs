//! How a pod gets in: what the API server does to every pod, and what the webhook says to it.

use divvy_api::admission::{Request, Verdict};
use divvy_cluster::effect::Target;
use divvy_core::id::PodUid;
use divvy_webhook::admit;
use serde_json::{Value, json};

use super::{Store, key, stamp};

/// The cluster's PriorityClasses.
const PRIORITIES: &[(&str, i32)] = &[("production", 1000), ("research", 100), ("", 0)];

/// A pod that was not let in, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// What is wrong, all of it.
    pub message: String,
}

impl Store {
    /// Somebody creates a pod.
    pub fn create(&mut self, mut pod: Value) -> Result<Target, Refused> {
        self.prepare(&mut pod);
        let key = key(&pod);
        let refused = |message: String| Refused { pod: key.to_string(), message };
        if key.name.is_empty() {
            return Err(refused("metadata.name or metadata.generateName is required".into()));
        }
        if self.names.contains_key(&key) {
            return Err(refused(format!("pods {:?} already exists", key.name)));
        }
        self.ensure_namespace(key.namespace.as_str(), json!({}));
        let labels = self.namespaces.get(key.namespace.as_str()).cloned().unwrap_or(Value::Null);
        let mut settings = self.settings.clone();
        settings.class = self.classes.get(&key.namespace).copied().unwrap_or(settings.class);
        let decided = admit::mutate(&review(&pod), &pod, &labels, &settings);
        let patch = match decided {
            Verdict::Deny { message, .. } => return Err(refused(message)),
            Verdict::Allow { patch, .. } => patch,
        };
        let patch = serde_json::from_value::<json_patch::Patch>(Value::Array(patch));
        let applied =
            patch.map_err(|e| e.to_string()).and_then(|p| json_patch::patch(&mut pod, &p).map_err(|e| e.to_string()));
        applied.map_err(|e| refused(format!("the webhook's patch does not apply: {e}")))?;
        if let Verdict::Deny { message, .. } = admit::validate(&review(&pod), &pod, &labels, &settings) {
            return Err(refused(message));
        }
        let target =
            Target { pod: key.clone(), uid: PodUid::from(pod["metadata"]["uid"].as_str().unwrap_or_default()) };
        self.names.insert(key, target.uid.clone());
        self.pods.insert(target.uid.clone(), pod.clone());
        self.announce(pod);
        Ok(target)
    }

    /// What the API server fills in.
    fn prepare(&mut self, pod: &mut Value) {
        self.version += 1;
        let (version, now) = (self.version, stamp(self.now));
        let meta = &mut pod["metadata"];
        if meta["namespace"].is_null() {
            meta["namespace"] = json!("default");
        }
        if let (Some(start), true) = (meta["generateName"].as_str(), meta["name"].is_null()) {
            meta["name"] = json!(format!("{start}{}", suffix(version)));
        }
        meta["uid"] = json!(format!("00000000-0000-4000-8000-{version:012x}"));
        meta["resourceVersion"] = json!(version.to_string());
        meta["creationTimestamp"] = json!(now);
        let spec = &mut pod["spec"];
        if spec["schedulerName"].is_null() {
            spec["schedulerName"] = json!(divvy_core::keys::DEFAULT_SCHEDULER);
        }
        let class = spec["priorityClassName"].as_str().unwrap_or_default();
        if let Some((_, value)) = PRIORITIES.iter().find(|(name, _)| *name == class) {
            spec["priority"] = json!(value);
        }
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                let resources = &mut container["resources"];
                for amounts in ["limits", "requests"] {
                    resources[amounts].as_object_mut().into_iter().flatten().for_each(|(_, amount)| spell(amount));
                }
                let limits = resources["limits"].as_object().cloned().unwrap_or_default();
                for (name, amount) in limits {
                    let request = &mut resources["requests"][name];
                    if request.is_null() {
                        *request = amount;
                    }
                }
            }
        }
        pod["status"] = json!({"phase": "Pending"});
    }
}

/// A number is an amount too, and is stored as text.
fn spell(amount: &mut Value) {
    if amount.is_number() {
        *amount = json!(amount.to_string());
    }
}

/// The letters the API server makes names with, which spell no words.
fn suffix(mut number: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |_| {
        let letter = LETTERS[(number % LETTERS.len() as u64) as usize];
        number = number / LETTERS.len() as u64 + 7;
        char::from(letter)
    };
    (0..5).map(letter).collect()
}

/// The question the API server asks a webhook about a pod that is created.
fn review(pod: &Value) -> Request {
    Request {
        uid: "embedded".into(),
        operation: "CREATE".into(),
        namespace: pod["metadata"]["namespace"].as_str().unwrap_or_default().into(),
        name: pod["metadata"]["name"].as_str().unwrap_or_default().into(),
        kind: divvy_api::admission::Kind { group: String::new(), kind: "Pod".into() },
        sub_resource: String::new(),
        user_info: Default::default(),
    }
}

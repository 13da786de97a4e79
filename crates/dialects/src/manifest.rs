//! A pod's raw JSON, looked at without trusting its shape: a field of the wrong type is a field that is not there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use divvy_core::ask::{Dialect, Role};
use divvy_core::keys;
use serde_json::{Map, Value};

use crate::mistake::{Field, Mistake};
use crate::quantity::{self, Misread};

/// A pod as it was written, or the pod template of a workload.
#[derive(Clone, Debug)]
pub struct PodManifest<'a> {
    pod: &'a Value,
    namespace_labels: Option<&'a Value>,
}

impl<'a> PodManifest<'a> {
    /// The pod in `json`: an object with `metadata` and `spec`.
    pub fn new(json: &'a Value) -> PodManifest<'a> {
        PodManifest { pod: json, namespace_labels: None }
    }

    /// The same pod, its namespace's labels known too (a JSON object of strings): some dialects are switched off by one.
    pub fn with_namespace_labels(self, labels: &'a Value) -> PodManifest<'a> {
        PodManifest { namespace_labels: Some(labels), ..self }
    }

    /// Is this a pod at all? A template has no kind; a Deployment or a Job has another one, and its pods come later.
    pub(crate) fn is_pod(&self) -> bool {
        matches!(self.pod.get("kind").and_then(Value::as_str), None | Some("Pod" | keys::KUBESHARE1_KIND))
    }

    /// A field of the metadata that is one word: its name, namespace or uid.
    pub(crate) fn identity(&self, field: &str) -> &'a str {
        self.pod.pointer(&format!("/metadata/{field}")).and_then(Value::as_str).unwrap_or_default()
    }

    /// The scheduler the pod names.
    pub fn scheduler_name(&self) -> Option<&'a str> {
        self.spec("schedulerName")?.as_str()
    }

    /// The node the pod is already on, or was written for.
    pub(crate) fn node_name(&self) -> Option<&'a str> {
        self.spec("nodeName")?.as_str().filter(|name| !name.is_empty())
    }

    /// Does the pod see its node's processes?
    pub(crate) fn has_host_pid(&self) -> bool {
        self.spec("hostPID") == Some(&Value::Bool(true))
    }

    /// The volumes that are folders of the node: their names and paths.
    pub(crate) fn host_paths(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let volumes = self.spec("volumes").and_then(Value::as_array).into_iter().flatten();
        volumes.filter_map(|volume| {
            let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
            Some((name, volume.pointer("/hostPath/path")?.as_str()?))
        })
    }

    /// A field of the spec.
    pub(crate) fn spec(&self, field: &str) -> Option<&'a Value> {
        self.pod.get("spec")?.get(field)
    }

    /// A label's value.
    pub(crate) fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.metadata("labels")?.get(key)?)
    }

    /// Does the pod or its namespace have this label with this value? Another value on one does not take back what the other says.
    pub(crate) fn is_labelled_here_or_on_namespace(&self, key: &str, value: &str) -> bool {
        let on_namespace = || text(self.namespace_labels?.get(key)?);
        self.label(key).as_deref() == Some(value) || on_namespace().as_deref() == Some(value)
    }

    /// An annotation's value.
    pub(crate) fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.metadata("annotations")?.get(key)?)
    }

    /// The labels' names.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &'a str> {
        self.metadata("labels").into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// The annotations' names.
    pub(crate) fn annotation_keys(&self) -> impl Iterator<Item = &'a str> {
        self.metadata("annotations").into_iter().flat_map(Map::keys).map(String::as_str)
    }

    fn metadata(&self, field: &str) -> Option<&'a Map<String, Value>> {
        self.pod.get("metadata")?.get(field)?.as_object()
    }

    /// All containers that may hold a device: init containers first, in pod order.
    pub(crate) fn containers(&self) -> Vec<Container<'a>> {
        let list = |field| self.spec(field).and_then(Value::as_array).into_iter().flatten();
        let init = list("initContainers").enumerate().map(|(index, json)| {
            let stays = json.get("restartPolicy").and_then(Value::as_str) == Some("Always");
            Container { json, index, role: if stays { Role::Sidecar } else { Role::Init } }
        });
        let main = list("containers").enumerate().map(|(index, json)| Container { json, index, role: Role::Main });
        init.chain(main).collect()
    }
}

/// A string, or a scalar somebody forgot to quote.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Null => None,
        other => Some(Cow::Owned(other.to_string())),
    }
}

/// One container of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Container<'a> {
    json: &'a Value,
    /// Its place in its own list.
    pub(crate) index: usize,
    /// When it runs.
    pub(crate) role: Role,
}

impl<'a> Container<'a> {
    /// Its name; a container without one is called by its place.
    pub(crate) fn name(&self) -> Cow<'a, str> {
        match self.json.get("name").and_then(Value::as_str) {
            Some(name) => Cow::Borrowed(name),
            None if self.role == Role::Main => Cow::Owned(format!("containers[{}]", self.index)),
            None => Cow::Owned(format!("initContainers[{}]", self.index)),
        }
    }

    /// Does it run with every right on the node?
    pub(crate) fn is_privileged(&self) -> bool {
        self.json.pointer("/securityContext/privileged") == Some(&Value::Bool(true))
    }

    /// The first of the capabilities it adds that lets it mount.
    pub(crate) fn right_to_mount(&self) -> Option<&'a str> {
        let added = self.json.pointer("/securityContext/capabilities/add")?.as_array()?;
        added.iter().filter_map(Value::as_str).find(|name| {
            let name = name.to_ascii_uppercase();
            matches!(name.strip_prefix("CAP_").unwrap_or(&name), "SYS_ADMIN" | "ALL")
        })
    }

    /// The value of an environment variable; the last one wins, as it does in the container.
    pub(crate) fn env(&self, name: &str) -> Option<Cow<'a, str>> {
        let entries = self.json.get("env")?.as_array()?;
        let entry = entries.iter().rev().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?;
        Some(entry.get("value").and_then(text).unwrap_or_default())
    }

    /// What runs right after it has started.
    pub(crate) fn post_start(&self) -> Option<&'a Value> {
        self.json.pointer("/lifecycle/postStart").filter(|hook| !hook.is_null())
    }

    /// The names of everything it asks for, in limits and requests.
    pub(crate) fn resource_keys(&self) -> BTreeSet<&'a str> {
        ["limits", "requests"]
            .into_iter()
            .filter_map(|list| self.list(list))
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect()
    }

    /// Does it name this resource, with whatever value?
    pub(crate) fn names(&self, key: &str) -> bool {
        ["limits", "requests"].into_iter().any(|list| self.raw(list, key).is_some())
    }

    fn list(&self, list: &str) -> Option<&'a Map<String, Value>> {
        self.json.get("resources")?.get(list)?.as_object()
    }

    fn raw(&self, list: &str, key: &str) -> Option<&'a Value> {
        self.list(list)?.get(key).filter(|value| !value.is_null())
    }

    /// An amount as it stands in the manifest: the limit, or the request where there is no limit.
    pub(crate) fn written(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.raw("limits", key).or_else(|| self.raw("requests", key))?)
    }

    /// A whole number asked for: the limit, or the request where there is no limit. What is wrong with it goes to `mistakes`.
    pub(crate) fn amount(&self, key: &str, unit: &str, dialect: Dialect, mistakes: &mut Vec<Mistake>) -> Option<u64> {
        let name = self.name();
        let field = || Field::resource(&name, key);
        let written = match (self.raw("limits", key), self.raw("requests", key)) {
            (Some(limit), Some(request)) if !same_amount(limit, request) => {
                mistakes.push(Mistake::about(
                    dialect,
                    field(),
                    &format!("{} and {}", shown(limit), shown(request)),
                    "limit and request differ",
                    "set the limit only, Kubernetes copies it to the request",
                ));
                return None;
            }
            (Some(value), _) | (None, Some(value)) => shown(value),
            (None, None) => return None,
        };
        match quantity::whole(&written) {
            Ok(amount) => Some(amount),
            Err(misread) => {
                let problem = match misread {
                    Misread::Malformed => "is not a Kubernetes quantity",
                    Misread::Negative => "is negative",
                    Misread::Fraction => "is not a whole number",
                    Misread::TooLarge => "is larger than Kubernetes can hold",
                };
                mistakes.push(Mistake::about(dialect, field(), &written, problem, format!("write {unit}")));
                None
            }
        }
    }
}

fn same_amount(a: &Value, b: &Value) -> bool {
    match (quantity::whole(&shown(a)), quantity::whole(&shown(b))) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn shown(value: &Value) -> Cow<'_, str> {
    text(value).unwrap_or_default()
}

/// The pods a manifest file stands for: itself, or the template of a workload (Job, CronJob, Deployment, StatefulSet, ...), or each item
/// of a List.
pub fn pod_templates(object: &Value) -> Vec<&Value> {
    if let Some(items) = object.get("items").and_then(Value::as_array) {
        return items.iter().flat_map(pod_templates).collect();
    }
    if matches!(object.get("kind").and_then(Value::as_str), Some("Pod" | keys::KUBESHARE1_KIND)) {
        return vec![object];
    }
    let spec = object.get("spec");
    let template =
        spec.and_then(|s| s.get("template")).or_else(|| spec?.get("jobTemplate")?.get("spec")?.get("template"));
    template.into_iter().collect()
}

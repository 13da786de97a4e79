//! The decision about one pod, as a pure function of what the API server sent and what the policy says.

use divvy_api::admission::{Request, Verdict};
use divvy_core::ask::{Class, Dialect, GpuAsk};
use divvy_core::keys;
use divvy_dialects::{Hints, PodManifest, Reading, parse, sentence};
use serde_json::{Value, json};

use crate::patch::Patch;
use crate::settings::{PlacedBy, Settings};

/// What is done with a pod before it is stored: nothing, a patch, or a refusal that names every mistake.
pub fn mutate(request: &Request, pod: &Value, namespace_labels: &Value, settings: &Settings) -> Verdict {
    if !concerns_us(request) {
        return Verdict::allow();
    }
    match parse(&PodManifest::new(pod).with_namespace_labels(namespace_labels), &settings.dialects) {
        Reading::NotOurs => Verdict::allow(),
        Reading::Refused(mistakes) => Verdict::invalid(sentence(&mistakes)),
        Reading::Ask(ask, hints) => {
            // 4paradigm's webhook put its own scheduler in, whatever the pod named.
            let replaced = ask.dialect == Dialect::Vgpu;
            if let Some(message) = foreign_scheduler(pod, settings).filter(|_| !replaced) {
                return Verdict::invalid(message);
            }
            let standing = &settings.standing;
            if let Some(message) = standing.stopped.clone().or_else(|| standing.too_much(&request.namespace, &ask)) {
                return Verdict::forbidden(message);
            }
            Verdict::Allow { patch: patch(pod, &ask, &hints, settings).into_operations(), warnings: Vec::new() }
        }
    }
}

/// What is checked once every webhook has had its turn: that the pod is still what `mutate` made of it. A later webhook (or a user
/// who wrote our annotations by hand) that says otherwise is refused.
pub fn validate(request: &Request, pod: &Value, namespace_labels: &Value, settings: &Settings) -> Verdict {
    if !concerns_us(request) {
        return Verdict::allow();
    }
    match parse(&PodManifest::new(pod).with_namespace_labels(namespace_labels), &settings.dialects) {
        Reading::NotOurs => Verdict::allow(),
        Reading::Refused(mistakes) => Verdict::invalid(sentence(&mistakes)),
        Reading::Ask(ask, hints) => {
            // Between our two looks a budget may have run out or come back; the budget controller puts the class right.
            let settings = settings.with_class_of(pod);
            let missing = patch(pod, &ask, &hints, &settings).into_operations();
            // Nor is a member of a gang turned away whom a webhook of before labelled with nothing.
            let label = format!("/metadata/labels/{}", keys::GANG_MEMBER.replace('/', "~1"));
            let places: Vec<&str> =
                missing.iter().filter_map(|op| op["path"].as_str()).filter(|path| !label.starts_with(path)).collect();
            if places.is_empty() {
                return Verdict::allow();
            }
            Verdict::invalid(format!(
                "the pod was changed after Divvy's webhook read it: {} is not what its manifest asks for; \
                 another webhook must not touch these fields",
                places.join(", ")
            ))
        }
    }
}

/// Pods are read when they are created; what they ask for cannot change later.
pub fn concerns_us(request: &Request) -> bool {
    request.kind.kind == "Pod"
        && request.kind.group.is_empty()
        && request.sub_resource.is_empty()
        && request.operation == "CREATE"
}

/// A pod that asks for a device and names a scheduler that is none of ours would wait for a grant nobody writes.
fn foreign_scheduler(pod: &Value, settings: &Settings) -> Option<String> {
    let named = pod["spec"]["schedulerName"].as_str().unwrap_or_default();
    let ours = settings.placed_by.scheduler_name();
    if named.is_empty()
        || named == keys::DEFAULT_SCHEDULER
        || named == ours
        || settings.dialects.is_our_scheduler(named)
    {
        return None;
    }
    Some(format!(
        "spec.schedulerName is {named:?}, but only Divvy grants devices; leave schedulerName out \
         (or let the GpuPolicy list {named:?} among the scheduler aliases)"
    ))
}

fn patch(pod: &Value, ask: &GpuAsk, hints: &Hints, settings: &Settings) -> Patch {
    let mut patch = Patch::of(pod);
    patch.set(&["spec", "schedulerName"], json!(settings.placed_by.scheduler_name()));
    let annotate =
        |patch: &mut Patch, key: &str, value: &str| patch.set(&["metadata", "annotations", key], json!(value));
    annotate(&mut patch, keys::ASK, &serde_json::to_string(ask).unwrap_or_default());
    let class = class(ask, settings);
    annotate(&mut patch, keys::CLASS_NOW, class_name(class));
    priority_class(&mut patch, class, settings);
    for (key, value) in &hints.annotations {
        annotate(&mut patch, key, value);
    }
    for (container, slots) in &hints.slots {
        resource(&mut patch, pod, container.as_str(), keys::SLOT, u64::from(*slots));
    }
    for hint in &hints.resources {
        resource(&mut patch, pod, hint.container.as_str(), &hint.resource, hint.amount);
    }
    for hint in &hints.env {
        if let Some((list, index)) = place(pod, hint.container.as_str()) {
            let has = patch.object()["spec"][list][index]["env"]
                .as_array()
                .is_some_and(|env| env.iter().any(|e| e["name"] == hint.name.as_str()));
            if !has {
                let path = ["spec", list, &index.to_string(), "env"];
                patch.append(&path, json!({"name": hint.name, "value": hint.value}));
            }
        }
    }
    for hint in &hints.post_start {
        if let Some((list, index)) = place(pod, hint.container.as_str()) {
            let path = ["spec", list, &index.to_string(), "lifecycle", "postStart"];
            patch.set(&path, json!({"exec": {"command": hint.command}}));
        }
    }
    if ask.gang.is_some() {
        patch.set(&["metadata", "labels", keys::GANG_MEMBER], json!("true"));
        if matches!(settings.placed_by, PlacedBy::KubeScheduler { .. }) {
            gate(&mut patch);
        }
    }
    patch
}

/// Sets an extended resource of a container. Kubernetes wants request and limit alike, and copies neither to the other here.
fn resource(patch: &mut Patch, pod: &Value, container: &str, name: &str, amount: u64) {
    let Some((list, index)) = place(pod, container) else { return };
    let index = index.to_string();
    for kind in ["limits", "requests"] {
        let path = ["spec", list, &index, "resources", kind, name];
        // A number somebody wrote as a number is the same amount.
        let pointer = format!("/spec/{list}/{index}/resources/{kind}/{}", name.replace('~', "~0").replace('/', "~1"));
        let written = patch.object().pointer(&pointer);
        let same = written.is_some_and(|w| *w == json!(amount) || w.as_str() == Some(&amount.to_string()));
        if !same {
            patch.set(&path, json!(amount.to_string()));
        }
    }
}

/// The list a container stands in, and its place there.
fn place(pod: &Value, container: &str) -> Option<(&'static str, usize)> {
    ["containers", "initContainers"].into_iter().find_map(|list| {
        let index = pod["spec"][list].as_array()?.iter().position(|c| c["name"] == container)?;
        Some((list, index))
    })
}

/// A pod of a gang that kube-scheduler is to place waits until Divvy has found room for all of them.
fn gate(patch: &mut Patch) {
    let gates = patch.object()["spec"]["schedulingGates"].as_array();
    if !gates.is_some_and(|gates| gates.iter().any(|g| g["name"] == keys::GANG_GATE)) {
        patch.append(&["spec", "schedulingGates"], json!({"name": keys::GANG_GATE}));
    }
}

/// The class a pod starts with: the lesser of what its owner (or else the policy) says and what its namespace's budgets give.
fn class(ask: &GpuAsk, settings: &Settings) -> Class {
    let by_right = ask.class.unwrap_or(settings.class);
    settings.standing.class.map_or(by_right, |given| given.min(by_right))
}

/// A pod of a namespace whose budget names PriorityClasses gets one of them, once: a pod's priority cannot change later. One that
/// names another class keeps it.
fn priority_class(patch: &mut Patch, class: Class, settings: &Settings) {
    let Some(classes) = &settings.standing.priority_classes else { return };
    let named = patch.object()["spec"]["priorityClassName"].as_str().unwrap_or_default();
    if !named.is_empty() {
        return;
    }
    let name = if class == Class::Guarantee { &classes.in_budget } else { &classes.out_of_budget };
    // What the API server worked out of the class before is worked out anew after us.
    patch.remove(&["spec"], "priority");
    patch.remove(&["spec"], "preemptionPolicy");
    patch.set(&["spec", "priorityClassName"], json!(name));
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Guarantee => "guarantee",
        Class::Opportunistic => "opportunistic",
    }
}

#[cfg(test)]
mod tests;

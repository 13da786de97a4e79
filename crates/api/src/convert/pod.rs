//! Pods.

use std::sync::Arc;

use divvy_core::ask::{Class, Dialect, GpuAsk, Role};
use divvy_core::grant::{self, Grant};
use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::keys;
use divvy_core::labels::Labels;
use divvy_core::pod::{Bound, HostPort, Pod, PodSpec, State, Weighted};
use divvy_core::resources::{ContainerRequest, Resources};
use divvy_core::time::Time;
use divvy_core::volume::{Disk, VolumeUse};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{labels, resources, selector};
use crate::wire;

/// A pod, and what the shell needs to know of it besides.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSeen {
    /// The pod as the core sees it.
    pub pod: Pod,
    /// Its resource version.
    pub version: String,
    /// Who is to place it.
    pub scheduler: String,
    /// It is being deleted.
    pub deleting: bool,
    /// What its `PodScheduled` condition says already.
    pub explained: Option<(String, String)>,
    /// It waits behind the gate that keeps a gang together until all members fit. Not among the pod's gates: it is ours to open.
    pub gated: bool,
    /// The part of its manifest that says what it asks for, where users of its dialect will look for more than the grant.
    pub manifest: Option<Arc<Value>>,
    /// The port an emulated system's users find on it.
    pub port: Option<u16>,
    /// It carries an ask, but one we cannot read.
    pub bad_ask: Option<String>,
    /// It carries a grant, but one we cannot read: somebody wrote over it, or a newer version did.
    pub bad_grant: Option<String>,
    /// It carries amounts that are said to be admitted, and that are not followed. Why.
    pub bad_amounts: Option<String>,
    /// The amounts it is to have next, where somebody wishes others than it has; an error says why they are none.
    pub wish: Option<Result<Grant, String>>,
}

/// A pod. `managed` says which extended resources stand for devices: those are the ask's business, and no node is short of them.
pub fn pod(mut wire: wire::Pod, managed: impl Fn(&str) -> bool) -> PodSeen {
    let (ask, bad_ask) = read::<GpuAsk>(wire.metadata.annotations.get(keys::ASK));
    let emulated = ask.as_ref().is_some_and(|ask| ask.dialect != Dialect::Native);
    let ungranted = wire.spec.node_name.is_empty() || !wire.metadata.annotations.contains_key(keys::GRANT);
    let manifest = (emulated && ungranted).then(|| Arc::new(manifest(&wire)));
    let gates = wire.spec.scheduling_gates.len();
    wire.spec.scheduling_gates.retain(|gate| gate.name != keys::GANG_GATE);
    let gated = wire.spec.scheduling_gates.len() < gates;
    let meta = wire.metadata;
    let note = |key: &str| meta.annotations.get(key).map(String::as_str);
    let (held, bad_grant) = match note(keys::GRANT).map(|text| grant::held(text, note(keys::GRANT_ADMITTED))) {
        None => (None, None),
        Some(Ok(held)) => (Some(held), None),
        Some(Err(why)) => (None, Some(why)),
    };
    let wish = held.as_ref().and_then(|held| grant::wished(held, note(keys::GRANT_OVERRIDE)));
    let since = wire.status.start_time.or(bound_at(&wire.status)).or(meta.creation_timestamp);
    let state = match wire.spec.node_name.as_str() {
        "" => State::Waiting,
        node => State::Bound(Bound {
            node: NodeName::from(node),
            since: time(held.as_ref().map(|held| Time(held.granted.at)), since),
            grant: held.as_ref().map(|held| Arc::new(held.now().clone())),
            init_done: init_done(&wire.spec, &wire.status),
            terminating: meta.deletion_timestamp.is_some(),
        }),
    };
    let controller = ask.as_ref().and_then(|ask| ask.gang.as_ref()).and_then(|_| controller(&meta.owner_references));
    let explained = wire.status.conditions.iter().find(|c| c.kind == "PodScheduled" && c.status == "False");
    PodSeen {
        version: meta.resource_version,
        deleting: meta.deletion_timestamp.is_some(),
        scheduler: wire.spec.scheduler_name.clone(),
        explained: explained.map(|c| (c.reason.clone(), c.message.clone())),
        gated,
        manifest,
        port: meta.annotations.get(keys::KUBESHARE_PORT).and_then(|port| port.parse().ok()),
        bad_ask,
        bad_grant,
        bad_amounts: held.and_then(|held| held.ignored),
        wish,
        pod: Pod {
            uid: PodUid::from(meta.uid),
            key: PodKey::new(meta.namespace, meta.name.as_str()),
            spec: Arc::new(spec(wire.spec, &meta.name, managed)),
            labels: labels(meta.labels),
            ask: ask.map(Arc::new),
            mistakes: Vec::new(),
            class: meta.annotations.get(keys::CLASS_NOW).and_then(|text| class(text)),
            controller,
            created: time(None, meta.creation_timestamp),
            state,
        },
    }
}

/// The part of a pod's manifest that says what devices it asks for.
pub fn manifest(wire: &wire::Pod) -> Value {
    let container = |c: &wire::Container| {
        json!({
            "name": c.name,
            "restartPolicy": c.restart_policy,
            "resources": {"limits": c.resources.limits, "requests": c.resources.requests},
        })
    };
    let containers = |list: &[wire::Container]| list.iter().map(container).collect::<Vec<Value>>();
    json!({
        "kind": "Pod",
        "metadata": {"name": wire.metadata.name, "labels": wire.metadata.labels, "annotations": wire.metadata.annotations},
        "spec": {
            "schedulerName": wire.spec.scheduler_name,
            "containers": containers(&wire.spec.containers),
            "initContainers": containers(&wire.spec.init_containers),
        },
    })
}

fn read<T: serde::de::DeserializeOwned>(text: Option<&String>) -> (Option<T>, Option<String>) {
    match text.map(|text| serde_json::from_str(text)) {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    }
}

fn controller(owners: &[wire::Owner]) -> Option<Arc<str>> {
    owners.iter().find(|owner| owner.controller).map(|owner| owner.uid.as_str().into())
}

fn class(text: &str) -> Option<Class> {
    serde_json::from_value(Value::from(text)).ok()
}

fn time(known: Option<Time>, stamp: Option<Timestamp>) -> Time {
    let millis = |t: Timestamp| Time(u64::try_from(t.as_millisecond()).unwrap_or(0));
    known.or(stamp.map(millis)).unwrap_or_default()
}

fn bound_at(status: &wire::PodStatus) -> Option<Timestamp> {
    status.conditions.iter().find(|c| c.kind == "PodScheduled" && c.status == "True")?.last_transition_time
}

/// Have all init containers that end, ended well? Sidecars do not end.
fn init_done(spec: &wire::PodSpec, status: &wire::PodStatus) -> bool {
    let ends = |c: &&wire::Container| c.restart_policy.as_deref() != Some("Always");
    let ended =
        |c: &wire::Container| status.init_container_statuses.iter().any(|s| s.name == c.name && s.has_ended_well());
    spec.init_containers.iter().filter(ends).all(ended)
}

fn spec(wire: wire::PodSpec, name: &str, managed: impl Fn(&str) -> bool) -> PodSpec {
    let requests = requests(&wire, managed);
    let host_ports = host_ports(&wire);
    let affinity = wire.affinity.unwrap_or_default();
    let node = affinity.node_affinity.unwrap_or_default();
    let near = affinity.pod_affinity.unwrap_or_default();
    let apart = affinity.pod_anti_affinity.unwrap_or_default();
    let near_wishes = near.preferred_during_scheduling_ignored_during_execution.unwrap_or_default().into_iter();
    let apart_wishes = apart.preferred_during_scheduling_ignored_during_execution.unwrap_or_default().into_iter();
    let mut unsupported: Vec<Arc<str>> = Vec::new();
    if !wire.resource_claims.is_empty() {
        unsupported.push("spec.resourceClaims".into());
    }
    PodSpec {
        requests,
        node_selector: wire.node_selector.into_iter().map(|(k, v)| (k.into(), v.into())).collect::<Labels>(),
        node_affinity: node.required_during_scheduling_ignored_during_execution.map(selector::node_terms),
        node_preference: node
            .preferred_during_scheduling_ignored_during_execution
            .unwrap_or_default()
            .into_iter()
            .map(|p| Weighted { weight: p.weight, what: selector::node_term(p.preference) })
            .collect(),
        tolerations: wire.tolerations.into_iter().filter_map(selector::toleration).collect(),
        host_ports,
        near: near
            .required_during_scheduling_ignored_during_execution
            .unwrap_or_default()
            .into_iter()
            .map(selector::pod_term)
            .collect(),
        apart: apart
            .required_during_scheduling_ignored_during_execution
            .unwrap_or_default()
            .into_iter()
            .map(selector::pod_term)
            .collect(),
        pod_preference: near_wishes
            .map(|t| selector::weighted_pod_term(t, 1))
            .chain(apart_wishes.map(|t| selector::weighted_pod_term(t, -1)))
            .collect(),
        spread: wire.topology_spread_constraints.into_iter().map(selector::spread).collect(),
        volumes: wire.volumes.iter().filter_map(|volume| volume_use(volume, name)).collect(),
        gates: wire.scheduling_gates.into_iter().map(|gate| gate.name.into()).collect(),
        features: Default::default(),
        unsupported,
        priority: wire.priority.unwrap_or(0),
        never_preempts: wire.preemption_policy.as_deref() == Some("Never"),
        deadline: wire.active_deadline_seconds.and_then(|s| u64::try_from(s).ok()),
    }
}

fn requests(wire: &wire::PodSpec, managed: impl Fn(&str) -> bool) -> Resources {
    let one = |container: &wire::Container, role: Role| ContainerRequest {
        role,
        requests: resources(&container.resources.requests, &managed),
    };
    let init = wire.init_containers.iter().map(|c| {
        let stays = c.restart_policy.as_deref() == Some("Always");
        one(c, if stays { Role::Sidecar } else { Role::Init })
    });
    let containers: Vec<ContainerRequest> = init.chain(wire.containers.iter().map(|c| one(c, Role::Main))).collect();
    let mut whole = Resources::of_pod(&containers, None, &Resources::default());
    // What the pod states as a whole takes the place of its containers' sum, resource by resource.
    if let Some(stated) = &wire.resources {
        let stated_amounts = resources(&stated.requests, &managed);
        for name in stated.requests.keys() {
            match name.as_str() {
                "cpu" => whole.cpu = stated_amounts.cpu,
                "memory" => whole.memory = stated_amounts.memory,
                "ephemeral-storage" => whole.storage = stated_amounts.storage,
                other => {
                    if let Some(amount) = stated_amounts.other.get(other) {
                        whole.other.insert(other.into(), *amount);
                    }
                }
            }
        }
    }
    whole.add(&resources(&wire.overhead, &managed));
    whole
}

/// Ports of main containers and sidecars.
fn host_ports(wire: &wire::PodSpec) -> Vec<HostPort> {
    let sidecars = wire.init_containers.iter().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&wire.containers).flat_map(|c| &c.ports);
    let taken = |p: &wire::Port| {
        let port = u16::try_from(p.host_port).ok().filter(|port| *port > 0)?;
        let protocol = if p.protocol.is_empty() { "TCP" } else { p.protocol.as_str() };
        Some(HostPort { address: p.host_ip.as_str().into(), protocol: protocol.into(), port })
    };
    ports.filter_map(taken).collect()
}

/// A volume, where it bears on where the pod can run.
fn volume_use(volume: &wire::Volume, pod: &str) -> Option<VolumeUse> {
    let (kind, source) = volume.source.iter().find(|(_, source)| !source.is_null())?;
    let text = |field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default();
    let disk = |id: String| {
        let read_only = source.get("readOnly").and_then(Value::as_bool).unwrap_or(false);
        Some(VolumeUse::Disk(Disk { kind: kind.as_str().into(), id: id.into(), read_only }))
    };
    match kind.as_str() {
        "persistentVolumeClaim" => Some(VolumeUse::Claim(text("claimName").into())),
        "ephemeral" => Some(VolumeUse::Claim(format!("{pod}-{}", volume.name).into())),
        "csi" => Some(VolumeUse::Inline(text("driver").into())),
        "gcePersistentDisk" => disk(text("pdName").to_owned()),
        "awsElasticBlockStore" => disk(text("volumeID").to_owned()),
        "iscsi" => disk(text("iqn").to_owned()),
        "rbd" => {
            let pool = if text("pool").is_empty() { "rbd" } else { text("pool") };
            disk(format!("{pool}/{}", text("image")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! From an ask back to a manifest in our own spelling: how a foreign manifest would be written natively, and the proof that the native
//! spelling can say whatever it can be asked.

use divvy_core::ask::{ContainerAsk, DeviceAsk, GpuAsk, MemoryAsk, ModelPattern, Role};
use divvy_core::device::DeviceKind;
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use serde_json::{Map, Value, json};

use super::wishes::{ALL, TOPOLOGIES, word};

/// A pod with nothing in it but an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The pod: annotations, and containers with resources.
    pub pod: Value,
    /// What the ask says that the native spelling cannot, in words. Empty for an ask that was written natively.
    pub lost: Vec<String>,
}

/// Writes an ask in our own spelling.
pub fn render(ask: &GpuAsk) -> Rendered {
    let mut lost = Vec::new();
    let annotations = annotations(ask, &mut lost);
    let list = |wanted: fn(Role) -> bool, lost: &mut Vec<String>| -> Vec<Value> {
        ask.containers.iter().filter(|c| wanted(c.role)).map(|c| container(c, &annotations, lost)).collect()
    };
    let init = list(|role| role != Role::Main, &mut lost);
    let main = list(|role| role == Role::Main, &mut lost);
    let mut spec = Map::new();
    if !init.is_empty() {
        spec.insert("initContainers".into(), Value::Array(init));
    }
    spec.insert("containers".into(), Value::Array(main));
    Rendered { pod: json!({ "kind": "Pod", "metadata": { "annotations": annotations }, "spec": spec }), lost }
}

fn container(container: &ContainerAsk, annotations: &Map<String, Value>, lost: &mut Vec<String>) -> Value {
    let mut limits = Map::new();
    for (n, want) in container.wants.iter().enumerate() {
        if n > 0 || want.kind != DeviceKind::Gpu || want.partition.is_some() || want.groups.is_some() {
            lost.push(format!(
                "container {}: {}",
                container.name,
                crate::reading::describe(&GpuAsk::of(
                    Default::default(),
                    vec![ContainerAsk { wants: vec![want.clone()], ..container.clone() }],
                ))
            ));
            continue;
        }
        limits = amounts(want, annotations, &format!("container {}", container.name), lost);
    }
    let mut json = json!({ "name": container.name, "resources": { "limits": limits } });
    if container.role == Role::Sidecar {
        json["restartPolicy"] = "Always".into();
    }
    json
}

fn amounts(
    want: &DeviceAsk,
    annotations: &Map<String, Value>,
    whose: &str,
    lost: &mut Vec<String>,
) -> Map<String, Value> {
    let mut limits = Map::new();
    let mut put = |key: &str, amount: String| limits.insert(key.into(), Value::String(amount));
    put(keys::GPU, want.count.to_string());
    if want.exclusive && *want == DeviceAsk::whole(want.count) {
        return limits;
    }
    if want.exclusive {
        lost.push(format!("{whose}: nobody else on the device"));
    }
    put(keys::GPU_SHARE, want.share.0.to_string());
    if want.share_limit != Share::WHOLE {
        put(keys::GPU_SHARE_LIMIT, want.share_limit.0.to_string());
    }
    match want.memory {
        MemoryAsk::Nothing => {
            put(keys::GPU_MEMORY, "0".into());
        }
        MemoryAsk::Bytes(bytes) => {
            put(keys::GPU_MEMORY, quantity(bytes));
        }
        MemoryAsk::Part(part) if part == want.share => {}
        MemoryAsk::Part(part) => lost.push(format!("{whose}: {part} of each device's memory")),
        MemoryAsk::NodeUnits(units) => lost.push(format!("{whose}: {units} of the node's own units of memory")),
    }
    let for_all = annotations.contains_key(keys::GPU_MEMORY_LIMIT);
    match (want.memory_limit, want.memory) {
        (Some(MemoryAsk::Bytes(limit)), _) => {
            put(keys::GPU_MEMORY_LIMIT, quantity(limit));
        }
        (None, MemoryAsk::Bytes(booked)) if for_all => {
            put(keys::GPU_MEMORY_LIMIT, quantity(booked));
        }
        (None, MemoryAsk::Nothing) => lost.push(format!("{whose}: no memory at all")),
        (None, MemoryAsk::Part(_)) if for_all => lost.push(format!("{whose}: no more memory than is booked")),
        (Some(MemoryAsk::Part(part)), _) => lost.push(format!("{whose}: memory up to {part} of the device's")),
        (Some(MemoryAsk::NodeUnits(units)), _) => {
            lost.push(format!("{whose}: memory up to {units} of the node's units"))
        }
        (None | Some(MemoryAsk::Nothing), _) => {}
    }
    limits
}

fn annotations(ask: &GpuAsk, lost: &mut Vec<String>) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, text: String| {
        if !text.is_empty() {
            out.insert(key.into(), Value::String(text));
        }
    };
    let grows = |want: &DeviceAsk| {
        !want.exclusive && want.memory_limit == Some(MemoryAsk::Nothing) && want.memory != MemoryAsk::Nothing
    };
    if ask.containers.iter().flat_map(|c| &c.wants).any(grows) {
        put(keys::GPU_MEMORY_LIMIT, ALL.into());
    }
    let mut models = |patterns: &[ModelPattern]| {
        let names: Vec<&str> = patterns
            .iter()
            .map(|pattern| match pattern {
                ModelPattern::Part(part) => &**part,
                ModelPattern::Exact(name) => {
                    lost.push(format!("the model {name} exactly: {name} as part of a name accepts longer names too"));
                    &**name
                }
            })
            .collect();
        names.join(",")
    };
    put(keys::GPU_MODEL, models(&ask.models.only));
    put(keys::GPU_MODEL_AVOID, models(&ask.models.avoid));
    let ids = |ids: &[divvy_core::id::DeviceId]| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(",");
    put(keys::GPU_UUID, ids(&ask.devices.only));
    put(keys::GPU_UUID_AVOID, ids(&ask.devices.avoid));
    if let Some((name, _)) = TOPOLOGIES.iter().skip(1).find(|(_, topology)| *topology == ask.topology) {
        put(keys::TOPOLOGY, (*name).into());
    }
    put(keys::CLASS, ask.class.map(word).unwrap_or_default());
    if let Some(gang) = &ask.gang {
        put(keys::GANG, gang.name.to_string());
        put(keys::GANG_SIZE, gang.size.to_string());
        put(keys::GANG_MIN, gang.min.to_string());
    }
    if let Some(policy) = &ask.policy {
        let settings: String = policy.settings.iter().map(|(key, value)| format!(";{key}={value}")).collect();
        put(keys::POLICY, format!("{}{settings}", policy.name.as_deref().unwrap_or_default()));
    }
    put(keys::ISOLATION, ask.isolation.iter().map(word).collect::<Vec<_>>().join(","));
    put(keys::EXPECTED_DURATION, ask.expected_duration.map(|s| format!("{s}s")).unwrap_or_default());
    put(keys::MIN_RUNTIME, ask.min_runtime.map(|s| format!("{s}s")).unwrap_or_default());
    if ask.priority != 0 {
        lost.push(format!("priority {} of its dialect: use a PriorityClass", ask.priority));
    }
    out
}

/// Bytes as people write them, exactly.
fn quantity(bytes: Bytes) -> String {
    for (suffix, shift) in [("Gi", 30), ("Mi", 20)] {
        if bytes.0 != 0 && bytes.0.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes.0 >> shift);
        }
    }
    bytes.0.to_string()
}

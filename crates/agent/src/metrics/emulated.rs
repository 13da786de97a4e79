//! The same numbers under the names that the emulated systems' exporters gave them: KubeShare's collector and aggregator, gpu-manager,
//! 4paradigm's monitor and HAMi's. What their schedulers export our scheduler shows, behind a switch of the same name. What nobody here
//! measures (contexts and modules apart from other memory, the memory controller, the time of the last kernel) is not shown.

use std::collections::BTreeMap;

use divvy_core::device::{Device, DeviceKind};
use divvy_core::keys;

use super::{Facts, Family, Labels, Part, Series};

const MIB: f64 = 1_048_576.0;
/// What 4paradigm's exporters say in every series.
const ZONE: (&str, &str) = ("zone", "vGPU");

/// All of them.
pub fn families(facts: &Facts<'_>) -> Vec<Family> {
    let parts = facts.parts();
    let mut all = kubeshare(facts, &parts);
    all.extend(gpu_manager(facts, &parts));
    all.extend(vgpu(facts, &parts));
    all.extend(hami(facts, &parts));
    all
}

fn gauge(name: &'static str, help: &'static str, series: Vec<Series>) -> Family {
    Family { name, help, counts: false, series }
}

fn labels<const N: usize>(pairs: [(&'static str, String); N]) -> Labels {
    Labels(pairs.into())
}

/// The information is in the labels; the value is the time.
fn kubeshare(facts: &Facts<'_>, parts: &[Part<'_>]) -> Vec<Family> {
    let capacity = |d: &Device| {
        let of_card = labels([
            ("node", facts.node.to_owned()),
            ("uuid", d.id.to_string()),
            ("model", d.model.to_string().replace(' ', "-")),
            ("memory", d.memory.0.to_string()),
            ("index", d.index.to_string()),
        ]);
        (of_card, facts.now)
    };
    let requirement = |part: &Part<'_>| {
        let pod = part.pod;
        let label = |key: &str| pod.label(key);
        let limit = label(keys::KUBESHARE_LIMIT).filter(|_| pod.running && part.container_index == 0)?;
        let name = format!("{}/{}", pod.pod.namespace, pod.pod.name);
        let or = |found: Option<&str>, other: &str| found.unwrap_or(other).to_owned();
        let group = [keys::KUBESHARE_GROUP, keys::KUBESHARE_POD_GROUP]
            .into_iter()
            .find_map(|key| label(key).map(str::trim).filter(|group| !group.is_empty()));
        // All that the pod's containers see, in the order in which they are told.
        let own = parts.iter().filter(|p| p.pod.uid == pod.uid && p.container_index == 0);
        let devices: Vec<&str> =
            own.filter(|p| p.slice.kind == DeviceKind::Gpu).map(|p| p.slice.device.as_str()).collect();
        let of_pod = labels([
            ("namespace", pod.pod.namespace.to_string()),
            ("pod", pod.pod.name.to_string()),
            ("pod_id", pod.uid.to_string()),
            ("node", facts.node.to_owned()),
            ("group_name", or(group, &name)),
            ("min_available", or(label(keys::KUBESHARE_MIN_AVAILABLE), "1")),
            ("limit", limit.to_owned()),
            ("request", or(label(keys::KUBESHARE_REQUEST), "0.0")),
            ("memory", or(label(keys::KUBESHARE_MEMORY).or_else(|| pod.annotation(keys::KUBESHARE_MEMORY)), "0")),
            ("cell_id", or(pod.annotation(keys::KUBESHARE_CELL_ID), "")),
            ("uuid", devices.join(",")),
            ("port", or(pod.annotation(keys::KUBESHARE_PORT), "0")),
        ]);
        Some((of_pod, facts.now))
    };
    let cards = facts.devices.iter().filter(|d| d.kind == DeviceKind::Gpu);
    // One series per pod, whose label tells all of its GPUs.
    let first = parts.iter().filter(|p| p.index == 0);
    vec![
        gauge("gpu_capacity", "GPUs of the node, in the labels", cards.map(capacity).collect()),
        gauge("gpu_requirement", "What running pods asked for, in the labels", first.filter_map(requirement).collect()),
    ]
}

fn gpu_manager(facts: &Facts<'_>, parts: &[Part<'_>]) -> Vec<Family> {
    let mut families: BTreeMap<&'static str, Vec<Series>> = BTreeMap::new();
    let mut totals: BTreeMap<(&'static str, &'static str, [String; 3]), f64> = BTreeMap::new();
    for part in parts.iter().filter(|p| p.slice.kind == DeviceKind::Gpu) {
        let index = facts.devices.iter().find(|d| d.id == part.slice.device).map_or(0, |d| d.index);
        let who = [part.pod.pod.name.to_string(), part.pod.pod.namespace.to_string(), part.container.to_string()];
        for (name, label, value) in [
            ("container_gpu_utilization", "gpu", f64::from(part.account.utilisation) / 10.0),
            ("container_gpu_memory_total", "gpu_memory", part.account.memory as f64 / MIB),
            ("container_request_gpu_utilization", "req_of_gpu", f64::from(part.slice.share.0) / 1000.0),
            ("container_request_gpu_memory", "req_of_gpu_memory", part.slice.memory.0 as f64 / MIB),
        ] {
            // What was asked for has no card.
            if !name.starts_with("container_request") {
                let of_card = of_container(facts.node, &who, label, format!("gpu{index}"));
                families.entry(name).or_default().push((of_card, value));
            }
            *totals.entry((name, label, who.clone())).or_default() += value;
        }
    }
    for ((name, label, who), sum) in totals {
        families.entry(name).or_default().push((of_container(facts.node, &who, label, "total".to_owned()), sum));
    }
    families.into_iter().map(|(name, series)| gauge(name, "As gpu-manager counts it", series)).collect()
}

fn of_container(node: &str, who: &[String; 3], label: &'static str, value: String) -> Labels {
    let [pod, namespace, container] = who.clone();
    labels([
        ("pod_name", pod),
        ("namespace", namespace),
        ("node", node.to_owned()),
        ("container_name", container),
        (label, value),
    ])
}

/// A series for each card somebody looked at.
fn of_cards(
    facts: &Facts<'_>,
    labels: impl Fn(&Device) -> Labels,
    value: impl Fn(&crate::device::Usage) -> f64,
) -> Vec<Series> {
    let series = |usage: &crate::device::Usage| {
        let device = facts.devices.iter().find(|device| device.id == usage.device)?;
        Some((labels(device), value(usage)))
    };
    facts.usage.iter().filter_map(series).collect()
}

/// A series for each part of a GPU.
fn of_parts(parts: &[Part<'_>], names: [&'static str; 5], value: impl Fn(&Part<'_>) -> f64) -> Vec<Series> {
    let [namespace, pod, container, index, device] = names;
    let series = |p: &Part<'_>| {
        let of_part = labels([
            (namespace, p.pod.pod.namespace.to_string()),
            (pod, p.pod.pod.name.to_string()),
            (container, p.container.to_string()),
            (index, p.index.to_string()),
            (device, p.slice.device.to_string()),
            zone(),
        ]);
        (of_part, value(p))
    };
    parts.iter().filter(|p| p.slice.kind == DeviceKind::Gpu).map(series).collect()
}

fn zone() -> (&'static str, String) {
    (ZONE.0, ZONE.1.to_owned())
}

fn vgpu(facts: &Facts<'_>, parts: &[Part<'_>]) -> Vec<Family> {
    let of_card = |d: &Device| labels([("deviceidx", d.index.to_string()), ("deviceuuid", d.id.to_string()), zone()]);
    let names = ["podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid"];
    let used = of_parts(parts, names, |p| p.account.memory as f64);
    let limit = of_parts(parts, names, |p| p.slice.memory_limit.0 as f64);
    let host_used = of_cards(facts, of_card, |u| u.memory.0 as f64);
    let host_busy = of_cards(facts, of_card, |u| f64::from(u.busy) / 10.0);
    vec![
        gauge("HostGPUMemoryUsage", "Memory in use on a card", host_used),
        gauge("HostCoreUtilization", "How busy a card is, in percent", host_busy),
        gauge("vGPU_device_memory_usage_in_bytes", "Memory a container uses", used.clone()),
        gauge("vGPU_device_memory_limit_in_bytes", "Memory a container may use", limit),
        gauge("Device_memory_desc_of_container", "Memory a container uses", used),
    ]
}

/// HAMi has labels of its own beside its names, and what it calls a ratio is in percent.
fn hami(facts: &Facts<'_>, parts: &[Part<'_>]) -> Vec<Family> {
    let of_card = |d: &Device| {
        labels([
            ("node", facts.node.to_owned()),
            ("device_index", d.index.to_string()),
            ("device_uuid", d.id.to_string()),
            ("device_type", d.registered_type()),
            zone(),
        ])
    };
    let names = ["namespace", "pod", "container", "vdevice_index", "device_uuid"];
    let used = of_parts(parts, names, |p| p.account.memory as f64);
    let limit = of_parts(parts, names, |p| p.slice.memory_limit.0 as f64);
    let busy = of_parts(parts, names, |p| f64::from(p.account.utilisation) / 10.0);
    let host_used = of_cards(facts, of_card, |u| u.memory.0 as f64);
    let host_busy = of_cards(facts, of_card, |u| f64::from(u.busy) / 10.0);
    vec![
        gauge("hami_host_gpu_memory_used_bytes", "Memory in use on a card", host_used),
        gauge("hami_host_gpu_utilization_ratio", "How busy a card is, in percent", host_busy),
        gauge("hami_vgpu_memory_used_bytes", "Memory a container uses", used.clone()),
        gauge("hami_vgpu_memory_limit_bytes", "Memory a container may use", limit),
        gauge("hami_container_device_memory_bytes", "Memory a container uses", used),
        gauge("hami_container_device_utilization_ratio", "Time a container used, in percent", busy),
    ]
}

//! A cluster in ten lines of text, and builders, for tests here and in other crates (feature `testing`).
//!
//! ```text
//! node a cpu=64 mem=256Gi gpu=4:80Gi:H100 zone=west
//! node b gpu=2:16Gi taint=dedicated
//! pod  p1 on a dev=0 share=500 mem=4Gi
//! wait p2 count=2 whole class=opportunistic prio=10 at=60
//! ```
//!
//! Words after the name are settings; `label:KEY=VALUE` sets a label. The GPUs of node `a` are called `a-0`, `a-1`, ...
//! Pods are in namespace `default` unless named `ns/name`. A mistake in a fixture is a panic that quotes its line.
#![allow(clippy::expect_used, clippy::panic, reason = "a wrong fixture is a bug of the test, and must stop it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::snapshot::Snapshot;
use crate::model::ask::{
    Class, ContainerAsk, DeviceAsk, Dialect, Gang, GpuAsk, MemoryAsk, ModelPattern, ModelRule, Role, Topology,
};
use crate::model::device::{Device, DeviceKind, Health, Isolation, Link};
use crate::model::grant::{ContainerGrant, Grant, Slice};
use crate::model::id::DeviceId;
use crate::model::node::{Effect, Node, Taint};
use crate::model::pod::{Bound, Pod, PodSpec, State};
use crate::model::resources::Resources;
use crate::model::time::Time;
use crate::model::units::{Bytes, Share};

/// The cluster a text describes.
pub fn cluster(text: &str) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_whitespace().next() {
            Some("node") => snapshot.put_node(node(line)),
            Some("pod" | "wait") => {
                let pod = pod(line, &snapshot);
                snapshot.put_pod(pod);
            }
            _ => panic!("a line begins with node, pod or wait: {line}"),
        }
    }
    snapshot
}

/// What follows the name, in the order written.
fn settings(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().skip(2).map(|word| word.split_once('=').unwrap_or((word, "")))
}

fn number<T: std::str::FromStr>(text: &str, line: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number: {line}"))
}

/// `8Gi`, `512Mi` or plain bytes.
fn bytes(text: &str, line: &str) -> Bytes {
    if let Some(n) = text.strip_suffix("Gi") {
        return Bytes::gib(number(n, line));
    }
    text.strip_suffix("Mi").map_or_else(|| Bytes(number(text, line)), |n| Bytes::mib(number(n, line)))
}

/// The node a line describes.
pub fn node(line: &str) -> Node {
    let name = line.split_whitespace().nth(1).unwrap_or_else(|| panic!("a node has a name: {line}"));
    let mut node = Node::new(name, Resources::of(1_000_000, Bytes::gib(10_000)));
    node.max_pods = 1000;
    for (key, value) in settings(line) {
        match key {
            "cpu" => node.allocatable.cpu = 1000 * number::<u64>(value, line),
            "mem" => node.allocatable.memory = bytes(value, line),
            "pods" => node.max_pods = number(value, line),
            "gpu" | "mlu" | "nic" => devices(&mut node, key, value, line),
            "cordoned" => node.unschedulable = true,
            "unready" => node.unready = true,
            "taint" => node.taints.push(Taint { key: value.into(), value: "".into(), effect: Effect::NoSchedule }),
            "cordon" => node.cordon_devices(value),
            "sick" => {
                let index = number::<usize>(value, line);
                node.inventory.devices[index].health = Health::Unhealthy { reason: "xid 79".into() };
            }
            "split" => node.inventory.devices.iter_mut().for_each(|d| d.max_tasks = Some(number(value, line))),
            "numa" => {
                for (device, numa) in node.inventory.devices.iter_mut().zip(value.split(',')) {
                    device.numa = Some(number(numa, line));
                }
            }
            "links" => links(&mut node, value, line, |device| &mut device.links),
            "pcie" => links(&mut node, value, line, |device| &mut device.pcie),
            _ => match key.strip_prefix("label:") {
                Some(label) => drop(node.labels.insert(label.into(), value.into())),
                None => panic!("unknown setting `{key}`: {line}"),
            },
        }
    }
    node
}

/// `4:80Gi:H100`, several joined by `+`.
fn devices(node: &mut Node, kind: &str, value: &str, line: &str) {
    for part in value.split('+') {
        let mut fields = part.split(':');
        let count: u32 = number(fields.next().unwrap_or(""), line);
        let memory = fields.next().map_or(Bytes::gib(16), |text| bytes(text, line));
        let model = fields.next().unwrap_or("A100");
        for _ in 0..count {
            let index = node.inventory.devices.len() as u32;
            let id =
                if kind == "gpu" { format!("{}-{index}", node.name) } else { format!("{}-{kind}{index}", node.name) };
            let mut device = Device::gpu(id, index, model, memory);
            device.kind = match kind {
                "mlu" => DeviceKind::Mlu,
                "nic" => DeviceKind::Nic,
                _ => DeviceKind::Gpu,
            };
            node.inventory.devices.push(device);
        }
    }
}

/// `0-1:single-switch,0-2:host-bridge`; `0..3:host-bridge` links all of them.
fn links(node: &mut Node, value: &str, line: &str, of: fn(&mut Device) -> &mut BTreeMap<DeviceId, Link>) {
    for part in value.split(',') {
        let (pair, link) = part.split_once(':').unwrap_or_else(|| panic!("a link reads 0-1:nv-link: {line}"));
        let link: Link = serde_json::from_value(link.into()).unwrap_or_else(|_| panic!("`{link}` is no link: {line}"));
        let pairs: Vec<(usize, usize)> = match pair.split_once("..") {
            Some((from, to)) => {
                let (from, to): (usize, usize) = (number(from, line), number(to, line));
                (from..=to).flat_map(|a| (a + 1..=to).map(move |b| (a, b))).collect()
            }
            None => {
                let (a, b) = pair.split_once('-').unwrap_or_else(|| panic!("a pair reads 0-1: {line}"));
                vec![(number(a, line), number(b, line))]
            }
        };
        for (a, b) in pairs {
            let id = node.inventory.devices[b].id.clone();
            let known = of(&mut node.inventory.devices[a]).entry(id).or_default();
            *known = (*known).max(link);
        }
    }
}

/// The pod a line describes.
pub fn pod(line: &str, snapshot: &Snapshot) -> Pod {
    let name = line.split_whitespace().nth(1).unwrap_or_else(|| panic!("a pod has a name: {line}"));
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let mut pod = Pod::new(namespace, name);
    let mut spec = PodSpec::default();
    let mut want = share(Share::ZERO);
    let mut ask = GpuAsk { containers: Vec::new(), ..empty_ask() };
    let on = line.split_whitespace().skip_while(|word| *word != "on").nth(1);
    let mut devices: Vec<usize> = Vec::new();
    let mut asks = true;
    let mut bound = Bound {
        node: on.unwrap_or_default().into(),
        grant: None,
        since: Time(0),
        init_done: false,
        terminating: false,
    };
    for (key, value) in settings(line) {
        match key {
            "on" => {}
            node if Some(node) == on => {}
            "cpu" => spec.requests.cpu = number(value, line),
            "ram" => spec.requests.memory = bytes(value, line),
            "share" => want.share = Share(number(value, line)),
            "limit" => want.share_limit = Share(number(value, line)),
            "mem" => want.memory = MemoryAsk::Bytes(bytes(value, line)),
            "part" => want.memory = MemoryAsk::Part(Share(number(value, line))),
            "count" => want.count = number(value, line),
            "kind" => {
                want.kind = serde_json::from_value(value.into()).unwrap_or_else(|_| panic!("no kind `{value}`: {line}"))
            }
            "whole" => {
                want.exclusive = true;
                want.share = Share::WHOLE;
                want.memory = MemoryAsk::Part(Share::WHOLE);
            }
            "alone" => want.exclusive = true,
            "ordinary" => asks = false,
            "dev" => devices = value.split(',').map(|d| number(d, line)).collect(),
            "class" => ask.class = Some(if value == "guarantee" { Class::Guarantee } else { Class::Opportunistic }),
            "prio" => spec.priority = number(value, line),
            "dprio" => ask.priority = number(value, line),
            "polite" => spec.never_preempts = true,
            "at" => pod.created = Time::seconds(number(value, line)),
            "since" => bound.since = Time::seconds(number(value, line)),
            "leaving" => bound.terminating = true,
            "lasts" => ask.expected_duration = Some(number(value, line)),
            "deadline" => spec.deadline = Some(number(value, line)),
            "minrun" => ask.min_runtime = Some(number(value, line)),
            "model" => ask.models.only = value.split(',').map(|m| ModelPattern::Part(m.into())).collect(),
            "notmodel" => ask.models.avoid = value.split(',').map(|m| ModelPattern::Part(m.into())).collect(),
            "uuid" => ask.devices.only = value.split(',').map(Into::into).collect(),
            "notuuid" => ask.devices.avoid = value.split(',').map(Into::into).collect(),
            "dialect" => {
                ask.dialect =
                    serde_json::from_value(value.into()).unwrap_or_else(|_| panic!("no dialect `{value}`: {line}"))
            }
            "policy" => {
                let name: Arc<str> = value.into();
                ask.policy = Some(crate::model::ask::PolicyChoice { name: Some(name), settings: BTreeMap::new() });
            }
            "near" => ask.topology = topology(value, line),
            "gang" => {
                let fields: Vec<&str> = value.split(':').collect();
                let [name, size, min] = fields[..] else { panic!("a gang reads NAME:SIZE:MIN: {line}") };
                ask.gang = Some(Gang { name: name.into(), size: number(size, line), min: number(min, line) });
            }
            _ => match (key.strip_prefix("label:"), key.strip_prefix("needs:")) {
                (Some(label), _) => drop(pod.labels.insert(label.into(), value.into())),
                (_, Some(label)) => drop(spec.node_selector.insert(label.into(), value.into())),
                _ => panic!("unknown setting `{key}`: {line}"),
            },
        }
    }
    want.share_limit = want.share_limit.max(want.share);
    if asks {
        ask.containers.push(ContainerAsk { name: "main".into(), role: Role::Main, wants: vec![want.clone()] });
        pod.ask = Some(Arc::new(ask));
    }
    pod.spec = Arc::new(spec);
    if let Some(node) = on {
        if asks {
            bound.grant = Some(Arc::new(grant(node, &want, &devices, snapshot, line)));
        }
        pod.state = State::Bound(bound);
    }
    pod
}

fn topology(value: &str, line: &str) -> Topology {
    match value {
        "numa" => Topology::SameNuma,
        "device" => Topology::SameDevice,
        "apart" => Topology::Spread,
        link => Topology::AtLeast(
            serde_json::from_value(link.into()).unwrap_or_else(|_| panic!("no topology `{link}`: {line}")),
        ),
    }
}

fn grant(node: &str, want: &DeviceAsk, devices: &[usize], snapshot: &Snapshot, line: &str) -> Grant {
    let state = snapshot.node(&node.into()).unwrap_or_else(|| panic!("no node `{node}` yet: {line}"));
    let devices = if devices.is_empty() { &[0] } else { devices };
    let slice = |index: &usize| {
        let device = state.node().inventory.devices.get(*index).unwrap_or_else(|| panic!("no device {index}: {line}"));
        let memory = crate::ledger::kind::memory_of(want.memory, device, &state.node().inventory);
        Slice {
            device: device.id.clone(),
            kind: device.kind,
            memory,
            memory_limit: memory,
            share: want.share,
            share_limit: want.share_limit,
            exclusive: want.exclusive,
            isolation: Isolation::Intercept,
            partition: None,
        }
    };
    let slices = devices.iter().map(slice).collect();
    let containers = vec![ContainerGrant { name: "main".into(), role: Role::Main, slices }];
    Grant { v: Grant::VERSION, at: 0, policy: "fixture".into(), containers, claim: None }
}

/// A request for a share of one GPU and nothing else.
pub fn share(share: Share) -> DeviceAsk {
    DeviceAsk {
        kind: DeviceKind::Gpu,
        count: 1,
        memory: MemoryAsk::Nothing,
        memory_limit: None,
        share,
        share_limit: Share::WHOLE,
        exclusive: false,
        groups: None,
        partition: None,
    }
}

/// A native ask of one container.
pub fn ask(want: DeviceAsk) -> GpuAsk {
    GpuAsk {
        containers: vec![ContainerAsk { name: "main".into(), role: Role::Main, wants: vec![want] }],
        ..empty_ask()
    }
}

fn empty_ask() -> GpuAsk {
    GpuAsk {
        v: GpuAsk::VERSION,
        dialect: Dialect::Native,
        containers: Vec::new(),
        class: None,
        priority: 0,
        models: ModelRule::default(),
        devices: Default::default(),
        topology: Topology::Best,
        gang: None,
        policy: None,
        isolation: Vec::new(),
        expected_duration: None,
        min_runtime: None,
        claim: None,
    }
}

/// A plan in a few lines: who goes where on which devices, who is evicted, who waits and why.
pub fn describe(plan: &crate::plan::Plan) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for bind in &plan.binds {
        let slices = bind.grant.iter().flat_map(|g| &g.containers).flat_map(|c| &c.slices);
        let devices: Vec<&str> = slices.map(|s| s.device.as_str()).collect();
        let devices = if devices.is_empty() { String::new() } else { format!(" ({})", devices.join(" ")) };
        let _ = writeln!(text, "bind {} to {}{devices}", bind.key.name, bind.node);
    }
    for eviction in &plan.evictions {
        let _ =
            writeln!(text, "evict {} from {} for {}", eviction.key.name, eviction.node, eviction.makes_room_for.name);
    }
    for wait in &plan.waits {
        let nominated = wait.nominated.as_ref().map_or_else(String::new, |n| format!(" [{n}]"));
        let _ = writeln!(text, "wait {}{nominated}: {}", wait.key.name, wait.reason);
    }
    for kept in &plan.reservations {
        let devices: Vec<&str> = kept.devices.iter().map(|d| d.as_str()).collect();
        let _ = writeln!(text, "keep {} ({}) for {}", kept.node, devices.join(" "), kept.key.name);
    }
    for proposal in &plan.proposals {
        let moves: Vec<String> =
            proposal.moves.iter().map(|m| format!("{} {}->{}", m.key.name, m.from, m.to)).collect();
        let _ = writeln!(text, "propose {} on {}: {}", proposal.key.name, proposal.node, moves.join(", "));
    }
    text
}

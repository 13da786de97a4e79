//! What a pod asks for, after its dialect has been understood. One type for all dialects; defaults are already resolved, so that
//! nobody downstream needs to know which system the manifest was written for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::device::{DeviceKind, Isolation, Link};
use crate::model::id::{ClaimUid, ContainerName, DeviceId, mentions, mentions_with_vendor, same_model};
use crate::model::units::{Bytes, Share};

/// A pod's request for devices. A pod without one is not ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuAsk {
    /// Layout version of the annotation that carries this.
    pub v: u32,
    /// The spelling it was written in: chooses the default policy and the environment its image expects.
    pub dialect: Dialect,
    /// Containers that ask for devices, init containers first, in pod order.
    pub containers: Vec<ContainerAsk>,
    /// The class the user insists on; absent leaves it to budget and policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The dialect's own priority (KubeShare 0..100, vGPU inverted), compared after class and PriorityClass. Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Which models are wanted.
    #[serde(default)]
    pub models: ModelRule,
    /// Which devices are wanted, by identity.
    #[serde(default)]
    pub devices: DeviceRule,
    /// How the devices of one container must lie to each other.
    #[serde(default)]
    pub topology: Topology,
    /// The gang this pod belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// The placement policy the user chose by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChoice>,
    /// The ways of isolation the user accepts; empty accepts whatever the node offers best.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolation: Vec<Isolation>,
    /// How long the user expects the pod to run, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration: Option<u64>,
    /// How long the pod must have run before it may be preempted, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<u64>,
    /// The DRA claim behind this ask. Unused for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimUid>,
}

impl GpuAsk {
    /// The layout this code writes.
    pub const VERSION: u32 = 1;

    /// An ask of `containers` with nothing said about the rest.
    pub fn of(dialect: Dialect, containers: Vec<ContainerAsk>) -> GpuAsk {
        GpuAsk {
            v: GpuAsk::VERSION,
            dialect,
            containers,
            class: None,
            priority: 0,
            models: ModelRule::default(),
            devices: DeviceRule::default(),
            topology: Topology::default(),
            gang: None,
            policy: None,
            isolation: Vec::new(),
            expected_duration: None,
            min_runtime: None,
            claim: None,
        }
    }
}

/// How a manifest spelled its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `divvy.dev/*`.
    #[default]
    Native,
    /// `sharedgpu/*` labels.
    Kubeshare,
    /// `KubeDevice/DeviceInfo`.
    Kubegpu,
    /// `tencent.com/vcuda-*`: gpu-manager, and GPUSharing on top of it.
    GpuManager,
    /// `aliyun.com/gpu-mem`.
    Gpushare,
    /// `nvidia.com/gpu*` and `cambricon.com/*`, read as 4paradigm's vGPU scheduler did.
    Vgpu,
    /// The same names, read as HAMi does.
    Hami,
}

/// What one container asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAsk {
    /// The container's name.
    pub name: ContainerName,
    /// When it runs, which decides how its ask adds up with the others'.
    #[serde(default)]
    pub role: Role,
    /// Its requests, one per kind (and size) of device.
    pub wants: Vec<DeviceAsk>,
}

/// When a container runs. Kubernetes' rule: init containers run one after another before the main ones (maximum), sidecars from
/// their turn on beside everything that follows (sum).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An ordinary container.
    #[default]
    Main,
    /// An init container that ends before the next begins.
    Init,
    /// An init container that keeps running (`restartPolicy: Always`).
    Sidecar,
}

/// A number of distinct devices of one kind, each with the same slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceAsk {
    /// The kind of device.
    #[serde(default)]
    pub kind: DeviceKind,
    /// How many distinct devices.
    pub count: u32,
    /// Memory per device: what is booked and guaranteed.
    #[serde(default)]
    pub memory: MemoryAsk,
    /// Memory per device the container may grow to; absent means no more than `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryAsk>,
    /// Time per device: what is booked and guaranteed. Zero books nothing.
    #[serde(default)]
    pub share: Share,
    /// Time per device the container may use when others are idle. Never below `share`.
    #[serde(default = "whole")]
    pub share_limit: Share,
    /// Nobody else on the device, whatever is left of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// A hardware partition by the vendor's name (`1g.5gb`). `count` then counts partitions, and several may lie on one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Arc<str>>,
    /// Where each device of this request must lie, for dialects that spell it out (KubeGPU); empty leaves it to `topology`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupAsk>,
}

fn whole() -> Share {
    Share::WHOLE
}

/// One device on which nothing is booked and whose idle time may be used.
impl Default for DeviceAsk {
    fn default() -> DeviceAsk {
        DeviceAsk {
            kind: DeviceKind::Gpu,
            count: 1,
            memory: MemoryAsk::Nothing,
            memory_limit: None,
            share: Share::ZERO,
            share_limit: Share::WHOLE,
            exclusive: false,
            partition: None,
            groups: None,
        }
    }
}

impl DeviceAsk {
    /// `count` whole devices with nobody else on them.
    pub fn whole(count: u32) -> DeviceAsk {
        DeviceAsk {
            count,
            memory: MemoryAsk::Part(Share::WHOLE),
            share: Share::WHOLE,
            exclusive: true,
            ..DeviceAsk::default()
        }
    }

    /// Will nothing else be on the device? A share of 1000 does not say so: beside it a share of 0 can be booked.
    pub fn is_alone(&self) -> bool {
        self.exclusive || (self.kind == DeviceKind::Mlu && self.memory == MemoryAsk::Nothing)
    }
}

/// Memory asked per device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryAsk {
    /// Books nothing. As a limit: whatever the device has left.
    #[default]
    Nothing,
    /// So many bytes.
    Bytes(Bytes),
    /// So many thousandths of the device's bookable memory, rounded down.
    Part(Share),
    /// So many of the node's own units (Aliyun gpushare).
    NodeUnits(u64),
}

/// KubeGPU's request tree for one container, in its own hierarchical names (`resource/group/gpugrp1/A/gpugrp0/B/gpu/0/cards`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupAsk {
    /// True where the scheduler chooses the topology itself; false where the requests below are binding.
    pub auto: bool,
    /// Name to amount, as given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, i64>,
    /// Name to scorer number, as given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scorers: BTreeMap<String, i32>,
}

/// A pod's standing when there is not enough for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Runs in gaps and makes room first.
    Opportunistic,
    /// Has its share by right.
    Guarantee,
}

/// Which models a pod may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRule {
    /// Only these, in order of preference; empty accepts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<ModelPattern>,
    /// Never these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<ModelPattern>,
}

impl ModelRule {
    /// Most patterns of a list: more than there are models on the market. Each is compared with every model of a cluster, and remembered
    /// for a while after its pod is gone: twice as many make that twice as long and as large.
    pub const MOST: usize = 64;
    /// Most bytes of a pattern: no card's name is longer (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
    pub const LONGEST: usize = 96;

    /// Does it keep to what may be written?
    pub fn is_bounded(&self) -> bool {
        let bounded =
            |list: &[ModelPattern]| list.len() <= Self::MOST && list.iter().all(|p| p.text().len() <= Self::LONGEST);
        bounded(&self.only) && bounded(&self.avoid)
    }

    /// How many of the models are preferred to this one; absent where it will not do.
    pub fn preference(&self, model: &str) -> Option<usize> {
        let first = |patterns: &[ModelPattern]| patterns.iter().position(|pattern| pattern.accepts(model));
        let place = if self.only.is_empty() { Some(0) } else { first(&self.only) };
        place.filter(|_| first(&self.avoid).is_none())
    }
}

/// How a model is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModelPattern {
    /// The whole name (KubeShare). Blanks, dashes and letter case are alike, here and below: `Tesla T4` is `Tesla-T4`.
    Exact(Arc<str>),
    /// Part of the name (native, vGPU, HAMi), with its vendor's or without: `a100` accepts `NVIDIA-A100-SXM4-40GB`, and
    /// `nvidia-tesla` accepts `Tesla-T4`.
    Part(Arc<str>),
}

impl ModelPattern {
    /// What is written.
    pub fn text(&self) -> &str {
        let (ModelPattern::Exact(text) | ModelPattern::Part(text)) = self;
        text
    }

    /// Does this name the model?
    pub fn accepts(&self, model: &str) -> bool {
        match self {
            ModelPattern::Exact(name) => same_model(model, name),
            ModelPattern::Part(part) => mentions(model, part) || mentions_with_vendor(model, part),
        }
    }
}

/// Which devices a pod may run on, by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRule {
    /// Only these; empty accepts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<DeviceId>,
    /// Never these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<DeviceId>,
}

/// How the devices of one container must lie to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Topology {
    /// As close as possible, but anything will do.
    #[default]
    Best,
    /// Every pair at least this close.
    AtLeast(Link),
    /// All on one NUMA node.
    SameNuma,
    /// All containers of the pod on the same device.
    SameDevice,
    /// As far apart as possible.
    Spread,
}

/// Membership of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gang {
    /// Its name within the namespace.
    pub name: Arc<str>,
    /// How many members it will have.
    pub size: u32,
    /// How many must be placed together before any may start.
    pub min: u32,
}

/// A placement policy chosen by a user, with what its dialect lets a pod add to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChoice {
    /// The policy's name (`frag`, `binpack`, `hami`, ...); absent keeps the default one and changes only what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Settings of that policy, by name (HAMi: `node`, `gpu`, `weights`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

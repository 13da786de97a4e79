//! The custom resource: the same fields as the core's and the dialects' own, each optional, with a schema people can read.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the cluster's GPUs are shared. There is one object, called `default`; every field may be left out.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuPolicy",
    plural = "gpupolicies",
    shortname = "gpupol",
    category = "divvy",
    status = "GpuPolicyStatus",
    doc = "How the cluster's GPUs are shared. The one that counts is called `default`.",
    derive = "Default",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'default'").message("there is one GpuPolicy, and it is called default"),
    printcolumn = r#"{"name":"Placement","type":"string","jsonPath":".spec.placement.name"}"#,
    printcolumn = r#"{"name":"nvidia.com/gpu","type":"string","jsonPath":".spec.dialects.nvidia"}"#,
    printcolumn = r#"{"name":"Followed","type":"string","jsonPath":".status.conditions[?(@.type=='Followed')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuPolicySpec {
    /// How pods are placed for which nothing else says otherwise. `frag` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// How pods of a dialect are placed. Without this each dialect's pods are placed as its own system does; with it, dialects that
    /// are left out are placed like any other pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.all(d, d in ['native', 'kubeshare', 'kubegpu', 'gpu-manager', 'gpushare', 'vgpu', 'hami'])")
        .message("dialects are native, kubeshare, kubegpu, gpu-manager, gpushare, vgpu and hami"))]
    pub by_dialect: Option<BTreeMap<String, Placement>>,
    /// The node label whose value names a node's pool. `divvy.dev/pool` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_label: Option<String>,
    /// How pods are placed on the nodes of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_pool: Option<BTreeMap<String, Placement>>,
    /// Most containers that may share one card, whatever the card says. `devices.byNode` may say otherwise for a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_tasks: Option<u32>,
    /// What GPU models are worth to each other, 0 to 100 (KubeShare's cell priority).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.all(m, self[m] >= 0 && self[m] <= 100)").message("a model's priority is 0 to 100"))]
    pub model_priority: Option<BTreeMap<String, i32>>,
    /// What an hour of a whole device costs, in thousandths of the currency, by a part of its model's name (`H200`): for budgets of
    /// money that say neither a price for it nor an `otherPrice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_prices: Option<BTreeMap<String, u64>>,
    /// KubeShare's topology file (`cellTypes` and `cells`), as its users have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// The class of a pod about which neither its manifest nor a budget says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Who goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Gangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gangs: Option<Gangs>,
    /// Eviction of lesser pods for greater ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// Moving opportunistic pods so that a waiting one fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragment: Option<Defragment>,
    /// How manifests are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialects: Option<Dialects>,
    /// About devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
}

/// What became of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuPolicyStatus {
    /// The generation this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Followed`: whether the services act on it, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// One word.
    #[serde(default)]
    pub reason: String,
    /// One sentence.
    #[serde(default)]
    pub message: String,
    /// Since when.
    #[serde(default)]
    pub last_transition_time: String,
}

/// A way of placing: its name and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Placement {
    /// Which way.
    pub name: PlacementName,
    /// Settings, by name (`hami`: `node`, `gpu`, `weights`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// The ways of placing there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementName {
    /// Where the least of what could still be hosted is lost.
    Frag,
    /// On the fullest node and device that fits.
    Binpack,
    /// On the emptiest.
    Spread,
    /// KubeShare's.
    Kubeshare,
    /// KubeGPU's.
    Kubegpu,
    /// Aliyun gpushare's.
    Gpushare,
    /// gpu-manager's.
    GpuManager,
    /// 4paradigm's vGPU scheduler's.
    Vgpu,
    /// HAMi's.
    Hami,
}

/// A pod's standing when there is not enough for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Has its share by right.
    Guarantee,
    /// Runs in gaps and makes room first.
    Opportunistic,
}

/// Who goes first: class, then PriorityClass, then the dialect's priority, then the namespace that had least for its weight, then age.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// What each namespace is worth; 1 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<BTreeMap<String, u32>>,
    /// After so many seconds, what a namespace has used counts half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub half_life: Option<u64>,
    /// A pod or gang that has waited so many seconds gets devices reserved; zero never reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_after: Option<u64>,
    /// Most pods and gangs with reservations at any one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<u32>,
}

/// Gangs: all or nothing at the declared minimum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gangs {
    /// Seconds per member that a gang may hold devices while its last members are not bound yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_per_member: Option<u64>,
}

/// Eviction of lesser pods for greater ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Preemption {
    /// Evict at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds a pod must have run before it may be evicted, where it does not say itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<u64>,
    /// Most seconds that a pod may say itself (a day where nothing is said here). Where it says more, it has these; what an opportunistic
    /// pod says counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_min_runtime: Option<u64>,
}

/// Moving opportunistic pods so that a waiting one fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Defragment {
    /// Look for moves, and say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propose: Option<bool>,
    /// Do them: evict the pods, which are then placed elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<bool>,
    /// Most moves for one waiting pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<u32>,
}

/// KubeShare's topology file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cells {
    /// What kinds of cells there are.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub cell_types: serde_json::Value,
    /// The roots.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub cells: serde_json::Value,
}

/// Cells contain cells: a schema cannot say that, the reader checks it.
fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// How manifests are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dialects {
    /// Scheduler names that mean ours, besides those of the emulated systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_aliases: Option<Vec<String>>,
    /// How `nvidia.com/gpu` and its relatives are read: `hami` (a card without memory is a whole card for oneself), `vgpu` (all its
    /// memory, its time shared) or `kubegpu` (as `hami`, and a bare count is KubeGPU's, also without its annotation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<NvidiaFlavour>,
    /// The names and defaults of the vGPU scheduler's chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vgpu: Option<Vgpu>,
    /// How `tencent.com/vcuda-*` is read: `gpu-sharing` (core and memory always together) or `gpu-manager` (whole cards by core alone).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcuda: Option<VcudaFlavour>,
    /// What is done about a pod that brings a way around its grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
}

/// Which system's reading of `nvidia.com/gpu` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NvidiaFlavour {
    /// HAMi's.
    Hami,
    /// 4paradigm's.
    Vgpu,
    /// KubeGPU's.
    Kubegpu,
}

/// Who governs `tencent.com/vcuda-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VcudaFlavour {
    /// GPUSharing.
    GpuSharing,
    /// Plain gpu-manager.
    GpuManager,
}

/// What the 4paradigm and HAMi charts let an administrator set about asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vgpu {
    /// The resource names in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<VgpuNames>,
    /// Memory per card in MiB where an ask names none; 0 means all of the card's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_mem: Option<u32>,
    /// Cores per card in percent where an ask names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub default_cores: Option<u32>,
    /// Cards where an ask names only memory or cores.
    #[serde(default, rename = "defaultGPUNum", skip_serializing_if = "Option::is_none")]
    pub default_gpu_num: Option<u32>,
    /// What one unit of the memory resource is, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_factor: Option<u32>,
    /// What `gpucores` means for a container that is alone on its card: `force`, `default` or `disable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_policy: Option<CorePolicy>,
}

/// `GPU_CORE_UTILIZATION_POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CorePolicy {
    /// Never more, also when nobody else is there.
    Force,
    /// Idle time besides.
    Default,
    /// As `default`.
    Disable,
}

/// The names under which an administrator has users ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VgpuNames {
    /// Number of cards (`nvidia.com/gpu`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// Memory per card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_mem: Option<String>,
    /// Memory per card, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_mem_percentage: Option<String>,
    /// Cores per card, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_cores: Option<String>,
    /// Priority on the card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_priority: Option<String>,
    /// Number of MLUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlu_resource_name: Option<String>,
    /// Memory per MLU, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlu_resource_mem: Option<String>,
}

/// What is done about ways around a grant: `refuse` (the default) or `allow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Guard {
    /// A privileged container opens every device of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<OnTrick>,
    /// `NVIDIA_VISIBLE_DEVICES` set by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<OnTrick>,
    /// `spec.nodeName` passes by the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<OnTrick>,
    /// `CUDA_DISABLE_CONTROL` switched the emulated systems' limits off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_switch: Option<OnTrick>,
}

/// Refuse a pod, or let it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnTrick {
    /// The pod is refused.
    Refuse,
    /// The platform team takes it on itself.
    Allow,
}

/// About devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Devices {
    /// Memory that may be promised, in thousandths of what a device has: 1800 promises 1.8 times as much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub memory_oversubscription: Option<u32>,
    /// Time that may be promised, in thousandths of what a device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub share_oversubscription: Option<u32>,
    /// Only nodes that somebody opted in by a label are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_opted_in_nodes: Option<bool>,
    /// Nodes, by name, for which something else holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_node: Option<BTreeMap<String, NodeDevices>>,
}

/// About the devices of one node. What is left out is as for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeDevices {
    /// Memory that may be promised, in thousandths of what a device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub memory_oversubscription: Option<u32>,
    /// Time that may be promised, in thousandths of what a device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub share_oversubscription: Option<u32>,
    /// Most containers that may share one card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_tasks: Option<u32>,
}

//! What the platform team decides about reading manifests. Part of the cluster's policy; the defaults suit a cluster that decided nothing.

use divvy_core::keys;
use serde::{Deserialize, Serialize};

/// How manifests are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DialectConfig {
    /// Scheduler names that mean ours, besides those of the emulated systems.
    pub scheduler_aliases: Vec<String>,
    /// Names of placement policies that users may choose, besides the built-in ones.
    pub policies: Vec<String>,
    /// How `nvidia.com/gpu` and its relatives are read.
    pub nvidia: NvidiaFlavour,
    /// The names and defaults of the vGPU scheduler's chart.
    pub vgpu: VgpuConfig,
    /// How `tencent.com/vcuda-*` is read.
    pub vcuda: VcudaFlavour,
    /// What is done about ways around a grant.
    pub guard: Guard,
}

/// Which system's reading of `nvidia.com/gpu` holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvidiaFlavour {
    /// HAMi's: a card asked for without memory is a whole card for oneself.
    #[default]
    Hami,
    /// 4paradigm's: a card asked for without memory is all its memory, its time shared.
    Vgpu,
    /// KubeGPU's: a bare count is a request of its own, placed and answered as with its annotation. All else is HAMi's.
    Kubegpu,
}

/// Who governs `tencent.com/vcuda-*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VcudaFlavour {
    /// GPUSharing: core and memory are given together, always.
    #[default]
    GpuSharing,
    /// Plain gpu-manager: whole cards may be asked for by core alone.
    GpuManager,
}

/// What the 4paradigm and HAMi charts let an administrator set about asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VgpuConfig {
    /// The resource names in use.
    pub names: VgpuNames,
    /// Memory per card in MiB (times the factor) where an ask names none; 0 means all of the card's.
    pub default_mem: u32,
    /// Cores per card in percent where an ask names none.
    pub default_cores: u32,
    /// Cards where an ask names only memory or cores (HAMi).
    #[serde(rename = "defaultGPUNum")]
    pub default_gpu_num: u32,
    /// What one unit of the memory resource is, in MiB (HAMi).
    pub memory_factor: u32,
    /// What `gpucores` means for a container that is alone on its card, where the container does not say.
    pub core_policy: CorePolicy,
}

impl Default for VgpuConfig {
    fn default() -> VgpuConfig {
        VgpuConfig {
            names: VgpuNames::default(),
            default_mem: 0,
            default_cores: 0,
            default_gpu_num: 1,
            memory_factor: 1,
            core_policy: CorePolicy::Force,
        }
    }
}

/// `GPU_CORE_UTILIZATION_POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorePolicy {
    /// Never more than `gpucores`, also when nobody else is there.
    Force,
    /// `gpucores` under contention, idle time besides.
    Default,
    /// As `default`: there is no way to switch sharing off.
    Disable,
}

/// The names under which an administrator has users ask (`resourceName`, `resourceMem`, ... of the charts).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VgpuNames {
    /// Number of cards.
    pub resource_name: String,
    /// Memory per card.
    pub resource_mem: String,
    /// Memory per card, in percent.
    pub resource_mem_percentage: String,
    /// Cores per card, in percent.
    pub resource_cores: String,
    /// Priority on the card.
    pub resource_priority: String,
    /// Number of MLUs.
    pub mlu_resource_name: String,
    /// Memory per MLU, in MiB.
    pub mlu_resource_mem: String,
}

impl Default for VgpuNames {
    fn default() -> VgpuNames {
        VgpuNames {
            resource_name: keys::VGPU_COUNT.into(),
            resource_mem: keys::VGPU_MEMORY.into(),
            resource_mem_percentage: keys::VGPU_MEMORY_PERCENTAGE.into(),
            resource_cores: keys::VGPU_CORES.into(),
            resource_priority: keys::VGPU_PRIORITY.into(),
            mlu_resource_name: keys::MLU_COUNT.into(),
            mlu_resource_mem: keys::MLU_MEMORY.into(),
        }
    }
}

/// What is done about a pod that asks for a device and brings a way around its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Guard {
    /// A privileged container opens every device of its node. (HAMi's flavour refuses it always, 4paradigm's passes it by.) The right to
    /// mount, the node's processes and its folders with devices and limits are as good.
    pub privileged: OnTrick,
    /// `NVIDIA_VISIBLE_DEVICES` set by hand chooses devices behind the scheduler's back.
    pub visible_devices: OnTrick,
    /// `spec.nodeName` passes by the scheduler, so that there is no grant.
    pub node_name: OnTrick,
    /// `CUDA_DISABLE_CONTROL` switched the emulated systems' limits off.
    pub off_switch: OnTrick,
}

/// Refuse a pod, or let it pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTrick {
    /// The pod is refused.
    #[default]
    Refuse,
    /// The platform team takes it on itself.
    Allow,
}

impl DialectConfig {
    /// What an administrator wrote that cannot be meant; empty if all is well.
    pub fn problems(&self) -> Vec<String> {
        let names = &self.vgpu.names;
        let named = [
            ("resourceName", &names.resource_name),
            ("resourceMem", &names.resource_mem),
            ("resourceMemPercentage", &names.resource_mem_percentage),
            ("resourceCores", &names.resource_cores),
            ("resourcePriority", &names.resource_priority),
            ("mluResourceName", &names.mlu_resource_name),
            ("mluResourceMem", &names.mlu_resource_mem),
        ];
        let mut problems = Vec::new();
        for (n, (field, name)) in named.iter().enumerate() {
            let mut parts = name.split('/');
            let (domain, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if domain.is_empty() || rest.is_empty() || parts.next().is_some() {
                problems.push(format!("vgpu.names.{field}: {name:?} is not an extended resource; write domain/name"));
            }
            if name.starts_with(keys::DOMAIN) {
                problems
                    .push(format!("vgpu.names.{field}: {name:?} is one of Divvy's own names; choose another domain"));
            }
            if let Some((other, _)) = named[..n].iter().find(|(_, earlier)| earlier == name) {
                problems
                    .push(format!("vgpu.names.{field}: {name:?} is the name of {other} already; give each its own"));
            }
        }
        if self.vgpu.default_cores > 100 {
            problems.push(format!(
                "vgpu.defaultCores: {} is more than a card has; write 0 to 100",
                self.vgpu.default_cores
            ));
        }
        if self.vgpu.memory_factor == 0 {
            problems.push("vgpu.memoryFactor: 0 makes every request nothing; write 1 or more".into());
        }
        for alias in self.scheduler_aliases.iter().filter(|alias| alias.is_empty() || *alias == keys::DEFAULT_SCHEDULER)
        {
            problems
                .push(format!("schedulerAliases: {alias:?} would make every pod ours; name a scheduler of its own"));
        }
        problems
    }

    /// Does a pod with this `schedulerName` belong to our scheduler?
    pub fn is_our_scheduler(&self, name: &str) -> bool {
        name == keys::SCHEDULER
            || keys::SCHEDULER_ALIASES.contains(&name)
            || self.scheduler_aliases.iter().any(|alias| alias == name)
    }
}

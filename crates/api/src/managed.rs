//! The extended resources that stand for devices, in every dialect.

use std::collections::BTreeSet;

use divvy_core::keys;
use divvy_dialects::DialectConfig;

/// Prefixes of resources that stand for devices.
pub const PREFIXES: [&str; 3] = [keys::DOMAIN, keys::VGPU_MIG, keys::HYGON_DOMAIN];

/// Names of resources that stand for devices, as this cluster's policy has them.
pub fn names(dialects: &DialectConfig) -> BTreeSet<String> {
    let renamed = &dialects.vgpu.names;
    [
        keys::VCUDA_CORE,
        keys::VCUDA_MEMORY,
        keys::GPUSHARE_MEMORY,
        keys::GPUSHARE_COUNT,
        keys::VGPU_COUNT,
        keys::VGPU_MEMORY,
        keys::VGPU_MEMORY_PERCENTAGE,
        keys::VGPU_CORES,
        keys::VGPU_PRIORITY,
        keys::MLU_COUNT,
        keys::MLU_MEMORY,
        keys::HAMI_MLU_COUNT,
        keys::HAMI_MLU_MEMORY,
        keys::HAMI_MLU_CORES,
        keys::KUBEGPU_COUNT_2018,
        &renamed.resource_name,
        &renamed.resource_mem,
        &renamed.resource_mem_percentage,
        &renamed.resource_cores,
        &renamed.resource_priority,
        &renamed.mlu_resource_name,
        &renamed.mlu_resource_mem,
    ]
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// Does this resource stand for devices? The slot, which the kubelet itself counts, does not.
pub fn is_managed(names: &BTreeSet<String>, resource: &str) -> bool {
    resource != keys::SLOT && (names.contains(resource) || PREFIXES.iter().any(|prefix| resource.starts_with(prefix)))
}

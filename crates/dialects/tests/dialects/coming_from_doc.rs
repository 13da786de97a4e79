//! docs/coming-from: nothing a user of the five systems has is left without an answer.

use divvy_core::keys::*;

const KUBESHARE: &str = include_str!("../../../../docs/guides/coming-from/kubeshare.md");
const KUBEGPU: &str = include_str!("../../../../docs/guides/coming-from/kubegpu.md");
const GPU_MANAGER: &str = include_str!("../../../../docs/guides/coming-from/gpu-manager.md");
const GPUSHARE: &str = include_str!("../../../../docs/guides/coming-from/gpushare.md");
const VGPU: &str = include_str!("../../../../docs/guides/coming-from/vgpu-hami.md");

/// The last part of a key: tables shorten the domain where it is clear.
fn short(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

#[test]
fn every_key_of_every_dialect_is_explained() {
    for (document, keys) in [
        (
            KUBESHARE,
            vec![
                KUBESHARE_REQUEST,
                KUBESHARE_LIMIT,
                KUBESHARE_MEMORY,
                KUBESHARE_MODEL,
                KUBESHARE_PRIORITY,
                KUBESHARE_GROUP,
                KUBESHARE_POD_GROUP,
                KUBESHARE_HEADCOUNT,
                KUBESHARE_THRESHOLD,
                KUBESHARE_MIN_AVAILABLE,
                KUBESHARE_CELL_ID,
                KUBESHARE_PORT,
                KUBESHARE_NODE,
            ],
        ),
        (KUBEGPU, vec![KUBEGPU_DEVICE_INFO, KUBEGPU_POD_2018, KUBEGPU_COUNT_2018, KUBEGPU_TOPOLOGY, VGPU_COUNT]),
        (
            GPU_MANAGER,
            vec![VCUDA_CORE, VCUDA_MEMORY, VCUDA_CORE_LIMIT, VCUDA_GPU_INDEX, VCUDA_NODE, VCUDA_TIME, VCUDA_ASSIGNED],
        ),
        (GPUSHARE, vec![GPUSHARE_MEMORY, GPUSHARE_COUNT, GPUSHARE_INDEX, GPUSHARE_NODE]),
        (
            VGPU,
            vec![
                VGPU_COUNT,
                VGPU_MEMORY,
                VGPU_MEMORY_PERCENTAGE,
                VGPU_CORES,
                VGPU_PRIORITY,
                VGPU_USE_TYPE,
                VGPU_NO_USE_TYPE,
                VGPU_USE_UUID,
                VGPU_NO_USE_UUID,
                VGPU_NUMA_BIND,
                VGPU_MODE,
                HAMI_NODE_POLICY,
                HAMI_GPU_POLICY,
                HAMI_WEIGHTS,
                HAMI_CORDON,
                VGPU_WEBHOOK,
                HAMI_WEBHOOK,
                MLU_COUNT,
                MLU_MEMORY,
                HAMI_MLU_COUNT,
                HAMI_MLU_MEMORY,
                HAMI_MLU_CORES,
            ],
        ),
    ] {
        for key in keys {
            assert!(document.contains(short(key).trim_end_matches('-')), "{key} is not explained");
        }
    }
}

#[test]
fn every_value_of_4paradigms_chart_has_a_row() {
    let rows: Vec<&str> = VGPU.lines().filter(|line| line.starts_with("| `")).collect();
    for value in [
        "resourceName",
        "resourceMem",
        "resourceMemPercentage",
        "resourceCores",
        "resourcePriority",
        "mluResourceName",
        "mluResourceMem",
        "dcuResourceName",
        "dcuResourceMem",
        "dcuResourceCores",
        "iluvatarResourceName",
        "iluvatarResourceMem",
        "iluvatarResourceCore",
        "schedulerName",
        "global.gpuHookPath",
        "scheduler.defaultMem",
        "scheduler.defaultCores",
        "scheduler.nodeName",
        "scheduler.metricsBindAddress",
        "scheduler.kubeScheduler.imageTag",
        "scheduler.customWebhook",
        "scheduler.mutatingWebhookConfiguration.failurePolicy",
        "scheduler.service.httpPort",
        "scheduler.service.schedulerPort",
        "scheduler.service.monitorPort",
        "devicePlugin.deviceSplitCount",
        "devicePlugin.deviceMemoryScaling",
        "devicePlugin.deviceCoreScaling",
        "devicePlugin.migStrategy",
        "devicePlugin.disablecorelimit",
        "devicePlugin.service.httpPort",
        "devicePlugin.libPath",
        "devicePlugin.nvidianodeSelector",
        "devicePlugin.runtimeClassName",
    ] {
        let first_cell = |row: &&&str| row.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{value}`")));
        assert!(rows.iter().any(|row| first_cell(&row)), "{value} has no row");
    }
}

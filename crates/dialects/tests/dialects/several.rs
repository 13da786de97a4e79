//! Pods that speak two dialects, and what holds for all of them.

use divvy_core::ask::{Class, Dialect, Gang};
use divvy_core::keys::*;
use divvy_core::units::Share;
use divvy_dialects::{DialectConfig, pod_templates};
use serde_json::json;

use crate::support::{bare, pod, wrong_keys};

#[test]
fn two_dialects_that_disagree_are_both_named() {
    let refusal = pod(&[(VGPU_COUNT, "1")]).label(KUBESHARE_REQUEST, "0.5").label(KUBESHARE_LIMIT, "1.0").refusal();
    assert_eq!(
        refusal,
        "container main: resource nvidia.com/gpu: two dialects disagree: KubeShare (label sharedgpu/gpu_limit) asks for 1 GPU (0.5 of the \
         memory, 0.5 to 1 of its time) for container main, but HAMi (container main: resource nvidia.com/gpu) asks for 1 whole GPU (all \
         memory) for container main; write the request in one dialect and remove the other's keys"
    );
}

#[test]
fn two_dialects_that_say_the_same_are_no_disagreement() {
    let ask = pod(&[(GPU, "2"), (VGPU_COUNT, "2")]).ask();
    assert_eq!(ask.dialect, Dialect::Native);
    let ask = pod(&[(VGPU_COUNT, "1"), (GPUSHARE_COUNT, "1")]).ask();
    assert_eq!(ask.dialect, Dialect::Gpushare);
}

#[test]
fn a_second_dialect_spoken_wrongly_is_reported_with_the_first() {
    let mistakes = pod(&[(GPU, "2"), (VCUDA_CORE, "150"), (VCUDA_MEMORY, "1")]).mistakes();
    assert_eq!(wrong_keys(&mistakes), [VCUDA_CORE, VCUDA_CORE]);
    assert!(mistakes[1].problem.contains("speaks two dialects: Divvy"), "{}", mistakes[1]);
}

#[test]
fn dialects_in_different_containers_are_a_disagreement_too() {
    let refusal = bare().container("a", &[(GPUSHARE_MEMORY, "3")]).container("b", &[(VGPU_MEMORY, "3000")]).refusal();
    assert!(refusal.contains("Aliyun gpushare") && refusal.contains("HAMi"), "{refusal}");
}

#[test]
fn native_annotations_stand_beside_any_dialect() {
    let ask = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "3000"), (VGPU_CORES, "30")])
        .annotation(GANG, "g")
        .annotation(GANG_SIZE, "2")
        .annotation(CLASS, "opportunistic")
        .annotation(GPU_SHARE_LIMIT, "800")
        .ask();
    assert_eq!(ask.dialect, Dialect::Hami);
    assert_eq!(ask.gang, Some(Gang { name: "g".into(), size: 2, min: 2 }));
    assert_eq!(ask.class, Some(Class::Opportunistic));
    assert_eq!(ask.containers[0].wants[0].share_limit, Share(800), "burst, where the dialect only knows a cap");
}

#[test]
fn native_annotations_that_contradict_the_dialect_are_refused() {
    let grouped = pod(&[])
        .label(KUBESHARE_REQUEST, "0.5")
        .label(KUBESHARE_LIMIT, "1.0")
        .label(KUBESHARE_GROUP, "a")
        .label(KUBESHARE_PRIORITY, "50")
        .annotation(GANG, "b")
        .annotation(GANG_SIZE, "2")
        .annotation(CLASS, "opportunistic");
    assert_eq!(wrong_keys(&grouped.mistakes()), [CLASS, GANG]);
    let low = pod(&[(VCUDA_CORE, "50"), (VCUDA_MEMORY, "1")]).annotation(GPU_SHARE_LIMIT, "300");
    assert_eq!(wrong_keys(&low.mistakes()), [GPU_SHARE_LIMIT]);
}

#[test]
fn scheduler_names_of_the_emulated_systems_are_aliases() {
    let config = DialectConfig { scheduler_aliases: vec!["gpu-scheduler".into()], ..DialectConfig::default() };
    for name in ["divvy", "kubeshare-scheduler", "4pd-scheduler", "hami-scheduler", "gpu-scheduler"] {
        assert!(config.is_our_scheduler(name), "{name}");
    }
    assert!(!config.is_our_scheduler("default-scheduler"));
    assert!(!DialectConfig::default().is_our_scheduler("gpu-scheduler"));
}

#[test]
fn templates_are_found_in_every_workload() {
    let template = json!({ "spec": { "containers": [] } });
    for workload in [
        json!({ "kind": "Job", "spec": { "template": template } }),
        json!({ "kind": "CronJob", "spec": { "jobTemplate": { "spec": { "template": template } } } }),
        json!({ "kind": "List", "items": [{ "kind": "Deployment", "spec": { "template": template } }] }),
    ] {
        assert_eq!(pod_templates(&workload), [&template]);
    }
    let pod = json!({ "kind": "Pod", "spec": {} });
    assert_eq!(pod_templates(&pod), [&pod]);
    assert!(pod_templates(&json!({ "kind": "Service", "spec": {} })).is_empty());
}

#[test]
fn the_configuration_is_read_as_an_administrator_writes_it() {
    let text = json!({ "nvidia": "vgpu", "vcuda": "gpu-manager", "vgpu": { "defaultMem": 5000, "defaultGPUNum": 2, "corePolicy": "default",
        "names": { "resourceName": "example.com/gpu" } }, "guard": { "privileged": "allow" }, "schedulerAliases": ["a"] });
    let config: DialectConfig = serde_json::from_value(text).unwrap();
    assert_eq!(config.vgpu.names.resource_name, "example.com/gpu");
    assert_eq!(config.vgpu.names.resource_mem, VGPU_MEMORY);
    assert!(serde_json::from_value::<DialectConfig>(json!({ "nvida": "vgpu" })).is_err(), "a slip is noticed");
    let again: DialectConfig = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
    assert_eq!(again, config);
}

#[test]
fn a_configuration_that_cannot_be_meant_says_so() {
    assert!(DialectConfig::default().problems().is_empty());
    let config: DialectConfig = serde_json::from_value(json!({
        "schedulerAliases": ["default-scheduler"],
        "vgpu": { "defaultCores": 150, "memoryFactor": 0,
            "names": { "resourceName": "cpu", "resourceMem": VGPU_CORES, "resourcePriority": GPU } },
    }))
    .unwrap();
    let problems = config.problems();
    for part in [
        "\"cpu\" is not an extended resource",
        "is the name of resourceMem already",
        "one of Divvy's own",
        "defaultCores: 150",
        "memoryFactor: 0",
        "\"default-scheduler\" would make every pod ours",
    ] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:#?}");
    }
    assert_eq!(problems.len(), 6, "{problems:#?}");
}

use std::collections::BTreeSet;

use divvy_core::ask::{Class, Dialect};
use divvy_core::policy::Placement;
use kube::CustomResourceExt;
use serde_json::json;

use super::*;

fn read(spec: Value) -> Result<ClusterPolicy, String> {
    let spec: GpuPolicySpec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
    ClusterPolicy::read(&spec).map_err(|e| e.to_string())
}

#[test]
fn an_empty_policy_is_the_default_one() {
    assert_eq!(read(json!({})).unwrap(), ClusterPolicy::default());
}

#[test]
fn every_part_reaches_whom_it_concerns() {
    let policy = read(json!({
        "placement": {"name": "binpack"},
        "byDialect": {"hami": {"name": "hami", "settings": {"node": "spread"}}},
        "byPool": {"inference": {"name": "spread"}},
        "maxTasks": 10,
        "modelPriority": {"H200": 100},
        "modelPrices": {"H200": 4000},
        "class": "opportunistic",
        "queue": {"weights": {"team-a": 3}, "reserveAfter": 0},
        "gangs": {"timeoutPerMember": 5},
        "preemption": {"enabled": false},
        "dialects": {"nvidia": "vgpu", "schedulerAliases": ["volcano"], "vgpu": {"names": {"resourceName": "acme.com/gpu"}, "defaultGPUNum": 2},
                     "guard": {"privileged": "allow"}},
        "devices": {"memoryOversubscription": 1800, "onlyOptedInNodes": true},
    }))
    .unwrap();
    assert_eq!(policy.scheduling.placement, Placement::Binpack);
    assert_eq!(policy.scheduling.by_dialect.keys().collect::<Vec<_>>(), [&Dialect::Hami]);
    assert_eq!((policy.scheduling.max_tasks, policy.scheduling.class), (Some(10), Class::Opportunistic));
    assert_eq!(policy.scheduling.queue.reserve_after, 0);
    assert_eq!(
        policy.scheduling.queue.half_life,
        Policy::default().queue.half_life,
        "what is left out keeps its default"
    );
    assert!(!policy.scheduling.preemption.enabled);
    assert!(policy.dialects.is_our_scheduler("volcano"));
    assert_eq!((policy.dialects.vgpu.default_gpu_num, policy.dialects.vgpu.memory_factor), (2, 1));
    assert_eq!(policy.devices, Devices { memory: Share(1800), share: Share::WHOLE, only_opted_in: true });
    let managed = policy.managed();
    assert!(
        managed("acme.com/gpu") && managed("divvy.dev/gpu-memory") && !managed("divvy.dev/slot") && !managed("cpu")
    );
}

#[test]
fn a_policy_that_cannot_be_followed_says_why() {
    let error = read(json!({"placement": {"name": "hami", "settings": {"node": "best"}}})).unwrap_err();
    assert!(error.contains("node policy `best` is neither binpack nor spread"), "{error}");
    assert!(read(json!({"placment": {}})).unwrap_err().contains("placment"));
}

/// The core and the dialects own these settings; the custom resource repeats their names. A field that one side lacks is drift.
#[test]
fn the_resource_has_every_field_of_the_core_and_the_dialects() {
    let crd = serde_json::to_value(GpuPolicy::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    compare("", &serde_json::to_value(Policy::default()).unwrap(), spec, &["dialects", "devices", "modelPrices"]);
    compare("dialects", &serde_json::to_value(DialectConfig::default()).unwrap(), &spec["dialects"]["properties"], &[]);
}

fn compare(path: &str, ours: &Value, schema: &Value, more: &[&str]) {
    let names =
        |v: &Value| -> BTreeSet<String> { v.as_object().map(|o| o.keys().cloned().collect()).unwrap_or_default() };
    let mut theirs = names(schema);
    for name in more {
        assert!(theirs.remove(*name), "{path}: {name} is missing");
    }
    // Policies users may choose are for installations that add some in code.
    let mut own = names(ours);
    own.remove("policies");
    assert_eq!(theirs, own, "fields of {path}");
    for (name, value) in ours.as_object().into_iter().flatten() {
        let fields = &schema[name]["properties"];
        if value.is_object() && fields.is_object() && name != "placement" {
            compare(&format!("{path}.{name}"), value, fields, &[]);
        }
    }
}

#[test]
fn oversubscription_promises_more_where_the_agent_is_silent() {
    let mut inventory: Inventory = serde_json::from_value(json!({"v": 1, "generation": 1, "devices": [
        {"id": "a", "index": 0, "model": "m", "memory": 1000},
        {"id": "b", "index": 1, "model": "m", "memory": 1000, "bookableMemory": 900},
        {"id": "c", "index": 2, "model": "m", "memory": 1000, "isolation": ["mig"]},
    ]}))
    .unwrap();
    Devices { memory: Share(1800), share: Share(2000), ..Devices::default() }.oversubscribe(&mut inventory);
    let bookable: Vec<u64> = inventory.devices.iter().map(|d| d.bookable_memory().0).collect();
    assert_eq!(bookable, [1800, 900, 1000], "a partition is as large as it is");
    assert_eq!(inventory.devices.iter().map(|d| d.bookable_share().0).collect::<Vec<_>>(), [2000, 2000, 1000]);
    assert_eq!(Devices { memory: Share(500), ..Devices::default() }.bookable(Bytes(10)), Bytes(5));
}

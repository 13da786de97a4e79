use std::collections::BTreeSet;

use divvy_core::ask::{Class, Dialect};
use divvy_core::policy::Placement;
use divvy_core::units::Bytes;
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
        "devices": {"memoryOversubscription": 1800, "onlyOptedInNodes": true,
                    "byNode": {"old": {"memoryOversubscription": 1000, "maxTasks": 20}, "shared": {"shareOversubscription": 2000}}},
    }))
    .unwrap();
    assert_eq!(policy.scheduling.placement, Placement::Binpack);
    assert_eq!(policy.scheduling.by_dialect.keys().collect::<Vec<_>>(), [&Dialect::Hami]);
    assert_eq!(policy.scheduling.class, Class::Opportunistic);
    assert_eq!(policy.scheduling.queue.reserve_after, 0);
    assert_eq!(
        policy.scheduling.queue.half_life,
        Policy::default().queue.half_life,
        "what is left out keeps its default"
    );
    assert!(!policy.scheduling.preemption.enabled);
    assert!(policy.dialects.is_our_scheduler("volcano"));
    assert_eq!((policy.dialects.vgpu.default_gpu_num, policy.dialects.vgpu.memory_factor), (2, 1));
    assert!(policy.devices.only_opted_in);
    let offer = |memory, share, tasks| Offer { memory: Share(memory), share: Share(share), tasks: Some(tasks) };
    assert_eq!(policy.devices.offer("any"), offer(1800, 1000, 10));
    assert_eq!(policy.devices.offer("old"), offer(1000, 1000, 20), "a node's own word counts, also where it is more");
    assert_eq!(policy.devices.offer("shared"), offer(1800, 2000, 10));
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

fn devices() -> Vec<Device> {
    serde_json::from_value(json!([
        {"id": "a", "index": 0, "model": "m", "memory": 1000},
        {"id": "b", "index": 1, "model": "m", "memory": 1000, "bookableMemory": 900, "maxTasks": 3},
        {"id": "c", "index": 2, "model": "m", "memory": 1000, "isolation": ["mig"]},
        {"id": "d", "index": 3, "model": "m", "memory": 1000, "bookableMemory": 2000, "bookableShare": 3000},
        {"id": "e", "kind": "nic", "index": 4, "model": "m", "memory": 0},
    ]))
    .unwrap()
}

fn bookable(devices: &[Device]) -> Vec<(u64, u32, Option<u32>)> {
    devices.iter().map(|d| (d.bookable_memory().0, d.bookable_share().0, d.max_tasks)).collect()
}

#[test]
fn an_agent_offers_what_the_policy_says_except_where_the_vendor_does_and_of_partitions() {
    let mut devices = devices();
    Offer { memory: Share(1800), share: Share(2000), tasks: Some(5) }.write(&mut devices);
    let (silent, partition) = ((1800, 2000, Some(5)), (1000, 1000, None));
    assert_eq!(bookable(&devices), [silent, (900, 2000, Some(3)), partition, (2000, 3000, Some(5)), (0, 1000, None)]);
    let mut once = [devices[0].clone()];
    (once[0].bookable_memory, once[0].bookable_share) = (None, None);
    Offer::default().write(&mut once);
    assert_eq!(
        (once[0].bookable_memory, once[0].bookable_share),
        (Some(Bytes(1000)), Some(Share::WHOLE)),
        "it is said"
    );
}

#[test]
fn others_go_by_the_lesser_of_what_the_agent_offers_and_the_policy_allows() {
    let mut devices = devices();
    Offer { memory: Share(1800), share: Share(2000), tasks: Some(5) }.lower(&mut devices);
    let silent = (1000, 1000, Some(5));
    let expected = [silent, (900, 1000, Some(3)), (1000, 1000, None), (1800, 2000, Some(5)), (0, 1000, None)];
    assert_eq!(bookable(&devices), expected);
    Offer { memory: Share(500), ..Offer::default() }.lower(&mut devices);
    assert_eq!(bookable(&devices).iter().map(|d| d.0).collect::<Vec<_>>(), [500, 500, 1000, 500, 0]);
}

#[test]
fn whatever_either_allows_is_as_much_as_the_greater_and_without_a_cap_where_one_has_none() {
    let offer = |memory, share, tasks| Offer { memory: Share(memory), share: Share(share), tasks };
    assert_eq!(offer(1800, 1000, Some(3)).or_more(offer(900, 2000, Some(5))), offer(1800, 2000, Some(5)));
    assert_eq!(offer(1000, 1000, Some(3)).or_more(Offer::default()), Offer::default());
}

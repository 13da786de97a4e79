use divvy_core::node::Effect;
use divvy_core::pod::TolerationValue;
use divvy_core::units::Bytes;

use super::*;

fn read(pod: Value) -> PodSeen {
    super::pod(serde_json::from_value(pod).unwrap(), |name| name.starts_with(keys::DOMAIN) && name != keys::SLOT)
}

#[test]
fn a_waiting_pod_brings_its_ask_and_what_it_needs() {
    let ask = r#"{"v":1,"dialect":"native","containers":[{"name":"c","wants":[{"count":1,"share":300}]}]}"#;
    let seen = read(json!({
        "metadata": {"name": "p", "namespace": "team", "uid": "u1", "resourceVersion": "7", "labels": {"app": "x"},
                     "annotations": {(keys::ASK): ask, (keys::CLASS_NOW): "opportunistic"},
                     "creationTimestamp": "1970-01-01T00:00:05Z"},
        "spec": {"schedulerName": "divvy", "priority": 7, "preemptionPolicy": "Never", "activeDeadlineSeconds": 60,
                 "overhead": {"cpu": "50m"},
                 "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
                 "containers": [{"name": "c", "resources": {
                    "requests": {"cpu": "500m", "memory": "2Gi", (keys::GPU): "1", (keys::SLOT): "1", "vendor.com/x": "2"}},
                    "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}]},
    }));
    let pod = &seen.pod;
    assert_eq!((seen.version.as_str(), seen.scheduler.as_str()), ("7", "divvy"));
    assert_eq!((pod.uid.as_str(), pod.key.to_string().as_str()), ("u1", "team/p"));
    assert_eq!(pod.class, Some(Class::Opportunistic));
    assert_eq!(pod.created, Time(5000));
    assert_eq!(pod.state, State::Waiting);
    assert_eq!(pod.ask.as_ref().unwrap().containers[0].wants[0].share.0, 300);
    let spec = &pod.spec;
    assert_eq!((spec.requests.cpu, spec.requests.memory), (2050, Bytes::gib(2)));
    let others: Vec<(&str, u64)> = spec.requests.other.iter().map(|(name, n)| (&**name, *n)).collect();
    assert_eq!(others, [(keys::SLOT, 1), ("vendor.com/x", 2)], "what stands for devices is the ask's business");
    assert_eq!((spec.priority, spec.never_preempts, spec.deadline), (7, true, Some(60)));
    assert_eq!(spec.host_ports, [HostPort { address: "".into(), protocol: "TCP".into(), port: 8080 }]);
}

#[test]
fn a_bound_pod_holds_its_grant_until_its_containers_are_gone() {
    let grant = r#"{"v":1,"at":9000,"policy":"frag","containers":[]}"#;
    let seen = read(json!({
        "metadata": {"name": "p", "namespace": "team", "uid": "u1", "annotations": {(keys::GRANT): grant},
                     "deletionTimestamp": "2026-11-15T12:00:00Z"},
        "spec": {"nodeName": "n1", "initContainers": [{"name": "a"}, {"name": "s", "restartPolicy": "Always"}]},
        "status": {"initContainerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "state": {"running": {}}}]},
    }));
    let bound = seen.pod.bound().unwrap();
    assert_eq!((bound.node.as_str(), bound.since, bound.terminating, bound.init_done), ("n1", Time(9000), true, true));
    assert_eq!(bound.grant.as_ref().unwrap().policy, "frag");
}

#[test]
fn init_containers_that_failed_or_run_are_not_done() {
    for state in [json!({"running": {}}), json!({"terminated": {"exitCode": 1}}), json!({"waiting": {}})] {
        let seen = read(json!({
            "metadata": {"name": "p"},
            "spec": {"nodeName": "n1", "initContainers": [{"name": "a"}]},
            "status": {"initContainerStatuses": [{"name": "a", "state": state}]},
        }));
        assert!(!seen.pod.bound().unwrap().init_done, "{state}");
    }
}

#[test]
fn a_grant_that_cannot_be_read_is_said_not_ignored() {
    let seen = read(
        json!({"metadata": {"name": "p", "annotations": {(keys::GRANT): "{", (keys::ASK): "[]"}}, "spec": {"nodeName": "n"}}),
    );
    assert!(seen.bad_grant.is_some() && seen.bad_ask.is_some());
    assert!(seen.pod.bound().unwrap().grant.is_none());
}

fn amounts(at: u64, share: u32, isolation: &str) -> String {
    let slice = json!({"device": "G", "memory": 1, "memoryLimit": 1, "share": share, "shareLimit": 1000, "isolation": isolation});
    json!({"v": 1, "at": at, "policy": "frag", "containers": [{"name": "c", "slices": [slice]}]}).to_string()
}

fn shares(annotations: serde_json::Value) -> (PodSeen, u32) {
    let seen = read(json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"nodeName": "n"}}));
    let share = seen.pod.bound().unwrap().grant.as_ref().unwrap().containers[0].slices[0].share.0;
    (seen, share)
}

#[test]
fn amounts_count_once_they_are_admitted_and_a_wish_counts_for_nothing() {
    let first = amounts(1000, 300, "intercept");
    let (seen, share) = shares(json!({(keys::GRANT): first, (keys::GRANT_OVERRIDE): amounts(0, 500, "intercept")}));
    assert_eq!((share, seen.wish.unwrap().unwrap().containers[0].slices[0].share.0), (300, 500));
    let admitted = amounts(5000, 500, "intercept");
    let (seen, share) = shares(
        json!({(keys::GRANT): first, (keys::GRANT_OVERRIDE): amounts(0, 500, "intercept"), (keys::GRANT_ADMITTED): admitted}),
    );
    assert_eq!((share, seen.wish, seen.pod.bound().unwrap().since), (500, None, Time(1000)), "it is no younger for it");
}

#[test]
fn a_change_that_cannot_be_read_or_changes_more_than_amounts_leaves_the_grant_as_it_was() {
    let first = amounts(1000, 300, "intercept");
    for bad in ["{".to_owned(), amounts(1000, 500, "none")] {
        let (seen, share) = shares(json!({(keys::GRANT): first, (keys::GRANT_ADMITTED): bad}));
        assert_eq!((share, seen.bad_grant), (300, None));
        assert!(seen.bad_amounts.is_some());
        let (seen, share) = shares(json!({(keys::GRANT): first, (keys::GRANT_OVERRIDE): bad}));
        assert_eq!(share, 300);
        assert!(seen.wish.unwrap().is_err());
    }
}

#[test]
fn the_rules_of_kubernetes_arrive_whole() {
    let seen = read(json!({
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "schedulingGates": [{"name": "later"}],
            "resourceClaims": [{"name": "gpu"}],
            "tolerations": [
                {"operator": "Exists"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
                {"key": "n", "operator": "Gt", "value": "5"},
                {"key": "n", "operator": "Gt", "value": "five"},
                {"key": "k", "effect": "Tomorrow"},
            ],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                     "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}]}},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}]},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": {}}}]},
            },
            "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}}, "nodeTaintsPolicy": "Honor"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c1"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "aws", "awsElasticBlockStore": {"volumeID": "v1", "readOnly": true}},
                {"name": "inline", "csi": {"driver": "d"}},
                {"name": "cfg", "configMap": {"name": "x"}},
            ],
        },
    }));
    let spec = &seen.pod.spec;
    assert_eq!(spec.unsupported, ["spec.resourceClaims".into()]);
    assert_eq!(spec.gates, ["later".into()]);
    assert_eq!(spec.tolerations.len(), 3, "those that can cover nothing are left out");
    assert_eq!(spec.tolerations[0].key, None);
    assert_eq!(spec.tolerations[1].effect, Some(Effect::NoSchedule));
    assert_eq!(spec.tolerations[2].value, TolerationValue::Below(5));
    let terms = spec.node_affinity.as_ref().unwrap();
    let zone_a: Labels = [("zone".into(), "a".into())].into();
    assert!(terms[0].accepts(&zone_a, "n1") && !terms[0].accepts(&zone_a, "n9"));
    assert_eq!(spec.apart.len(), 1);
    assert_eq!(spec.pod_preference[0].weight, 5);
    assert!(spec.pod_preference[0].what.namespace_selector.is_some());
    assert!(spec.spread[0].hard && spec.spread[0].honor_taints && spec.spread[0].honor_affinity);
    let disk = Disk { kind: "awsElasticBlockStore".into(), id: "v1".into(), read_only: true };
    assert_eq!(
        spec.volumes,
        [
            VolumeUse::Claim("c1".into()),
            VolumeUse::Claim("p-scratch".into()),
            VolumeUse::Disk(disk),
            VolumeUse::Inline("d".into())
        ]
    );
}

#[test]
fn what_a_pod_states_as_a_whole_takes_the_place_of_its_containers_sum() {
    let seen = read(json!({
        "metadata": {"name": "p"},
        "spec": {"resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"},
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    }));
    assert_eq!((seen.pod.spec.requests.cpu, seen.pod.spec.requests.memory), (4000, Bytes::gib(1)));
}

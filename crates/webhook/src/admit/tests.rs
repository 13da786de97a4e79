use serde_json::json;

use super::*;

fn request() -> Request {
    serde_json::from_value(json!({
        "uid": "u", "operation": "CREATE", "namespace": "team", "kind": {"group": "", "version": "v1", "kind": "Pod"},
    }))
    .unwrap()
}

fn native() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"mine": "stays"}},
        "spec": {"containers": [
            {"name": "plain", "image": "x"},
            {"name": "c", "image": "x", "resources": {"limits": {(keys::GPU): "2", (keys::GPU_MEMORY): "8Gi", (keys::GPU_SHARE): "300"}}},
        ]},
    })
}

fn admitted(pod: &Value, settings: &Settings) -> Value {
    let Verdict::Allow { patch, .. } = mutate(&request(), pod, &json!({}), settings) else { panic!("refused") };
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &serde_json::from_value::<json_patch::Patch>(Value::Array(patch)).unwrap())
        .unwrap();
    patched
}

fn denied(verdict: Verdict) -> String {
    match verdict {
        Verdict::Deny { message, .. } => message,
        Verdict::Allow { patch, .. } => panic!("admitted with {patch:?}"),
    }
}

#[test]
fn a_plain_pod_passes_untouched() {
    let pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
    assert_eq!(mutate(&request(), &pod, &json!({}), &Settings::default()), Verdict::allow());
}

#[test]
fn a_pod_that_asks_gets_its_scheduler_its_ask_its_class_and_its_slots() {
    let pod = admitted(&native(), &Settings::default());
    assert_eq!(pod["spec"]["schedulerName"], keys::SCHEDULER);
    assert_eq!(pod["metadata"]["annotations"]["mine"], "stays");
    assert_eq!(pod["metadata"]["annotations"][keys::CLASS_NOW], "guarantee");
    let ask: GpuAsk = serde_json::from_str(pod["metadata"]["annotations"][keys::ASK].as_str().unwrap()).unwrap();
    assert_eq!((ask.containers.len(), ask.containers[0].name.as_str(), ask.containers[0].wants[0].count), (1, "c", 2));
    let resources = &pod["spec"]["containers"][1]["resources"];
    assert_eq!((&resources["limits"][keys::SLOT], &resources["requests"][keys::SLOT]), (&json!("2"), &json!("2")));
    assert!(pod["spec"]["containers"][0].get("resources").is_none(), "a container without a device is not touched");
}

#[test]
fn admitting_twice_patches_nothing() {
    let once = admitted(&native(), &Settings::default());
    assert_eq!(mutate(&request(), &once, &json!({}), &Settings::default()), Verdict::allow());
    assert_eq!(validate(&request(), &once, &json!({}), &Settings::default()), Verdict::allow());
}

#[test]
fn all_mistakes_come_in_one_message() {
    let mut pod = native();
    pod["spec"]["containers"][1]["resources"]["limits"][keys::GPU_SHARE] = json!("3000");
    pod["spec"]["containers"][1]["resources"]["limits"][keys::GPU_MEMORY] = json!("plenty");
    let message = denied(mutate(&request(), &pod, &json!({}), &Settings::default()));
    for part in [keys::GPU_SHARE, keys::GPU_MEMORY] {
        assert!(message.contains(part), "{part} is not named in: {message}");
    }
}

#[test]
fn ways_around_a_grant_are_refused_together() {
    let mut pod = native();
    pod["spec"]["nodeName"] = json!("n1");
    pod["spec"]["containers"][1]["env"] =
        json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "CUDA_DISABLE_CONTROL", "value": "true"}]);
    pod["spec"]["containers"][1]["securityContext"] = json!({"privileged": true});
    let message = denied(mutate(&request(), &pod, &json!({}), &Settings::default()));
    for part in ["nodeName", "NVIDIA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "privileged"] {
        assert!(message.contains(part), "{part} is not named in: {message}");
    }
}

#[test]
fn an_ask_a_grant_or_a_class_written_by_hand_is_refused() {
    for (key, value) in [
        (keys::ASK, r#"{"v":1,"dialect":"native","containers":[]}"#),
        (keys::GRANT, r#"{"v":1,"at":1,"policy":"x","containers":[]}"#),
    ] {
        let mut pod = native();
        pod["metadata"]["annotations"][key] = json!(value);
        let message = denied(mutate(&request(), &pod, &json!({}), &Settings::default()));
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn a_class_written_beside_the_right_ask_is_put_right() {
    let mut pod = admitted(&native(), &Settings { class: Class::Opportunistic, ..Settings::default() });
    pod["metadata"]["annotations"][keys::CLASS_NOW] = json!("guarantee");
    let settings = Settings { class: Class::Opportunistic, ..Settings::default() };
    assert_eq!(admitted(&pod, &settings)["metadata"]["annotations"][keys::CLASS_NOW], "opportunistic");
    assert!(denied(validate(&request(), &pod, &json!({}), &settings)).contains("class-now"));
}

#[test]
fn a_later_webhook_that_takes_the_slots_away_is_refused() {
    let mut pod = admitted(&native(), &Settings::default());
    pod["spec"]["containers"][1]["resources"]["limits"][keys::SLOT] = json!("1");
    let message = denied(validate(&request(), &pod, &json!({}), &Settings::default()));
    assert!(message.contains(keys::SLOT), "{message}");
}

#[test]
fn a_scheduler_that_grants_nothing_is_refused_and_an_alias_is_ours() {
    let mut pod = native();
    pod["spec"]["schedulerName"] = json!("volcano");
    let message = denied(mutate(&request(), &pod, &json!({}), &Settings::default()));
    assert!(message.contains("volcano") && message.contains("leave schedulerName out"), "{message}");
    let mut settings = Settings::default();
    settings.dialects.nvidia = divvy_dialects::NvidiaFlavour::Vgpu;
    let limits = json!({(keys::VGPU_COUNT): "1", (keys::VGPU_MEMORY): "3000"});
    let theirs = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "volcano",
        "containers": [{"name": "c", "resources": {"limits": limits}}]}});
    assert_eq!(admitted(&theirs, &settings)["spec"]["schedulerName"], keys::SCHEDULER, "as 4paradigm's webhook did");
    for alias in keys::SCHEDULER_ALIASES {
        pod["spec"]["schedulerName"] = json!(alias);
        assert_eq!(admitted(&pod, &Settings::default())["spec"]["schedulerName"], keys::SCHEDULER);
    }
}

#[test]
fn in_front_of_kube_scheduler_a_gang_waits_behind_a_gate() {
    let mut pod = native();
    pod["metadata"]["annotations"][keys::GANG] = json!("g");
    pod["metadata"]["annotations"][keys::GANG_SIZE] = json!("2");
    let settings =
        Settings { placed_by: PlacedBy::KubeScheduler { name: "default-scheduler".into() }, ..Settings::default() };
    let gated = admitted(&pod, &settings);
    assert_eq!(gated["spec"]["schedulingGates"], json!([{"name": keys::GANG_GATE}]));
    assert_eq!(gated["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(mutate(&request(), &gated, &json!({}), &settings), Verdict::allow());
    let plain = admitted(&pod, &Settings::default());
    assert!(plain["spec"].get("schedulingGates").is_none());
    // Those that have ended are found again by a label, which nobody else writes.
    assert_eq!(
        (&gated["metadata"]["labels"], &plain["metadata"]["labels"]),
        (&json!({(keys::GANG_MEMBER): "true"}), &json!({(keys::GANG_MEMBER): "true"}))
    );
    pod["metadata"]["labels"] = json!({(keys::GANG_MEMBER): "true"});
    let said = format!("{:?}", mutate(&request(), &pod, &json!({}), &Settings::default()));
    assert!(said.contains("is not a user's to write"), "{said}");
}

#[test]
fn only_the_creation_of_pods_concerns_us() {
    let mut update = request();
    update.operation = "UPDATE".into();
    let mut status = request();
    status.sub_resource = "status".into();
    let mut job = request();
    job.kind.kind = "Job".into();
    for request in [update, status, job] {
        assert_eq!(mutate(&request, &native(), &json!({}), &Settings::default()), Verdict::allow());
    }
}

fn standing(state: &str) -> Settings {
    let standings = crate::standing::Standings::default();
    standings.budget(
        serde_json::from_value(json!({
            "metadata": {"name": "gpu", "namespace": "team"},
            "spec": {"gpuTime": "1h", "priorityClasses": {"inBudget": "gpu-default-priority", "outOfBudget": "gpu-lower-priority"}},
            "status": {"state": state, "message": "used up since Monday"},
        }))
        .unwrap(),
    );
    Settings { standing: standings.of("team", &Default::default()), ..Settings::default() }
}

/// GPUSharing's pod of 50 cores and 15 blocks.
fn vcuda(core: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "b"}},
        "spec": {"priority": 0, "containers": [
            {"name": "plain", "image": "x"},
            {"name": "c", "image": "x", "resources": {"limits": {(keys::VCUDA_CORE): core.to_string(), (keys::VCUDA_MEMORY): "15"}}},
        ]},
    })
}

#[test]
fn gs_02_in_budget_a_pod_gets_the_normal_class_and_its_annotation() {
    let pod = admitted(&vcuda(50), &standing("InBudget"));
    assert_eq!(pod["spec"]["priorityClassName"], "gpu-default-priority");
    assert_eq!(pod["metadata"]["annotations"][keys::CLASS_NOW], "guarantee");
    assert_eq!(pod["metadata"]["annotations"][keys::VCUDA_CORE_LIMIT], "50");
    assert!(pod["spec"].get("priority").is_none(), "the API server works it out of the class");
}

#[test]
fn gs_07_out_of_budget_a_pod_is_let_in_with_the_reduced_class() {
    for state in ["OutOfBudget", "Grace"] {
        let pod = admitted(&vcuda(50), &standing(state));
        assert_eq!(pod["spec"]["priorityClassName"], "gpu-lower-priority");
        assert_eq!(pod["metadata"]["annotations"][keys::CLASS_NOW], "opportunistic");
    }
}

#[test]
fn gs_06_malformed_requests_are_refused_and_the_rest_let_in() {
    for core in [150, 0, 101] {
        assert!(!denied(mutate(&request(), &vcuda(core), &json!({}), &standing("InBudget"))).is_empty(), "{core}");
    }
    for core in [1, 99, 100, 200] {
        admitted(&vcuda(core), &standing("InBudget"));
    }
}

#[test]
fn gs_13_gs_14_annotations_survive_and_a_leading_plain_container_hides_nothing() {
    let pod = admitted(&vcuda(50), &standing("InBudget"));
    assert_eq!(pod["metadata"]["annotations"]["a"], "b");
    assert!(pod["metadata"]["annotations"][keys::ASK].is_string());
}

#[test]
fn a_budget_that_stops_pods_refuses_new_ones_and_says_why() {
    let message = denied(mutate(&request(), &native(), &json!({}), &standing("Stopped")));
    assert!(message.contains("budget gpu: used up since Monday"), "{message}");
}

#[test]
fn a_priority_class_of_ones_own_is_kept_and_ours_is_set_once() {
    let mut pod = vcuda(50);
    pod["spec"]["priorityClassName"] = json!("mine");
    assert_eq!(admitted(&pod, &standing("OutOfBudget"))["spec"]["priorityClassName"], "mine");
    // Asked again after the budget has come back: the class is not changed a second time.
    let once = admitted(&vcuda(50), &standing("OutOfBudget"));
    assert_eq!(admitted(&once, &standing("InBudget"))["spec"]["priorityClassName"], "gpu-lower-priority");
}

#[test]
fn a_budget_that_changes_between_our_two_looks_refuses_nobody() {
    let pod = admitted(&vcuda(50), &standing("InBudget"));
    assert_eq!(validate(&request(), &pod, &json!({}), &standing("OutOfBudget")), Verdict::allow());
}

#[test]
fn a_pod_that_exceeds_its_quota_is_refused_with_the_numbers() {
    let standings = crate::standing::Standings::default();
    standings.quota(
        serde_json::from_value(json!({
            "metadata": {"name": "q", "namespace": "team"}, "spec": {"limits": [{"share": 1000}]},
            "status": {"held": [{"model": "H200", "devices": 1, "share": 600, "memory": 1}]},
        }))
        .unwrap(),
    );
    let settings = Settings { standing: standings.of("team", &Default::default()), ..Settings::default() };
    let message = denied(mutate(&request(), &vcuda(50), &json!({}), &settings));
    assert!(message.contains("quota q") && message.contains("0.5 of share wanted"), "{message}");
    admitted(&vcuda(40), &settings);
}

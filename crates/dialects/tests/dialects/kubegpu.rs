use divvy_core::ask::{DeviceAsk, Dialect, GroupAsk, Role};
use divvy_core::device::Link;
use divvy_core::keys::*;
use divvy_dialects::{DialectConfig, NvidiaFlavour, Reading};
use serde_json::{Value, json};

use crate::support::{Pod, bare, pod, wrong_keys};

fn told(info: &Value) -> Pod {
    pod(&[]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string())
}

fn groups(pod: &Pod) -> GroupAsk {
    pod.want().groups.unwrap()
}

/// A request of the container `main`.
fn main_requests(requests: Value, topology: i64) -> Value {
    json!({ "requests": { KUBEGPU_TOPOLOGY: topology }, "runningcontainer": { "main": { "requests": requests } } })
}

#[test]
fn kg_16_a_count_and_a_spelled_out_gpu_are_kept_as_given() {
    let pod = pod(&[(VGPU_COUNT, "3")]).annotation(
        KUBEGPU_DEVICE_INFO,
        &main_requests(json!({ "resource/group/gpu/0/cards": 1, "resource/group/gpu/0/memory": 5 }), 0).to_string(),
    );
    assert_eq!(pod.want().count, 3);
    let expected = GroupAsk {
        auto: false,
        requests: [("resource/group/gpu/0/cards".into(), 1), ("resource/group/gpu/0/memory".into(), 5)].into(),
        scorers: Default::default(),
    };
    assert_eq!(groups(&pod), expected);
}

#[test]
fn kg_17_gpus_of_one_group_are_counted_once_each() {
    let info = main_requests(
        json!({ "resource/group/gpugrp0/A/gpu/a/cards": 1, "resource/group/gpugrp0/A/gpu/b/cards": 1 }),
        0,
    );
    let pod = pod(&[(VGPU_COUNT, "2")]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string());
    assert_eq!(pod.want().count, 2, "no GPU is added");
}

#[test]
fn kg_22_a_topology_switch_that_is_neither_0_nor_1_is_refused_with_a_reason() {
    for value in [2, -1, 77] {
        let mistakes = told(&main_requests(json!({ VGPU_COUNT: 1 }), value)).mistakes();
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].problem.contains("not a valid value"), "{}", mistakes[0]);
        assert_eq!(mistakes[0].value, Some(value.to_string()));
    }
    assert!(!groups(&told(&main_requests(json!({ VGPU_COUNT: 1 }), 0))).auto);
    assert!(groups(&told(&main_requests(json!({ VGPU_COUNT: 1 }), 1))).auto);
    assert!(groups(&told(&json!({ "runningcontainer": { "main": { "requests": { VGPU_COUNT: 1 } } } }))).auto);
}

#[test]
fn kg_23_the_larger_of_the_two_counts_holds() {
    let pod = pod(&[(VGPU_COUNT, "2")])
        .annotation(KUBEGPU_DEVICE_INFO, &main_requests(json!({ VGPU_COUNT: 3 }), 1).to_string());
    let want = pod.want();
    assert_eq!(want.count, 3);
    assert_eq!(DeviceAsk { groups: None, ..want }, DeviceAsk::whole(3));
    assert_eq!(pod.ask().dialect, Dialect::Kubegpu);
}

#[test]
fn kg_29_garbage_in_the_annotation_is_refused_and_nothing_else_happens() {
    for garbage in [
        "",
        "{",
        "[]",
        "null",
        "42",
        "{\"runningcontainer\": 3}",
        "{\"requests\": {\"gpu/gpu-generate-topology\": \"no\"}}",
    ] {
        let mistakes = pod(&[(VGPU_COUNT, "1")]).annotation(KUBEGPU_DEVICE_INFO, garbage).mistakes();
        assert_eq!(wrong_keys(&mistakes), [KUBEGPU_DEVICE_INFO], "{garbage}");
    }
}

#[test]
fn gpu_counts_are_kubegpus_only_with_its_annotation() {
    assert_eq!(pod(&[(VGPU_COUNT, "2")]).ask().dialect, Dialect::Hami);
    assert_eq!(pod(&[(VGPU_COUNT, "2")]).annotation(KUBEGPU_DEVICE_INFO, "{}").ask().dialect, Dialect::Kubegpu);
}

#[test]
fn the_names_of_2018_mean_the_same() {
    let old = pod(&[(KUBEGPU_COUNT_2018, "1")]).annotation(
        KUBEGPU_POD_2018,
        &json!({
            "requests": { KUBEGPU_TOPOLOGY_2018: 0 },
            "runningcontainer": { "main": { "requests": { "alpha/grpresource/gpu/0/cards": 1, "alpha/grpresource/gpu/1/cards": 1 } } },
        })
        .to_string(),
    );
    assert_eq!(old.want().count, 2);
    let requests = groups(&old).requests;
    assert_eq!(requests.into_keys().collect::<Vec<_>>(), ["resource/group/gpu/0/cards", "resource/group/gpu/1/cards"]);
    assert_eq!(pod(&[(KUBEGPU_COUNT_2018, "4")]).want().count, 4, "the count alone is KubeGPU's already");
}

#[test]
fn memory_without_cards_means_the_card() {
    let pod = told(&main_requests(json!({ "resource/group/gpu/0/memory": 12_884_901_888_i64 }), 0));
    assert_eq!(pod.want().count, 1);
    assert_eq!(groups(&pod).requests["resource/group/gpu/0/cards"], 1);
}

#[test]
fn the_switch_is_honoured_where_the_readme_put_it() {
    let info = json!({ "runningcontainer": { "main": { "requests": { KUBEGPU_TOPOLOGY: 0, VGPU_COUNT: 1 } } } });
    assert!(!groups(&told(&info)).auto);
}

#[test]
fn the_pods_switch_is_the_one_that_counts_and_those_of_containers_must_agree() {
    let of_container = |value: i64| json!({ "requests": { KUBEGPU_TOPOLOGY: value, VGPU_COUNT: 1 } });
    for (pods, containers) in [(1, 0), (0, 1), (1, 7)] {
        let info =
            json!({ "requests": { KUBEGPU_TOPOLOGY: pods }, "runningcontainer": { "main": of_container(containers) } });
        assert_eq!(groups(&told(&info)).auto, pods == 1, "{pods} {containers}");
    }
    let info = json!({ "runningcontainer": { "main": of_container(0), "side": of_container(1) } });
    let two = bare().container("main", &[]).container("side", &[]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string());
    let mistakes = two.mistakes();
    assert!(mistakes[0].problem.contains("contradicts"), "{}", mistakes[0]);
    let wrong = told(&json!({ "runningcontainer": { "main": of_container(7) } })).mistakes();
    let said = wrong[0].to_string();
    assert!(said.contains("runningcontainer.main.requests.gpu/gpu-generate-topology = \"7\""), "{said}");
}

#[test]
fn names_that_no_node_could_have_are_mistakes_with_a_mend() {
    for name in [
        "gpugrpO/A/gpu/0/cards",
        "gpugrp2/A/gpu/0/cards",
        "gpugrp0/A/memory",
        "gpugrp0/A/gpugrp1/B/gpu/0/cards",
        "gpu/0/gpu/1/cards",
        "cards",
    ] {
        let name = format!("resource/group/{name}");
        let mistakes = told(&main_requests(json!({ &name: 1, VGPU_COUNT: 1 }), 0)).mistakes();
        assert_eq!(mistakes.len(), 1, "{name}");
        let said = mistakes[0].to_string();
        assert!(said.contains(&name) && said.contains("write resource/group/gpugrp1/A/gpugrp0/B/gpu/0/"), "{said}");
    }
}

#[test]
fn fields_that_are_nearly_right_are_not_passed_over() {
    let one = json!({ VGPU_COUNT: 1 });
    for (info, near) in [
        (json!({ "runningcontainers": { "main": { "requests": one } } }), "runningcontainer"),
        (json!({ "runningcontainer": { "main": { "request": one } } }), "requests"),
        (json!({ "requests": { "gpu/gpu-generate-topolgy": 0 } }), KUBEGPU_TOPOLOGY),
        (
            json!({ "runningcontainer": { "main": { "requests": { "gpu/gpu-generate-topolgy": 0 } } } }),
            KUBEGPU_TOPOLOGY,
        ),
    ] {
        let pod = pod(&[(VGPU_COUNT, "1")]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string());
        let mistakes = pod.mistakes();
        assert_eq!(mistakes.len(), 1, "{info}");
        let said = mistakes[0].to_string();
        assert!(said.ends_with(&format!("did you mean {near}?")), "{said}");
    }
    // What is nothing like ours is somebody else's, and letters may be large.
    let info = json!({ "Requests": {}, "team": "x", "RunningContainer": { "main": { "requests": { "example.com/nic": 1 } } } });
    assert_eq!(pod(&[(VGPU_COUNT, "1")]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string()).want().count, 1);
}

#[test]
fn what_asks_for_nothing_is_not_counted_and_bits_alone_ask_for_their_card() {
    let pod = told(&main_requests(json!({ "resource/group/gpu/0/cards": 0, "resource/group/gpu/1/cards": 1 }), 0));
    assert_eq!(pod.want().count, 1);
    assert_eq!(groups(&pod).requests.into_keys().collect::<Vec<_>>(), ["resource/group/gpu/1/cards"]);
    let pod = told(&main_requests(json!({ "resource/group/gpu/0/enumType": 3 }), 0));
    assert_eq!(pod.want().count, 1);
    assert_eq!(groups(&pod).requests["resource/group/gpu/0/cards"], 1);
}

#[test]
fn a_quantity_with_a_unit_is_answered_with_its_bytes() {
    let mistakes = told(&main_requests(json!({ "resource/group/gpu/0/memory": "12Gi", VGPU_COUNT: 1 }), 0)).mistakes();
    assert!(mistakes[0].to_string().contains("write 12884901888"), "{}", mistakes[0]);
}

#[test]
fn a_broken_annotation_does_not_hide_a_wrong_count() {
    let mistakes = pod(&[(VGPU_COUNT, "1.5")]).annotation(KUBEGPU_DEVICE_INFO, "{requests:{}}").mistakes();
    assert_eq!(wrong_keys(&mistakes), [KUBEGPU_DEVICE_INFO, VGPU_COUNT]);
}

/// What is written back to the pod.
fn written(pod: &Pod, key: &str, devices: &[&[&str]]) -> Value {
    let inventory = crate::support::node(&[("U0", 16384), ("U1", 16384), ("U2", 16384), ("U3", 16384)]);
    let emulation = pod.clone().named("ns", "p", "u").bound(&Default::default(), &inventory, devices, &[]);
    assert_eq!(emulation.annotations.keys().collect::<Vec<_>>(), [key]);
    serde_json::from_str(&emulation.annotations[key]).unwrap()
}

#[test]
fn who_asks_with_the_names_of_2018_is_answered_with_them() {
    let counted = pod(&[(KUBEGPU_COUNT_2018, "1")]);
    let info = json!({ "requests": { KUBEGPU_TOPOLOGY_2018: 0 } }).to_string();
    for pod in [counted.clone(), counted.annotation(KUBEGPU_POD_2018, &info)] {
        let main = written(&pod, KUBEGPU_POD_2018, &[&["U3"]])["runningcontainer"]["main"].clone();
        let asked = "alpha/grpresource/gpugrp1/0/gpugrp0/0/gpu/0/cards";
        assert_eq!(main["devrequests"], json!({ asked: 1 }));
        assert_eq!(main["allocatefrom"], json!({ asked: "alpha/grpresource/gpugrp1/3/gpugrp0/3/gpu/U3/cards" }));
    }
}

#[test]
fn labels_that_did_not_bind_are_not_written_back() {
    let requests = json!({
        "resource/group/gpugrp0/A/gpu/0/cards": 1,
        "resource/group/gpugrp0/A/gpu/0/memory": 5,
        "resource/group/gpugrp0/A/gpu/1/cards": 1,
    });
    let main =
        written(&told(&main_requests(requests, 1)), KUBEGPU_DEVICE_INFO, &[&["U3", "U2"]])["runningcontainer"]["main"]
            .clone();
    let expected = json!({
        "resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards": "resource/group/gpugrp1/3/gpugrp0/3/gpu/U3/cards",
        "resource/group/gpugrp1/0/gpugrp0/0/gpu/0/memory": "resource/group/gpugrp1/3/gpugrp0/3/gpu/U3/memory",
        "resource/group/gpugrp1/1/gpugrp0/0/gpu/0/cards": "resource/group/gpugrp1/2/gpugrp0/2/gpu/U2/cards",
    });
    assert_eq!(main["allocatefrom"], expected);
}

/// KubeGPU walked a node's shape: biggest groups first, inner ones counted anew in each outer one.
#[test]
fn kg_07_groups_are_numbered_by_size_and_anew_in_each_outer_one() {
    let mut inventory = crate::support::node(&[("U0", 1), ("U1", 1), ("U2", 1), ("U3", 1), ("U4", 1)]);
    for (a, b, link) in [(1, 2, Link::SingleSwitch), (1, 3, Link::HostBridge), (2, 3, Link::HostBridge)] {
        let id = inventory.devices[b].id.clone();
        inventory.devices[a].links.insert(id, link);
    }
    let pod = pod(&[(VGPU_COUNT, "4")]).annotation(KUBEGPU_DEVICE_INFO, "{}").named("ns", "p", "u");
    let emulation = pod.bound(&Default::default(), &inventory, &[&["U0", "U3", "U1", "U2"]], &[]);
    let written: Value = serde_json::from_str(&emulation.annotations[KUBEGPU_DEVICE_INFO]).unwrap();
    let asked: Vec<(String, String)> = written["runningcontainer"]["main"]["allocatefrom"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(asked, from)| (asked.clone(), from.as_str().unwrap().rsplit('/').nth(1).unwrap().to_owned()))
        .collect();
    let expected = [
        ("resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards", "U1"),
        ("resource/group/gpugrp1/0/gpugrp0/0/gpu/1/cards", "U2"),
        ("resource/group/gpugrp1/0/gpugrp0/1/gpu/0/cards", "U3"),
        ("resource/group/gpugrp1/1/gpugrp0/0/gpu/0/cards", "U0"),
    ];
    assert_eq!(asked, expected.map(|(asked, from)| (asked.to_owned(), from.to_owned())));
}

/// Where the policy says that the count is KubeGPU's, its oldest manifest is placed and answered as KubeGPU did.
#[test]
fn a_bare_count_is_kubegpus_where_the_policy_says_so_and_nothing_is_asked_in_parts() {
    let kubegpu = DialectConfig { nvidia: NvidiaFlavour::Kubegpu, ..DialectConfig::default() };
    let read = |pod: &Pod, config: &DialectConfig| {
        let ask = pod.ask_with(config);
        (ask.dialect, ask.containers.len())
    };
    let bare_count = pod(&[(VGPU_COUNT, "2")]);
    assert_eq!(read(&bare_count, &kubegpu), (Dialect::Kubegpu, 1));
    assert_eq!(read(&bare_count, &DialectConfig::default()), (Dialect::Hami, 1));
    let part = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "1000")]);
    assert_eq!(read(&part, &kubegpu), (Dialect::Hami, 1));
    let beside = bare().container("main", &[(VGPU_COUNT, "1")]).container("side", &[(VGPU_MEMORY, "1000")]);
    assert_eq!(read(&beside, &kubegpu), (Dialect::Hami, 2), "one pod speaks one dialect");
    assert!(matches!(bare().container("main", &[]).read_with(&kubegpu), Reading::NotOurs));
}

#[test]
fn answers_that_a_copied_manifest_brings_are_taken_away() {
    let stale = json!({ "devrequests": { "x": 1 }, "AllocateFrom": { "x": "U0" } });
    let info = json!({ "RunningContainer": { "main": stale, "side": stale } });
    let pod = bare()
        .container("main", &[(VGPU_COUNT, "1")])
        .container("side", &[])
        .annotation(KUBEGPU_DEVICE_INFO, &info.to_string());
    let written = written(&pod, KUBEGPU_DEVICE_INFO, &[&["U1"]]);
    assert_eq!(written["RunningContainer"]["side"], json!({}));
    let main = written["RunningContainer"]["main"].as_object().unwrap();
    assert_eq!(main.keys().collect::<Vec<_>>(), ["allocatefrom", "devrequests"]);
    assert!(main["allocatefrom"].to_string().contains("gpu/U1/cards"), "{main:?}");
    assert_eq!(written.get("runningcontainer"), None);
}

#[test]
fn running_and_init_containers_are_told_apart() {
    let info = json!({
        "runningcontainer": { "main": { "requests": { VGPU_COUNT: 2 } } },
        "initcontainer": { "load": { "requests": { VGPU_COUNT: 1 }, "scorer": { "resource/group/gpu/0/memory": 1 } } },
    });
    let ask = bare().init("load", &[]).container("main", &[]).annotation(KUBEGPU_DEVICE_INFO, &info.to_string()).ask();
    let seen: Vec<(&str, Role, u32)> =
        ask.containers.iter().map(|c| (c.name.as_str(), c.role, c.wants[0].count)).collect();
    assert_eq!(seen, [("load", Role::Init, 1), ("main", Role::Main, 2)]);
    let scorers = ask.containers[0].wants[0].groups.clone().unwrap().scorers;
    assert_eq!(scorers, [("resource/group/gpu/0/memory".into(), 1)].into());
}

#[test]
fn what_the_scheduler_writes_is_passed_over_in_a_new_pod() {
    let info = json!({
        "podname": "old", "nodename": "n7",
        "runningcontainer": { "main": { "requests": { VGPU_COUNT: 1 }, "devrequests": { "x": 1 }, "allocatefrom": { "x": "y" } } },
    });
    assert_eq!(told(&info).want().count, 1);
}

#[test]
fn every_mistake_inside_the_annotation_has_its_path() {
    let info = json!({
        "requests": { KUBEGPU_TOPOLOGY: 5 },
        "runningcontainer": {
            "mian": { "requests": {} },
            "main": { "requests": {
                "resource/group/gpu/0": 1,
                "resource/group/gpu/0/cards": 2,
                "resource/group/gpu/1/memory": -1,
                "resource/group/gpu/2/cards": "one",
                VGPU_COUNT: -3,
            } },
        },
    });
    let texts: Vec<String> = told(&info).mistakes().iter().map(ToString::to_string).collect();
    for (n, part) in [
        "runningcontainer.mian: no such container in this pod; did you mean main?",
        "resource/group/gpu/2/cards = \"\\\"one\\\"\": is not a whole number",
        "nvidia.com/gpu = \"-3\": is negative",
        "resource/group/gpu/0: is not a hierarchical name",
        "resource/group/gpu/0/cards = \"2\": asks for one device several times",
        "resource/group/gpu/1/memory = \"-1\": is negative",
        "is not a valid value of the topology switch",
    ]
    .iter()
    .enumerate()
    {
        assert!(texts.iter().any(|text| text.contains(part)), "{n}: {part}\n{texts:#?}");
    }
    assert_eq!(texts.len(), 7, "{texts:#?}");
}

#[test]
fn bit_sets_are_not_amounts() {
    let info = main_requests(json!({ "resource/group/gpu/0/cards": 1, "resource/group/gpu/0/enumType": 3 }), 0);
    let pod = told(&info);
    assert_eq!(pod.want().count, 1);
    assert_eq!(groups(&pod).requests["resource/group/gpu/0/enumType"], 3);
}

#[test]
fn kg_28_a_container_without_a_request_sees_no_device_whatever_its_image_says() {
    let pod = bare().init("prepare", &[]).container("main", &[(VGPU_COUNT, "1")]).container("log", &[]);
    let blind: Vec<(String, String, String)> = pod
        .hints()
        .env
        .iter()
        .map(|hint| (hint.container.to_string(), hint.name.clone(), hint.value.clone()))
        .collect();
    let void = |container: &str| (container.to_owned(), "NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned());
    assert_eq!(blind, [void("prepare"), void("log")]);
    let peeping =
        bare().container("main", &[(VGPU_COUNT, "1")]).container("log", &[]).env("NVIDIA_VISIBLE_DEVICES", "all");
    assert_eq!(wrong_keys(&peeping.mistakes()), ["NVIDIA_VISIBLE_DEVICES"]);
}

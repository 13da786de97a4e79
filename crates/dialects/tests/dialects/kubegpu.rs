use divvy_core::ask::{DeviceAsk, Dialect, GroupAsk, Role};
use divvy_core::keys::*;
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
    let both = json!({ "requests": { KUBEGPU_TOPOLOGY: 1 }, "runningcontainer": { "main": { "requests": { KUBEGPU_TOPOLOGY: 0, VGPU_COUNT: 1 } } } });
    assert!(told(&both).mistakes()[0].problem.contains("contradicts"));
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

use divvy_core::ask::{Class, DeviceAsk, Dialect, Gang, MemoryAsk, ModelPattern, PolicyChoice, Role, Topology};
use divvy_core::device::{Isolation, Link};
use divvy_core::keys::*;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::{Field, Guard, OnTrick, Reading};
use expect_test::expect;
use serde_json::{Value, json};

use crate::support::{bare, pod};

#[test]
fn a_pod_without_our_keys_is_not_ours() {
    assert_eq!(pod(&[("cpu", "1"), ("memory", "1Gi")]).label("app", "x").read(), Reading::NotOurs);
    assert_eq!(pod(&[(GPU, "0")]).read(), Reading::NotOurs);
    assert_eq!(bare().read(), Reading::NotOurs);
}

#[test]
fn devices_alone_are_whole_ones() {
    assert_eq!(pod(&[(GPU, "2")]).want(), DeviceAsk::whole(2));
    assert_eq!(pod(&[(GPU, "2")]).ask().dialect, Dialect::Native);
}

#[test]
fn a_fraction_is_memory_and_share_per_device() {
    let want = pod(&[(GPU, "1"), (GPU_MEMORY, "8Gi"), (GPU_SHARE, "300")]).annotation(GPU_SHARE_LIMIT, "800").want();
    let expected = DeviceAsk {
        memory: MemoryAsk::Bytes(Bytes::gib(8)),
        share: Share(300),
        share_limit: Share(800),
        ..DeviceAsk::default()
    };
    assert_eq!(want, expected);
}

#[test]
fn quantities_are_read_as_kubernetes_writes_them() {
    for memory in ["8589934592", "8Gi", "8192Mi", "8388608Ki"] {
        assert_eq!(pod(&[(GPU_MEMORY, memory)]).want().memory, MemoryAsk::Bytes(Bytes::gib(8)), "{memory}");
    }
    assert_eq!(pod(&[(GPU_MEMORY, "8e9")]).want().memory, MemoryAsk::Bytes(Bytes(8_000_000_000)));
    let number = bare().container("main", &[]).with("resources", json!({ "limits": { GPU: 1, GPU_SHARE: 3e2 } }));
    assert_eq!(number.want().share, Share(300));
}

#[test]
fn requests_are_read_where_there_are_no_limits() {
    let only_requests = bare().container("main", &[]).with("resources", json!({ "requests": { GPU: "2" } }));
    assert_eq!(only_requests.want(), DeviceAsk::whole(2));
    let different =
        bare().container("main", &[]).with("resources", json!({ "limits": { GPU: "2" }, "requests": { GPU: "1" } }));
    expect![[r#"container main: resource divvy.dev/gpu = "2 and 1": limit and request differ; set the limit only, Kubernetes copies it to the request"#]]
        .assert_eq(&different.refusal());
    let same =
        bare().container("main", &[]).with("resources", json!({ "limits": { GPU: "2" }, "requests": { GPU: 2 } }));
    assert_eq!(same.want(), DeviceAsk::whole(2));
}

#[test]
fn a_list_of_models_names_each_once_and_at_most_64() {
    let names = |count: usize| (0..count).map(|i| format!("card-{i}")).collect::<Vec<String>>().join(",");
    let asked = |text: &str| pod(&[(GPU, "1")]).annotation(GPU_MODEL_AVOID, text);
    let twice = format!("{}, {}", names(64), names(64));
    assert_eq!(asked(&twice).ask().models.avoid.len(), 64);
    let many = asked(&format!("T4,{},{}", names(17_000), "x".repeat(97))).mistakes();
    expect![[r#"annotation divvy.dev/gpu-model-avoid = "T4,card-0,card-1,card-2,card-3,card-4,card-5,card-6,card-7,card-8,card-9,card-10... (175990 characters)": names 17002 models, of at most 64 and has a name of 97 bytes where no card's has more than 96; write what the names have in common: A100 stands for every model with A100 in its name"#]]
    .assert_eq(&divvy_dialects::sentence(&many));
    let longest = asked(&"x".repeat(96)).ask();
    assert!(longest.models.is_bounded());
}

#[test]
fn every_annotation_reaches_the_ask() {
    let ask = pod(&[(GPU, "2")])
        .annotation(GPU_MODEL, "H200, A100")
        .annotation(GPU_MODEL_AVOID, "T4")
        .annotation(GPU_UUID, "GPU-1,GPU-2,GPU-3")
        .annotation(GPU_UUID_AVOID, "GPU-4")
        .annotation(TOPOLOGY, "nvlink")
        .annotation(CLASS, "opportunistic")
        .annotation(GANG, "train-7")
        .annotation(GANG_SIZE, "8")
        .annotation(GANG_MIN, "6")
        .annotation(EXPECTED_DURATION, "1h30m")
        .annotation(MIN_RUNTIME, "600")
        .annotation(POLICY, "hami;node=spread;gpu=binpack")
        .annotation(ISOLATION, "mig,driver")
        .ask();
    assert_eq!(ask.models.only, [ModelPattern::Part("H200".into()), ModelPattern::Part("A100".into())]);
    assert_eq!(ask.models.avoid, [ModelPattern::Part("T4".into())]);
    assert_eq!(ask.devices.only, ["GPU-1".into(), "GPU-2".into(), "GPU-3".into()]);
    assert_eq!(ask.devices.avoid, ["GPU-4".into()]);
    assert_eq!(ask.topology, Topology::AtLeast(Link::NvLink));
    assert_eq!(ask.class, Some(Class::Opportunistic));
    assert_eq!(ask.gang, Some(Gang { name: "train-7".into(), size: 8, min: 6 }));
    assert_eq!(ask.expected_duration, Some(5400));
    assert_eq!(ask.min_runtime, Some(600));
    let settings = [("gpu".to_owned(), "binpack".to_owned()), ("node".to_owned(), "spread".to_owned())].into();
    assert_eq!(ask.policy, Some(PolicyChoice { name: Some("hami".into()), settings }));
    assert_eq!(ask.isolation, [Isolation::Mig, Isolation::Driver]);
}

#[test]
fn a_gang_without_a_minimum_starts_all_at_once() {
    let ask = pod(&[(GPU, "1")]).annotation(GANG, "g").annotation(GANG_SIZE, "4").ask();
    assert_eq!(ask.gang, Some(Gang { name: "g".into(), size: 4, min: 4 }));
}

#[test]
fn each_container_has_its_own_slice_and_its_role() {
    let ask = bare()
        .init("fetch", &[(GPU_MEMORY, "1Gi")])
        .sidecar("monitor", &[(GPU_MEMORY, "2Gi")])
        .init("plain", &[])
        .container("a", &[(GPU, "1")])
        .container("b", &[("cpu", "1")])
        .container("c", &[(GPU_SHARE, "100")])
        .ask();
    let seen: Vec<(&str, Role)> = ask.containers.iter().map(|c| (c.name.as_str(), c.role)).collect();
    assert_eq!(seen, [("fetch", Role::Init), ("monitor", Role::Sidecar), ("a", Role::Main), ("c", Role::Main)]);
    assert_eq!(ask.containers[3].wants[0].memory, MemoryAsk::Part(Share(100)));
}

#[test]
fn hints_count_one_slot_per_device() {
    let hints = bare().init("i", &[(GPU, "3")]).container("m", &[(GPU_MEMORY, "2Gi")]).hints();
    assert_eq!(hints.slots, [("i".into(), 3), ("m".into(), 1)].into());
}

#[test]
fn all_mistakes_come_at_once() {
    let refusal = pod(&[(GPU, "-1"), (GPU_MEMORY, "8GB"), ("divvy.dev/gpu-shares", "3")])
        .container("second", &[(GPU_SHARE, "1500"), (GPU_MEMORY, "8")])
        .annotation(TOPOLOGY, "nvlnik")
        .annotation(CLASS, "best-effort")
        .annotation("divvy.dev/gpu-modle", "H200")
        .annotation(GANG_SIZE, "0")
        .annotation(EXPECTED_DURATION, "soon")
        .annotation(POLICY, "fragg")
        .annotation(ISOLATION, "mps")
        .label(GPU, "1")
        .refusal();
    expect![[r#"
        14 mistakes in this pod's device request:
          1. container main: resource divvy.dev/gpu-shares: is not a key of Divvy; did you mean divvy.dev/gpu-share?
          2. annotation divvy.dev/gpu-modle: is not a key of Divvy; did you mean divvy.dev/gpu-model?
          3. label divvy.dev/gpu: is not read as a label; move it to the container's limits
          4. annotation divvy.dev/topology = "nvlnik": is not known; did you mean nvlink? known: best, nvlink, same-board, single-switch, multi-switch, host-bridge, same-cpu, same-numa, same-device, spread
          5. annotation divvy.dev/class = "best-effort": is not known; write one of guarantee, opportunistic
          6. annotation divvy.dev/policy = "fragg": is not known; did you mean frag? known: frag, binpack, spread, kubeshare, kubegpu, gpushare, gpu-manager, vgpu, hami
          7. annotation divvy.dev/isolation = "mps": is not known; write one of mig, driver, intercept, none
          8. annotation divvy.dev/expected-duration = "soon": is not a duration; write seconds, or a duration such as 90s, 1h30m or 2d
          9. annotation divvy.dev/gang-size = "0": is not a number of pods; write 1 or more
          10. annotation divvy.dev/gang-size: belongs to no gang; add divvy.dev/gang with the gang's name
          11. container main: resource divvy.dev/gpu-memory = "8GB": is not a Kubernetes quantity; write bytes, such as 8Gi
          12. container main: resource divvy.dev/gpu = "-1": is negative; write a whole number of devices
          13. container second: resource divvy.dev/gpu-memory = "8": is 8 bytes; memory is counted in bytes: write 8Gi or 8Mi
          14. container second: resource divvy.dev/gpu-share = "1500": is more than one device's time; write 1 to 1000 thousandths per device; for more devices raise divvy.dev/gpu"#]].assert_eq(&refusal);
}

#[test]
fn amounts_that_contradict_each_other_are_refused() {
    for (resources, text) in [
        (vec![(GPU, "0"), (GPU_MEMORY, "1Gi")], "asks for parts of no device"),
        (vec![(GPU, "5000")], "more devices than any node has"),
        (vec![(GPU, "1"), (GPU_MEMORY_LIMIT, "8Gi")], "is a limit without a request"),
        (vec![(GPU, "1"), (GPU_SHARE_LIMIT, "500")], "is a limit without a request"),
        (vec![(GPU_MEMORY, "8Gi"), (GPU_MEMORY_LIMIT, "4Gi")], "is below the memory asked for"),
        (vec![(GPU_SHARE, "500"), (GPU_SHARE_LIMIT, "400")], "is below the share asked for"),
        (vec![(GPU_SHARE, "500"), (GPU_SHARE_LIMIT, "0")], "leaves the container no time"),
        (vec![(GPU_MEMORY, "1Gi"), (GPU_MEMORY_LIMIT, "0")], "leaves the container no memory"),
        (vec![(GPU_SHARE, "0.3")], "is not a whole number; write thousandths"),
        (vec![(GPU_MEMORY, "1e400")], "larger than Kubernetes can hold"),
    ] {
        let refusal = pod(&resources).refusal();
        assert!(refusal.contains(text), "{resources:?}: {refusal}");
    }
    for (key, value, text) in [
        (GPU_SHARE_LIMIT, "200", "is below the share of 300"),
        (GPU_MEMORY_LIMIT, "1Gi", "is below the 8 GiB of memory"),
        (GPU_MEMORY_LIMIT, "12", "is not an amount of memory"),
    ] {
        let refusal = pod(&[(GPU_MEMORY, "8Gi"), (GPU_SHARE, "300")]).annotation(key, value).refusal();
        assert!(refusal.contains(text), "{key}={value}: {refusal}");
    }
    let whole = pod(&[(GPU, "1")]).annotation(GPU_SHARE_LIMIT, "500").refusal();
    assert!(whole.contains("limits what is asked for whole"), "{whole}");
    let several = pod(&[(GPU, "2")]).annotation(TOPOLOGY, "same-device").refusal();
    assert!(several.contains("a container asks for several"), "{several}");
    let both = pod(&[(GPU, "1")]).annotation(GPU_MODEL, "A100,T4").annotation(GPU_MODEL_AVOID, "T4").refusal();
    assert!(both.contains("avoids what the pod insists on"), "{both}");
    let gang = pod(&[(GPU, "1")]).annotation(GANG, "g").annotation(GANG_SIZE, "2").annotation(GANG_MIN, "3").refusal();
    assert!(gang.contains("is more than the gang's 2 members"), "{gang}");
}

#[test]
fn memory_may_grow_where_the_limit_says_so() {
    let want = pod(&[(GPU_MEMORY, "8Gi")]).annotation(GPU_MEMORY_LIMIT, "16Gi").want();
    assert_eq!(want.memory_limit, Some(MemoryAsk::Bytes(Bytes::gib(16))));
    let want = pod(&[(GPU_MEMORY, "8Gi")]).annotation(GPU_MEMORY_LIMIT, "all").want();
    assert_eq!(want.memory_limit, Some(MemoryAsk::Nothing));
    let want = pod(&[(GPU_MEMORY, "8Gi"), (GPU_MEMORY_LIMIT, "12Gi")]).annotation(GPU_MEMORY_LIMIT, "16Gi").want();
    assert_eq!(want.memory_limit, Some(MemoryAsk::Bytes(Bytes::gib(12))), "the container's own limit is nearer");
}

#[test]
fn annotations_without_an_ask_are_a_mistake() {
    let refusal = pod(&[]).annotation(GANG, "g").annotation(GANG_SIZE, "2").refusal();
    assert!(refusal.contains("no container of this pod asks for a device"), "{refusal}");
}

#[test]
fn keys_that_only_divvy_writes_are_refused() {
    for key in [ASK, GRANT, GRANT_OVERRIDE, CLASS_NOW, INVENTORY] {
        let mistakes = pod(&[(GPU, "1")]).annotation(key, "{}").mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert_eq!(mistakes[0].field, Field::Annotation { key: key.into(), within: String::new() });
        assert_eq!(pod(&[]).annotation(key, "{}").mistakes().len(), 1, "also on a pod that asks for nothing");
    }
    assert_eq!(pod(&[(SLOT, "1")]).mistakes().len(), 1);
    assert_eq!(pod(&[(GPU, "1"), (SLOT, "2")]).mistakes().len(), 1);
}

#[test]
fn a_second_pass_of_admission_finds_its_own_words_and_is_content() {
    let first = pod(&[(GPU, "2")]);
    let (ask, hints) = crate::support::ask(first.read());
    let text = serde_json::to_string(&ask).unwrap();
    let second = pod(&[(GPU, "2"), (SLOT, &hints.slots["main"].to_string())])
        .annotation(ASK, &text)
        .annotation(CLASS_NOW, "guarantee");
    assert_eq!(second.ask(), ask);
    assert_eq!(
        second.hints().class_now,
        Some(Class::Guarantee),
        "for the caller to compare with the class it would write"
    );

    let forged = pod(&[(GPU, "4")]).annotation(ASK, &text).annotation(CLASS_NOW, "guarantee");
    assert_eq!(forged.mistakes().len(), 2);
}

#[test]
fn ways_around_a_grant_are_refused_unless_the_platform_team_allows_them() {
    let tricky = pod(&[(GPU, "1")])
        .spec("nodeName", json!("n1"))
        .with("securityContext", json!({ "privileged": true }))
        .with("env", json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }, { "name": "CUDA_DISABLE_CONTROL", "value": "true" }]));
    let mistakes = tricky.mistakes();
    assert_eq!(mistakes.len(), 4, "{mistakes:?}");
    let allowed = divvy_dialects::DialectConfig {
        guard: Guard {
            privileged: OnTrick::Allow,
            visible_devices: OnTrick::Allow,
            node_name: OnTrick::Allow,
            off_switch: OnTrick::Allow,
        },
        ..Default::default()
    };
    assert_eq!(tricky.ask_with(&allowed).containers.len(), 1);
    let harmless = pod(&[(GPU, "1")]).env("NVIDIA_VISIBLE_DEVICES", "void");
    assert_eq!(harmless.want(), DeviceAsk::whole(1));
    let elsewhere =
        bare().container("a", &[(GPU, "1")]).container("b", &[]).with("securityContext", json!({ "privileged": true }));
    assert_eq!(elsewhere.ask().containers.len(), 1, "only containers that ask are held to their grant");
}

#[test]
fn what_of_its_node_a_pod_takes_to_itself_is_named_at_once_each_with_its_mend() {
    let add = |right: &str| json!({ "capabilities": { "add": ["NET_RAW", right] } });
    let volumes = |paths: &[&str]| -> Value {
        paths.iter().map(|path| json!({ "name": "v", "hostPath": { "path": path } })).collect()
    };
    let tricky = pod(&[(GPU, "1")])
        .spec("hostPID", json!(true))
        .spec("volumes", volumes(&["/dev", "/srv/data"]))
        .with("securityContext", add("SYS_ADMIN"));
    let refusal = tricky.refusal();
    for part in [
        "spec.hostPID",
        "remove hostPID",
        "volume v: hostPath.path",
        "reaches /dev of the node",
        "devices come with the grant",
        "container main: securityContext.capabilities.add",
        "remove the capability",
    ] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    assert_eq!(tricky.mistakes().len(), 3);
    let allowed = divvy_dialects::DialectConfig {
        guard: Guard { privileged: OnTrick::Allow, ..Guard::default() },
        ..Default::default()
    };
    assert_eq!(tricky.ask_with(&allowed).containers.len(), 1);

    let reads = |path: &str| pod(&[(GPU, "1")]).spec("volumes", volumes(&[path])).read();
    for path in [
        "/",
        "/dev/",
        "//run",
        "/run/divvy",
        "/run/divvy/containers",
        "/var/run",
        "/var/run/divvy/socket",
        "/var/run/cdi/x.json",
        "/etc",
        "/etc/cdi",
        "/dev/nvidia0",
        "/dev/./nvidia-caps/x",
        "/dev/cambricon_dev0",
    ] {
        assert!(matches!(reads(path), Reading::Refused(..)), "{path}");
    }
    for path in
        ["/data", "/dev/shm", "/dev/infiniband", "/run/docker.sock", "/var/running", "/var", "/device", "/run/divvyx"]
    {
        assert!(matches!(reads(path), Reading::Ask(..)), "{path}");
    }
    let rights = |right: &str| pod(&[(GPU, "1")]).with("securityContext", add(right)).read();
    for right in ["CAP_SYS_ADMIN", "sys_admin", "ALL"] {
        assert!(matches!(rights(right), Reading::Refused(..)), "{right}");
    }
    assert!(matches!(rights("SYS_PTRACE"), Reading::Ask(..)));
    let plain = bare().container("main", &[]).spec("hostPID", json!(true)).spec("volumes", volumes(&["/dev"]));
    assert_eq!(plain.read(), Reading::NotOurs, "a pod that asks for nothing is nobody's business here");
}

#[test]
fn devices_belong_to_containers_not_to_the_pod() {
    let refusal = pod(&[(GPU, "1")]).spec("resources", json!({ "limits": { GPU: "1" } })).refusal();
    assert!(refusal.contains("devices belong to containers"), "{refusal}");
}

#[test]
fn a_key_in_the_wrong_place_says_where_it_belongs() {
    let refusal = pod(&[(GPU, "1"), (GPU_MODEL, "1")]).annotation(GPU_SHARE, "300").refusal();
    assert!(refusal.contains("is an annotation, not a resource; move it to the pod's annotations"), "{refusal}");
    assert!(refusal.contains("is a resource, not an annotation; move it to the container's limits"), "{refusal}");
}

#[test]
fn a_part_of_a_device_without_isolation_is_refused_in_every_dialect_that_divides() {
    let divided = [
        pod(&[(GPU_MEMORY, "1Gi"), (GPU_SHARE, "1")]),
        pod(&[(GPU_SHARE, "500")]),
        pod(&[(GPU_SHARE, "1000")]),
        pod(&[("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "1000")]),
        pod(&[("aliyun.com/gpu-mem", "1")]),
        pod(&[("tencent.com/vcuda-core", "50"), ("tencent.com/vcuda-memory", "4")]),
        pod(&[]).label("sharedgpu/gpu_request", "0.5").label("sharedgpu/gpu_limit", "1.0"),
    ];
    for divided in divided {
        let refusal = divided.annotation(ISOLATION, "none").refusal();
        assert!(refusal.contains("nothing would hold container main to its part of a device"), "{refusal}");
        assert!(refusal.contains("ask for whole devices"), "{refusal}");
    }
    for whole in [pod(&[(GPU, "1")]), pod(&[("nvidia.com/gpu", "1")])] {
        assert_eq!(whole.annotation(ISOLATION, "none").ask().isolation, [Isolation::None]);
    }
    let preferred = pod(&[(GPU_SHARE, "500")]).annotation(ISOLATION, "mig,intercept,none").ask();
    assert_eq!(preferred.isolation, [Isolation::Mig, Isolation::Intercept, Isolation::None]);
}

//! Laws that hold for whatever is thrown at the reader.

use std::path::Path;

use divvy_core::ask::{Dialect, GpuAsk};
use divvy_core::device::{Device, Isolation};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::emulate::Place;
use divvy_dialects::node::emulate_node;
use divvy_dialects::{
    DialectConfig, Hints, NvidiaFlavour, PodManifest, Reading, VcudaFlavour, VgpuConfig, emulate, parse, render,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Values people and fuzzers write where an amount is expected.
fn amount() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0u64..1200).prop_map(|n| json!(n.to_string())),
        2 => (1u64..300).prop_map(|n| json!(format!("{n}Gi"))),
        1 => any::<i64>().prop_map(|n| json!(n)),
        1 => any::<f64>().prop_map(|n| json!(n)),
        1 => proptest::sample::select(vec![
            "", "0", "1e400", "-1", "10G", "0.5", "1.0", "10", "2.5", "1e-400", "９", "½", "NaN", "9223372036854775808", "8Ei", "50", "100",
            "150", "200", "1Gi", "abc", "-0", "+3", "  4 ", "0x10", "null", "true", "99", "101",
        ]).prop_map(|text| json!(text)),
        1 => ".{0,12}".prop_map(|text| json!(text)),
        1 => json_value(),
    ]
}

/// Any JSON at all.
fn json_value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|n| json!(n)),
        ".{0,20}".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::btree_map(".{0,10}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Keys of every dialect, and some that only look like one.
fn key() -> impl Strategy<Value = String> {
    let known: Vec<&'static str> = [
        keys::USER_RESOURCES.as_slice(),
        &keys::USER_ANNOTATIONS,
        keys::INTERNAL,
        &[
            keys::KUBESHARE_REQUEST,
            keys::KUBESHARE_LIMIT,
            keys::KUBESHARE_MEMORY,
            keys::KUBESHARE_MODEL,
            keys::KUBESHARE_PRIORITY,
            keys::KUBESHARE_GROUP,
            keys::KUBESHARE_POD_GROUP,
            keys::KUBESHARE_HEADCOUNT,
            keys::KUBESHARE_THRESHOLD,
            keys::KUBESHARE_MIN_AVAILABLE,
            keys::KUBESHARE1_REQUEST,
            keys::KUBESHARE1_LIMIT,
            keys::KUBESHARE1_MEMORY,
            keys::KUBEGPU_DEVICE_INFO,
            keys::KUBEGPU_POD_2018,
            keys::KUBEGPU_COUNT_2018,
            keys::VCUDA_CORE,
            keys::VCUDA_MEMORY,
            keys::VCUDA_CORE_LIMIT,
            keys::GPUSHARE_MEMORY,
            keys::GPUSHARE_COUNT,
            keys::VGPU_COUNT,
            keys::VGPU_MEMORY,
            keys::VGPU_MEMORY_PERCENTAGE,
            keys::VGPU_CORES,
            keys::VGPU_PRIORITY,
            keys::VGPU_USE_TYPE,
            keys::VGPU_NO_USE_TYPE,
            keys::VGPU_USE_UUID,
            keys::VGPU_NO_USE_UUID,
            keys::VGPU_NUMA_BIND,
            keys::VGPU_MODE,
            keys::VGPU_WEBHOOK,
            keys::HAMI_NODE_POLICY,
            keys::HAMI_GPU_POLICY,
            keys::HAMI_WEIGHTS,
            keys::MLU_COUNT,
            keys::MLU_MEMORY,
            keys::HAMI_MLU_COUNT,
            keys::HAMI_MLU_MEMORY,
            keys::HAMI_MLU_CORES,
        ],
    ]
    .concat();
    prop_oneof![
        8 => proptest::sample::select(known).prop_map(str::to_owned),
        1 => "[a-z]{1,8}".prop_map(|word| format!("{}{word}", keys::DOMAIN)),
        1 => "[a-z0-9.]{0,10}".prop_map(|word| format!("{}{word}", keys::VGPU_MIG)),
        1 => "[a-z]{1,8}".prop_map(|word| format!("{}{word}", keys::HYGON_DOMAIN)),
        1 => ".{0,12}",
    ]
}

fn map() -> impl Strategy<Value = Value> {
    proptest::collection::vec((key(), amount()), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

fn container() -> impl Strategy<Value = Value> {
    let restart = proptest::option::of(Just("Always"));
    (proptest::option::of("[a-c]"), map(), map(), any::<bool>(), any::<bool>(), restart).prop_map(
        |(name, limits, requests, twice, privileged, restart)| {
            let mut container = Map::new();
            if let Some(name) = name {
                container.insert("name".into(), name.into());
            }
            let requests = if twice { requests } else { limits.clone() };
            container.insert("resources".into(), json!({ "limits": limits, "requests": requests }));
            container.insert("securityContext".into(), json!({ "privileged": privileged }));
            container.insert("restartPolicy".into(), json!(restart));
            Value::Object(container)
        },
    )
}

fn any_pod() -> impl Strategy<Value = Value> {
    let containers = || proptest::collection::vec(prop_oneof![6 => container(), 1 => json_value()], 0..4);
    let shaped = (map(), map(), containers(), containers()).prop_map(|(labels, annotations, init, main)| {
        json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": { "initContainers": init, "containers": main } })
    });
    prop_oneof![9 => shaped, 1 => json_value()]
}

fn any_config() -> impl Strategy<Value = DialectConfig> {
    (any::<bool>(), any::<bool>(), 0u32..5000, 0u32..150, 0u32..3, 0u32..2048).prop_map(
        |(vgpu, manager, mem, cores, num, factor)| DialectConfig {
            nvidia: if vgpu { NvidiaFlavour::Vgpu } else { NvidiaFlavour::Hami },
            vcuda: if manager { VcudaFlavour::GpuManager } else { VcudaFlavour::GpuSharing },
            vgpu: VgpuConfig {
                default_mem: mem,
                default_cores: cores,
                default_gpu_num: num,
                memory_factor: factor,
                ..VgpuConfig::default()
            },
            ..DialectConfig::default()
        },
    )
}

fn check(pod: &Value, config: &DialectConfig) -> Reading {
    let reading = parse(&PodManifest::new(pod), config);
    assert_eq!(reading, parse(&PodManifest::new(pod), config), "the same pod has the same reading");
    match &reading {
        Reading::NotOurs => {}
        Reading::Refused(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                assert!(!mistake.problem.is_empty() && !mistake.mend.is_empty(), "{mistake:?}");
            }
        }
        Reading::Ask(ask, hints) => sound(ask, hints.slots.len()),
    }
    reading
}

/// What everybody downstream relies on.
fn sound(ask: &GpuAsk, slots: usize) {
    assert_eq!(ask.v, GpuAsk::VERSION);
    assert!(!ask.containers.is_empty());
    assert!(slots <= ask.containers.len());
    for want in ask.containers.iter().flat_map(|container| &container.wants) {
        assert!(want.count > 0);
        assert!(want.share <= want.share_limit, "{want:?}");
        assert!(want.share_limit.0 <= 1000, "{want:?}");
    }
    if let Some(gang) = &ask.gang {
        assert!(gang.min <= gang.size, "{gang:?}");
    }
    let text = serde_json::to_string(ask).unwrap();
    assert_eq!(serde_json::from_str::<GpuAsk>(&text).unwrap(), *ask, "an ask survives its annotation");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_has_a_reading(pod in any_pod(), foreign in foreign_pod(), config in any_config()) {
        check(&pod, &config);
        check(&foreign, &config);
    }

    #[test]
    fn any_json_at_all_has_a_reading(json in json_value()) {
        check(&json, &DialectConfig::default());
        check(&json!({ "metadata": json, "spec": json }), &DialectConfig::default());
        check(&json!({ "metadata": { "labels": json, "annotations": json }, "spec": { "containers": json } }), &DialectConfig::default());
    }
}

/// Words of one dialect: labels, annotations, and resources of a container, each with values that are mostly right.
type Vocabulary = &'static [(&'static str, &'static [&'static str])];

const VOCABULARIES: [(Vocabulary, Vocabulary, Vocabulary); 5] = [
    (
        &[
            (keys::KUBESHARE_LIMIT, &["1.0", "0.8", "1", "4"]),
            (keys::KUBESHARE_REQUEST, &["0.5", "0.3333", "0.0", "4.0"]),
            (keys::KUBESHARE_MEMORY, &["1073741824", "0"]),
            (keys::KUBESHARE_MODEL, &["NVIDIA-V100", ""]),
            (keys::KUBESHARE_PRIORITY, &["", "0", "100"]),
            (keys::KUBESHARE_GROUP, &["a"]),
            (keys::KUBESHARE_HEADCOUNT, &["5", "4"]),
            (keys::KUBESHARE_THRESHOLD, &["0.2", "1.0", "2.0"]),
        ],
        &[],
        &[],
    ),
    (
        &[],
        &[(
            keys::KUBEGPU_DEVICE_INFO,
            &[
                "{}",
                r#"{"requests":{"gpu/gpu-generate-topology":0},"runningcontainer":{"c0":{"requests":{"resource/group/gpu/0/cards":1}}}}"#,
            ],
        )],
        &[(keys::VGPU_COUNT, &["1", "3"])],
    ),
    (
        &[],
        &[(keys::VCUDA_CORE_LIMIT, &["80", "100", "400"])],
        &[(keys::VCUDA_CORE, &["50", "20", "100", "300"]), (keys::VCUDA_MEMORY, &["1", "15", "60"])],
    ),
    (
        &[(keys::GPUSHARE_COUNT, &["1", "2"])],
        &[],
        &[(keys::GPUSHARE_MEMORY, &["2", "4", "16276"]), (keys::GPUSHARE_COUNT, &["1", "2"])],
    ),
    (
        &[],
        &[
            (keys::VGPU_USE_TYPE, &["A100,V100", " "]),
            (keys::VGPU_NO_USE_TYPE, &["T4"]),
            (keys::VGPU_USE_UUID, &["GPU-1"]),
            (keys::VGPU_NUMA_BIND, &["true", "false"]),
            (keys::VGPU_MODE, &["hami-core", "mig,hami-core"]),
            (keys::HAMI_NODE_POLICY, &["binpack", "spread"]),
            (keys::HAMI_GPU_POLICY, &["mutex", "numa,binpack"]),
            (keys::HAMI_WEIGHTS, &["slot=1,core=1,memory=3"]),
        ],
        &[
            (keys::VGPU_COUNT, &["1", "2"]),
            (keys::VGPU_MEMORY, &["3000", "0"]),
            (keys::VGPU_MEMORY_PERCENTAGE, &["50", "100"]),
            (keys::VGPU_CORES, &["30", "100", "0"]),
            (keys::VGPU_PRIORITY, &["0", "1"]),
            (keys::MLU_COUNT, &["1"]),
            (keys::MLU_MEMORY, &["10240"]),
            ("nvidia.com/mig-1g.5gb", &["2"]),
        ],
    ),
];

/// Some of a vocabulary's words.
fn said(vocabulary: Vocabulary) -> impl Strategy<Value = Map<String, Value>> {
    let word = |(key, values): &(&'static str, &'static [&'static str])| {
        proptest::option::weighted(0.6, (Just(*key), proptest::sample::select(values.to_vec())))
    };
    let words: Vec<_> = vocabulary.iter().map(word).collect();
    words.prop_map(|words| words.into_iter().flatten().map(|(key, value)| (key.to_owned(), value.into())).collect())
}

/// Pods that speak one foreign dialect, mostly rightly.
fn foreign_pod() -> impl Strategy<Value = Value> {
    proptest::sample::select(VOCABULARIES.to_vec()).prop_flat_map(|(labels, annotations, resources)| {
        let container = (said(resources), 0u8..4);
        (said(labels), said(annotations), proptest::collection::vec(container, 1..4)).prop_map(
            |(labels, annotations, containers)| {
                let (mut init, mut main) = (Vec::new(), Vec::new());
                for (n, (limits, role)) in containers.into_iter().enumerate() {
                    let mut container = json!({ "name": format!("c{n}"), "resources": { "limits": limits } });
                    if role == 1 {
                        container["restartPolicy"] = "Always".into();
                    }
                    if n > 0 && role < 2 { init.push(container) } else { main.push(container) }
                }
                json!({ "kind": "Pod", "metadata": { "labels": labels, "annotations": annotations },
                "spec": { "initContainers": init, "containers": main } })
            },
        )
    })
}

/// The laws below say nothing about a pod that is refused: most of these must be read.
#[test]
fn the_generators_make_pods_of_every_dialect() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut read = std::collections::BTreeMap::new();
    for _ in 0..400 {
        for pod in [foreign_pod().boxed(), native_pod().boxed()] {
            let pod = pod.new_tree(&mut runner).unwrap().current();
            if let Reading::Ask(ask, _) = check(&pod, &DialectConfig::default()) {
                *read.entry(ask.dialect).or_insert(0) += 1;
            }
        }
    }
    for dialect in [Dialect::Kubeshare, Dialect::Kubegpu, Dialect::GpuManager, Dialect::Gpushare, Dialect::Hami] {
        assert!(read.get(&dialect).is_some_and(|count| *count >= 10), "{dialect:?}: {read:?}");
    }
    assert!(read[&Dialect::Native] >= 300, "{read:?}");
}

/// The pod as admission leaves it: with its ask, its slots and all that the hints say.
fn admitted(pod: &Value, ask: &GpuAsk, hints: &Hints) -> Value {
    let mut pod = pod.clone();
    let annotations = pod["metadata"]["annotations"].as_object_mut();
    let mut own = Map::new();
    let annotations = match annotations {
        Some(annotations) => annotations,
        None => &mut own,
    };
    annotations.insert(keys::ASK.into(), serde_json::to_string(ask).unwrap().into());
    for (key, value) in &hints.annotations {
        annotations.insert(key.clone(), value.as_str().into());
    }
    if !own.is_empty() {
        pod["metadata"]["annotations"] = Value::Object(own);
    }
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let Some(name) = container["name"].as_str().map(str::to_owned) else { continue };
            let resources =
                hints.resources.iter().map(|hint| (hint.container.as_str(), hint.resource.as_str(), hint.amount));
            let slots =
                hints.slots.iter().map(|(container, count)| (container.as_str(), keys::SLOT, u64::from(*count)));
            for (_, resource, amount) in resources.chain(slots).filter(|(container, ..)| *container == name) {
                for kind in ["limits", "requests"] {
                    container["resources"][kind][resource] = amount.to_string().into();
                }
            }
            for hint in hints.env.iter().filter(|hint| hint.container.as_str() == name) {
                if !container["env"].is_array() {
                    container["env"] = json!([]);
                }
                let env = container["env"].as_array_mut().unwrap();
                if !env.iter().any(|entry| entry["name"] == hint.name.as_str()) {
                    env.push(json!({ "name": hint.name, "value": hint.value }));
                }
            }
            for hint in hints.post_start.iter().filter(|hint| hint.container.as_str() == name) {
                container["lifecycle"]["postStart"]["exec"]["command"] = json!(hint.command);
            }
        }
    }
    pod
}

/// Native pods that are mostly right, so that there is something to render.
fn native_pod() -> impl Strategy<Value = Value> {
    let resources = (
        proptest::option::of(1u32..4),
        proptest::option::of(prop_oneof![Just(0u64), (1u64..64).prop_map(|g| g << 30), (1u64 << 20)..(1 << 40)]),
        proptest::option::of(0u32..=1000),
        proptest::option::of((1u64..64).prop_map(|g| g << 30)),
        proptest::option::of(1u32..=1000),
    )
        .prop_map(|(count, memory, share, memory_limit, share_limit)| {
            let mut limits = Map::new();
            let mut put = |key: &str, amount: Option<u64>| {
                amount.map(|amount| limits.insert(key.into(), json!(amount.to_string())))
            };
            put(keys::GPU, count.map(u64::from));
            put(keys::GPU_MEMORY, memory);
            put(keys::GPU_SHARE, share.map(u64::from));
            put(keys::GPU_MEMORY_LIMIT, memory_limit.filter(|limit| memory.is_some_and(|memory| *limit >= memory)));
            put(
                keys::GPU_SHARE_LIMIT,
                share_limit.filter(|limit| share.is_some_and(|share| *limit >= share)).map(u64::from),
            );
            limits
        });
    let containers = proptest::collection::vec(resources, 1..4);
    let annotations =
        proptest::collection::btree_map(proptest::sample::select(keys::USER_ANNOTATIONS.to_vec()), Just(()), 0..6)
            .prop_flat_map(|keys_chosen| {
                keys_chosen.into_keys().map(|key| (Just(key), annotation(key))).collect::<Vec<_>>()
            });
    (annotations, containers, proptest::collection::vec(0u8..3, 3)).prop_map(|(annotations, containers, roles)| {
        let mut annotations: Map<String, Value> = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        if [keys::GANG, keys::GANG_SIZE, keys::GANG_MIN].iter().any(|key| annotations.contains_key(*key)) {
            annotations.entry(keys::GANG).or_insert(json!("g"));
            annotations.insert(keys::GANG_SIZE.into(), json!("9"));
        }
        let (mut init, mut main) = (Vec::new(), Vec::new());
        for (n, limits) in containers.into_iter().enumerate() {
            let mut container = json!({ "name": format!("c{n}"), "resources": { "limits": limits } });
            match roles[n] {
                0 => main.push(container),
                1 => init.push(container),
                _ => {
                    container["restartPolicy"] = "Always".into();
                    init.push(container);
                }
            }
        }
        json!({ "kind": "Pod", "metadata": { "annotations": annotations }, "spec": { "initContainers": init, "containers": main } })
    })
}

fn annotation(key: &'static str) -> BoxedStrategy<String> {
    let words =
        |words: &'static [&'static str]| proptest::sample::select(words.to_vec()).prop_map(str::to_owned).boxed();
    match key {
        keys::GPU_MEMORY_LIMIT => words(&["all", "64Gi", "2Ti"]),
        keys::GPU_SHARE_LIMIT => words(&["1000", "900"]),
        keys::GPU_MODEL | keys::GPU_MODEL_AVOID => "[A-Z][0-9]{2},[A-Z][0-9]{3}".boxed(),
        keys::GPU_UUID | keys::GPU_UUID_AVOID => "GPU-[a-f0-9]{4}".boxed(),
        keys::TOPOLOGY => words(&["best", "nvlink", "same-numa", "same-device", "spread", "host-bridge"]),
        keys::CLASS => words(&["guarantee", "opportunistic"]),
        keys::GANG => "[a-z]{1,5}".boxed(),
        keys::GANG_SIZE | keys::GANG_MIN => (1u32..9).prop_map(|n| n.to_string()).boxed(),
        keys::EXPECTED_DURATION | keys::MIN_RUNTIME => words(&["90", "1h30m", "2d"]),
        keys::POLICY => words(&["frag", "hami;gpu=spread", "binpack"]),
        keys::ISOLATION => words(&["mig", "mig,driver", "intercept,none"]),
        other => panic!("{other} has no values here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_rendered_ask_reads_as_the_same_ask(pod in native_pod()) {
        if let Reading::Ask(ask, _) = check(&pod, &DialectConfig::default()) {
            prop_assert_eq!(ask.dialect, Dialect::Native);
            let rendered = render(&ask);
            prop_assert!(rendered.lost.is_empty(), "{:?}", rendered.lost);
            match check(&rendered.pod, &DialectConfig::default()) {
                Reading::Ask(again, _) => prop_assert_eq!(again, ask),
                other => prop_assert!(false, "{:?} from {}", other, rendered.pod),
            }
        }
    }

    #[test]
    fn admission_twice_is_admission_once(foreign in foreign_pod(), native in native_pod(), config in any_config()) {
        for pod in [foreign, native] {
            if let Reading::Ask(ask, hints) = check(&pod, &config) {
                let admitted = admitted(&pod, &ask, &hints);
                match check(&admitted, &config) {
                    Reading::Ask(again, more) => {
                        prop_assert_eq!(&again, &ask);
                        prop_assert_eq!(admitted.clone(), self::admitted(&admitted, &again, &more), "nothing is left to add");
                    }
                    other => prop_assert!(false, "{:?} from {}", other, admitted),
                }
            }
        }
    }

    #[test]
    fn whatever_is_granted_can_be_shown(
        pod in foreign_pod(),
        config in any_config(),
        ids in proptest::collection::vec("[A-C]", 0..8),
        devices in proptest::collection::vec(("[A-B]", any::<u64>(), any::<u32>()), 0..3),
        at in any::<u64>(),
    ) {
        if let Reading::Ask(ask, _) = check(&pod, &config) {
            let mut inventory = crate::support::node(&[]);
            inventory.driver = "a.b".into();
            for (id, memory, index) in devices {
                inventory.devices.push(Device::gpu(id, index % 64, "M", Bytes(memory)));
            }
            let slice = |id: &String| Slice {
                device: id.as_str().into(),
                kind: Default::default(),
                memory: Bytes(at),
                memory_limit: Bytes(at),
                share: Share(500),
                share_limit: Share(1000),
                exclusive: false,
                isolation: Isolation::Intercept,
                partition: None,
            };
            let containers = ask.containers.iter().map(|container| ContainerGrant {
                name: container.name.clone(),
                role: container.role,
                slices: ids.iter().take(container.wants.len() * 2).map(slice).collect(),
            });
            let grant = Grant { v: 1, at, policy: "p".into(), containers: containers.collect(), claim: None };
            let place = Place { node: "n", inventory: &inventory, ports_taken: &Default::default() };
            let manifest = PodManifest::new(&pod);
            let emulation = emulate(&manifest, &ask, &grant, &place);
            prop_assert_eq!(&emulation, &emulate(&manifest, &ask, &grant, &place));
            // The node writes files as root, which must not go through a folder that a tenant fills.
            for promised in emulation.containers.values() {
                let writable: Vec<_> = promised.mounts.iter().filter(|mount| !mount.read_only).collect();
                for file in &promised.files {
                    let within = writable.iter().find(|mount| Path::new(&file.path).starts_with(&mount.path));
                    prop_assert!(within.is_none(), "{} lies within {:?}", file.path, within);
                }
            }
            emulate_node("n", &inventory);
        }
    }

    #[test]
    fn whatever_reads_renders(pod in foreign_pod(), config in any_config()) {
        if let Reading::Ask(ask, _) = check(&pod, &config) {
            let rendered = render(&ask);
            if rendered.lost.is_empty()
                && let Reading::Ask(again, _) = check(&rendered.pod, &DialectConfig::default())
            {
                prop_assert_eq!(&again.containers, &ask.containers);
            }
        }
    }
}

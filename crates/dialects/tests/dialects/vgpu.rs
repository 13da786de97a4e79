use divvy_core::ask::{DeviceAsk, Dialect, MemoryAsk, ModelPattern, Role, Topology};
use divvy_core::device::{DeviceKind, Isolation};
use divvy_core::keys::*;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::{
    CorePolicy, DialectConfig, EnvHint, NvidiaFlavour, PodManifest, Reading, ResourceHint, VgpuConfig, VgpuNames, parse,
};
use serde_json::json;

use crate::support::{ask, bare, only_want, pod, wrong_keys};

fn vgpu() -> DialectConfig {
    DialectConfig { nvidia: NvidiaFlavour::Vgpu, ..DialectConfig::default() }
}

fn with(vgpu: VgpuConfig) -> DialectConfig {
    DialectConfig { vgpu, ..DialectConfig::default() }
}

fn added(container: &str, resource: &str, amount: u64) -> ResourceHint {
    ResourceHint { container: container.into(), resource: resource.into(), amount }
}

#[test]
fn fp_01_a_pod_that_asks_is_ours_and_one_that_does_not_is_untouched() {
    let want = only_want(&pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "3000")]).ask_with(&vgpu()));
    assert_eq!(want, DeviceAsk { memory: MemoryAsk::Bytes(Bytes::mib(3000)), ..DeviceAsk::default() });
    assert_eq!(pod(&[("cpu", "1")]).read_with(&vgpu()), Reading::NotOurs);
}

#[test]
fn fp_02_a_privileged_container_is_passed_by_under_4paradigm_and_denied_under_hami() {
    let privileged = pod(&[(VGPU_COUNT, "1")]).with("securityContext", json!({ "privileged": true }));
    assert_eq!(privileged.read_with(&vgpu()), Reading::NotOurs);
    let mistakes = privileged.mistakes();
    assert!(mistakes[0].problem.starts_with("container main is privileged"), "{}", mistakes[0]);
}

#[test]
fn fp_03_every_container_with_a_priority_learns_it() {
    let pod = bare()
        .container("a", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100"), (VGPU_PRIORITY, "0")])
        .container("b", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100"), (VGPU_PRIORITY, "1")])
        .container("c", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100")]);
    let (read, hints) = ask(pod.read_with(&vgpu()));
    let env = |container: &str, value: &str| EnvHint {
        container: container.into(),
        name: "CUDA_TASK_PRIORITY".into(),
        value: value.into(),
    };
    assert_eq!(hints.env, [env("a", "0"), env("b", "1")]);
    assert_eq!(read.priority, 1, "the highest of its containers, upside up");
    let beside = bare().container("a", &[(VGPU_COUNT, "1")]).container("b", &[(VGPU_PRIORITY, "0")]);
    let (read, hints) = ask(beside.read());
    assert!(hints.env.contains(&env("b", "0")), "also one without a card: {:?}", hints.env);
    assert_eq!(read.priority, 0, "which has no say on the card of another");
    let broken = bare().container("a", &[(VGPU_COUNT, "1")]).container("b", &[(VGPU_PRIORITY, "x")]);
    assert_eq!(wrong_keys(&broken.mistakes()), [VGPU_PRIORITY]);
    let alone = bare().container("a", &[(VGPU_PRIORITY, "0")]);
    assert_eq!(alone.read(), Reading::NotOurs, "a priority alone asks for nothing");
}

#[test]
fn fp_04_a_label_on_the_namespace_or_the_pod_turns_the_dialect_off() {
    let asking = pod(&[(VGPU_COUNT, "1")]);
    for key in [VGPU_WEBHOOK, HAMI_WEBHOOK] {
        assert_eq!(asking.clone().label(key, "ignore").read(), Reading::NotOurs);
        let labels = json!({ key: "ignore" });
        let manifest = PodManifest::new(&asking.0).with_namespace_labels(&labels);
        assert_eq!(parse(&manifest, &DialectConfig::default()), Reading::NotOurs);
    }
    let enabled = asking.clone().label(VGPU_WEBHOOK, "enabled");
    let labels = json!({ VGPU_WEBHOOK: "ignore" });
    let manifest = PodManifest::new(&enabled.0).with_namespace_labels(&labels);
    assert_eq!(parse(&manifest, &DialectConfig::default()), Reading::NotOurs, "the pod does not cancel its namespace");
    let natively = pod(&[(GPU, "1")]).label(HAMI_WEBHOOK, "ignore");
    assert_eq!(natively.ask().dialect, Dialect::Native, "and no other");
}

#[test]
fn fp_08_a_card_alone_is_all_its_memory_under_4paradigm_and_a_whole_card_under_hami() {
    let alone = pod(&[(VGPU_COUNT, "1")]);
    let shared = only_want(&alone.ask_with(&vgpu()));
    assert_eq!(shared, DeviceAsk { memory: MemoryAsk::Part(Share::WHOLE), ..DeviceAsk::default() });
    assert_eq!(alone.want(), DeviceAsk::whole(1));
}

#[test]
fn fp_09_a_percentage_is_of_the_cards_memory() {
    for config in [vgpu(), DialectConfig::default()] {
        let want = only_want(&pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "50")]).ask_with(&config));
        assert_eq!(want.memory, MemoryAsk::Part(Share(500)));
    }
    assert_eq!(Bytes::mib(16160).thousandths(Share(500)), Bytes::mib(8080));
    let both = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "3000"), (VGPU_MEMORY_PERCENTAGE, "50")]).want();
    assert_eq!(both.memory, MemoryAsk::Bytes(Bytes::mib(3000)), "the amount goes before the percentage");
}

#[test]
fn fp_12_a_hundred_cores_are_the_card_for_oneself() {
    for config in [vgpu(), DialectConfig::default()] {
        let want = only_want(&pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100"), (VGPU_CORES, "100")]).ask_with(&config));
        assert!(want.exclusive);
        assert_eq!((want.share, want.memory), (Share(1000), MemoryAsk::Bytes(Bytes::mib(100))));
    }
}

#[test]
fn cores_are_a_guarantee_and_by_default_a_cap() {
    let limited = pod(&[(VGPU_COUNT, "2"), (VGPU_MEMORY, "3000"), (VGPU_CORES, "30")]);
    let want = limited.want();
    assert_eq!((want.count, want.share, want.share_limit, want.exclusive), (2, Share(300), Share(300), false));
    let relaxed = limited.clone().env("GPU_CORE_UTILIZATION_POLICY", "default").want();
    assert_eq!((relaxed.share, relaxed.share_limit), (Share(300), Share(1000)));
    let disabled = limited.clone().env("GPU_CORE_UTILIZATION_POLICY", "disable").want();
    assert_eq!((disabled.share, disabled.share_limit), (Share(300), Share(1000)), "sharing itself is not switched off");
    let policy = with(VgpuConfig { core_policy: CorePolicy::Default, ..VgpuConfig::default() });
    assert_eq!(only_want(&limited.ask_with(&policy)).share_limit, Share(1000));
    let forced = limited.env("GPU_CORE_UTILIZATION_POLICY", "force");
    assert_eq!(only_want(&forced.ask_with(&policy)).share_limit, Share(300));
}

#[test]
fn fp_26_mlus_are_asked_for_whole_or_by_memory() {
    let slice = pod(&[(MLU_COUNT, "1"), (MLU_MEMORY, "10240")]).want();
    assert_eq!((slice.kind, slice.count, slice.memory), (DeviceKind::Mlu, 1, MemoryAsk::Bytes(Bytes::mib(10240))));
    let whole = pod(&[(MLU_COUNT, "2")]).want();
    assert_eq!(whole, DeviceAsk { kind: DeviceKind::Mlu, ..DeviceAsk::whole(2) });
    let hami = pod(&[(HAMI_MLU_COUNT, "1"), (HAMI_MLU_MEMORY, "20"), (HAMI_MLU_CORES, "10")]).want();
    assert_eq!((hami.memory, hami.share), (MemoryAsk::Bytes(Bytes::mib(5120)), Share(100)));
    let typed = pod(&[(MLU_COUNT, "1")]).annotation(MLU_USE_TYPE, "370").ask();
    assert_eq!(typed.models.only, [ModelPattern::Part("370".into())]);
    for broken in [
        pod(&[(MLU_MEMORY, "10240")]),
        pod(&[(MLU_COUNT, "1"), (HAMI_MLU_COUNT, "1")]),
        pod(&[(HAMI_MLU_COUNT, "1"), (HAMI_MLU_CORES, "101")]),
        pod(&[(MLU_COUNT, "1"), (MLU_MEMORY, "1e12")]),
        pod(&[(MLU_COUNT, "0"), (MLU_MEMORY, "1")]),
    ] {
        assert_eq!(broken.mistakes().len(), 1, "{broken:?}");
    }
}

#[test]
fn fp_26_a_part_of_an_mlu_is_split_off_after_the_start() {
    let part = pod(&[(MLU_COUNT, "1"), (MLU_MEMORY, "10240")]);
    let busy = part.clone().with("lifecycle", json!({ "postStart": { "exec": { "command": ["echo"] } } }));
    for config in [vgpu(), DialectConfig::default()] {
        let (_, hints) = ask(part.read_with(&config));
        assert_eq!(hints.post_start.len(), 1, "where its names are spoken, whoever reads the rest");
        assert_eq!(hints.post_start[0].command, ["/usr/bin/smlu-containerd"]);
        let (_, whole) = ask(pod(&[(MLU_COUNT, "1")]).read_with(&config));
        assert!(whole.post_start.is_empty());
        let (_, hami) = ask(pod(&[(HAMI_MLU_COUNT, "1"), (HAMI_MLU_MEMORY, "20")]).read_with(&config));
        assert!(hami.post_start.is_empty(), "HAMi has none");
        assert_eq!(busy.mistakes_with(&config).len(), 1, "a hook of the user's is not overwritten");
    }
}

#[test]
fn hygon_is_refused_by_name() {
    let mistakes = pod(&[("hygon.com/dcunum", "1"), ("hygon.com/dcumem", "2000")]).mistakes();
    assert_eq!(wrong_keys(&mistakes), ["hygon.com/dcumem", "hygon.com/dcunum"]);
    assert!(mistakes[0].problem.contains("Hygon"));
    assert_eq!(pod(&[("hygon.com/dcunum", "1")]).label(HAMI_WEBHOOK, "ignore").read(), Reading::NotOurs);
}

#[test]
fn hm_01_memory_alone_asks_for_one_card() {
    let pod = pod(&[(VGPU_MEMORY, "3000")]);
    assert_eq!(pod.want(), DeviceAsk { memory: MemoryAsk::Bytes(Bytes::mib(3000)), ..DeviceAsk::default() });
    assert_eq!(pod.hints().resources, [added("main", VGPU_COUNT, 1)]);
    assert_eq!(pod.ask().dialect, Dialect::Hami);
    let mistakes = pod.mistakes_with(&vgpu());
    assert_eq!(
        wrong_keys(&mistakes),
        [VGPU_COUNT],
        "4paradigm left such a pod Pending for ever; here its user is told"
    );
}

#[test]
fn hm_02_a_whole_card_gets_all_its_cores() {
    let hints = |resources: &[(&str, &str)]| pod(resources).hints().resources;
    let all = [added("main", VGPU_CORES, 100)];
    assert_eq!(hints(&[(VGPU_COUNT, "1")]), all);
    assert_eq!(hints(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "8192")]), []);
    assert_eq!(hints(&[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "100")]), all);
    assert_eq!(hints(&[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "50")]), []);
    assert_eq!(hints(&[(VGPU_COUNT, "1"), (VGPU_CORES, "70")]), []);
    let both = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "3000"), (VGPU_MEMORY_PERCENTAGE, "100")]);
    assert_eq!(both.hints().resources, all, "all of the memory is written, though less is held");
    assert_eq!((both.want().memory, both.want().exclusive), (MemoryAsk::Bytes(Bytes::mib(3000)), true));
    assert_eq!(hints(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "0")]), all, "0 is as good as nothing");
    let kept = pod(&[(VGPU_COUNT, "1"), (VGPU_CORES, "70")]).want();
    assert_eq!((kept.share, kept.memory, kept.exclusive), (Share(700), MemoryAsk::Part(Share::WHOLE), false));
    let again = pod(&[(VGPU_COUNT, "1"), (VGPU_CORES, "100")]);
    assert_eq!(again.want(), pod(&[(VGPU_COUNT, "1")]).want(), "and reads the same when admission comes by again");
}

#[test]
fn hm_03_a_percentage_is_at_most_100_and_0_is_unset() {
    let asks = |percentage: &str| pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, percentage)]);
    assert_eq!(wrong_keys(&asks("101").mistakes()), [VGPU_MEMORY_PERCENTAGE]);
    assert_eq!(asks("0").want().memory, MemoryAsk::Part(Share::WHOLE));
    let config = with(VgpuConfig { default_mem: 5000, ..VgpuConfig::default() });
    assert_eq!(only_want(&asks("0").ask_with(&config)).memory, MemoryAsk::Bytes(Bytes::mib(5000)));
    for percentage in ["0", "150"] {
        assert_eq!(wrong_keys(&asks(percentage).mistakes_with(&vgpu())), [VGPU_MEMORY_PERCENTAGE], "{percentage}");
    }
    let beside = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "3000"), (VGPU_MEMORY_PERCENTAGE, "150")]);
    assert_eq!(wrong_keys(&beside.mistakes()), [VGPU_MEMORY_PERCENTAGE], "also beside an amount");
    let memory = only_want(&beside.ask_with(&vgpu())).memory;
    assert_eq!(memory, MemoryAsk::Bytes(Bytes::mib(3000)), "where 4paradigm did not look at it");
}

#[test]
fn hm_04_memory_with_a_suffix_is_denied_at_admission() {
    let mistakes = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "16Gi")]).mistakes();
    assert_eq!(wrong_keys(&mistakes), [VGPU_MEMORY]);
    assert!(mistakes[0].mend.contains("write 16384"), "{}", mistakes[0]);
    assert!(mistakes[0].to_string().contains("16Gi"), "what the user wrote: {}", mistakes[0]);
    for config in [vgpu(), DialectConfig::default()] {
        for (text, meant) in [
            ("1Gi", 1024),
            ("512Mi", 512),
            ("2G", 1908),
            ("500M", 477),
            ("1M", 1),
            ("1073741824", 1024),
            ("1Ti", 1 << 20),
        ] {
            let mistakes = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, text)]).mistakes_with(&config);
            assert_eq!(wrong_keys(&mistakes), [VGPU_MEMORY], "{text}");
            let mend = format!("write {meant} if {text} bytes");
            assert!(mistakes[0].mend.contains(&mend), "{}", mistakes[0]);
        }
        let mlu = pod(&[(MLU_COUNT, "1"), (MLU_MEMORY, "1Gi")]).mistakes_with(&config);
        assert_eq!(wrong_keys(&mlu), [MLU_MEMORY]);
    }
    let blocks = with(VgpuConfig { memory_factor: 256, ..VgpuConfig::default() });
    let mistakes = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "16Gi")]).mistakes_with(&blocks);
    assert!(mistakes[0].mend.contains("write 64 if"), "in the administrator's blocks: {}", mistakes[0]);
    let vmemory = pod(&[(HAMI_MLU_COUNT, "1"), (HAMI_MLU_MEMORY, "1Gi")]).mistakes();
    assert!(vmemory[0].mend.contains("write 4 if"), "{}", vmemory[0]);
}

#[test]
fn memory_is_read_as_the_api_server_writes_plain_numbers() {
    // It hands 3000 to a webhook as 3k.
    for text in ["3000", "3k", "3e3"] {
        assert_eq!(pod(&[(VGPU_MEMORY, text)]).want().memory, MemoryAsk::Bytes(Bytes::mib(3000)), "{text}");
    }
}

#[test]
fn hm_08_init_containers_are_counted_apart() {
    let ask = bare()
        .init("load", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "20000")])
        .container("app", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "10000")])
        .ask();
    assert_eq!(ask.containers.iter().map(|c| c.role).collect::<Vec<_>>(), [Role::Init, Role::Main]);
}

#[test]
fn hm_11_policies_and_weights_are_chosen_by_annotation() {
    let pod = |key, value| pod(&[(VGPU_COUNT, "1")]).annotation(key, value);
    let settings = |key, value| pod(key, value).ask().policy.unwrap().settings;
    assert_eq!(settings(HAMI_GPU_POLICY, "mutex"), [("gpu".to_owned(), "mutex".to_owned())].into());
    assert_eq!(
        settings(HAMI_GPU_POLICY, "numa, topology-aware"),
        [("gpu".to_owned(), "numa,topology-aware".to_owned())].into()
    );
    assert_eq!(settings(HAMI_NODE_POLICY, "spread"), [("node".to_owned(), "spread".to_owned())].into());
    assert_eq!(
        settings(HAMI_WEIGHTS, "memory=3, slot=1,core=1"),
        [("weights".to_owned(), "slot=1,core=1,memory=3".to_owned())].into()
    );
    assert_eq!(pod(HAMI_NODE_POLICY, "spread").ask().policy.unwrap().name.as_deref(), Some("hami"));
    for (key, value) in [
        (HAMI_GPU_POLICY, "binpak"),
        (HAMI_NODE_POLICY, "mutex"),
        (HAMI_WEIGHTS, "slot=1,core=1"),
        (HAMI_WEIGHTS, "slot=0,core=0,memory=0"),
        (HAMI_WEIGHTS, "slot=1,core=1,memory=x"),
    ] {
        assert_eq!(wrong_keys(&pod(key, value).mistakes()), [key], "{value}");
    }
}

#[test]
fn hm_12_cards_are_chosen_and_avoided_by_uuid() {
    let ask = pod(&[(VGPU_COUNT, "1")]).annotation(VGPU_USE_UUID, "U1, U2").annotation(VGPU_NO_USE_UUID, "U2").ask();
    assert_eq!(ask.devices.only, ["U1".into(), "U2".into()]);
    assert_eq!(ask.devices.avoid, ["U2".into()], "both apply, so that only U1 is left");
}

#[test]
fn lists_of_cards_hold_for_the_kind_they_name() {
    let both = bare().container("gpu", &[(VGPU_COUNT, "1")]).container("mlu", &[(MLU_COUNT, "1")]);
    let half = both.clone().annotation(VGPU_USE_UUID, "GPU-1");
    assert_eq!(wrong_keys(&half.mistakes()), [VGPU_USE_UUID], "no MLU is called GPU-1");
    let full = half.annotation(HAMI_MLU_USE_UUID, "MLU-1").ask();
    assert_eq!(full.devices.only, ["GPU-1".into(), "MLU-1".into()]);
    let other = pod(&[(MLU_COUNT, "1")]).annotation(VGPU_USE_UUID, "GPU-1").ask();
    assert!(other.devices.only.is_empty(), "a pod without GPUs has no use for a list of them");
}

#[test]
fn every_mistake_about_an_mlu_is_named() {
    let mistakes = pod(&[(HAMI_MLU_COUNT, "-1"), (HAMI_MLU_MEMORY, "1Gi"), (HAMI_MLU_CORES, "101")]).mistakes();
    assert_eq!(wrong_keys(&mistakes), [HAMI_MLU_COUNT, HAMI_MLU_MEMORY, HAMI_MLU_CORES]);
}

#[test]
fn an_off_switch_is_one_where_its_system_would_have_heeded_it() {
    let asking = |value| pod(&[(VGPU_COUNT, "1")]).env("CUDA_DISABLE_CONTROL", value);
    assert_eq!(asking("true").mistakes().len(), 1);
    for unheeded in ["yes", "false", ""] {
        assert!(matches!(asking(unheeded).read(), Reading::Ask(..)), "HAMi reads a boolean: {unheeded}");
        assert_eq!(asking(unheeded).mistakes_with(&vgpu()).len(), 1, "4paradigm looks whether it is there: {unheeded}");
    }
}

#[test]
fn types_are_parts_of_names_and_both_lists_apply_under_hami_only() {
    let asking =
        pod(&[(VGPU_COUNT, "1")]).annotation(VGPU_USE_TYPE, "A100, 1080 ,").annotation(VGPU_NO_USE_TYPE, "1080Ti");
    let hami = asking.ask();
    assert_eq!(hami.models.only, [ModelPattern::Part("A100".into()), ModelPattern::Part("1080".into())]);
    assert_eq!(hami.models.avoid, [ModelPattern::Part("1080Ti".into())]);
    assert!(hami.models.only[1].accepts("NVIDIA-GeForce-GTX-1080Ti"));
    assert!(asking.ask_with(&vgpu()).models.avoid.is_empty(), "4paradigm looks at nouse only where use is absent");
    let many: String = (0..65).map(|i| format!("card-{i},")).collect();
    let long = pod(&[(VGPU_COUNT, "1")]).annotation(VGPU_USE_TYPE, &many).annotation(VGPU_NO_USE_TYPE, &many);
    assert_eq!(wrong_keys(&long.mistakes()), [VGPU_USE_TYPE, VGPU_NO_USE_TYPE]);
    let blank = pod(&[(VGPU_COUNT, "1")]).annotation(VGPU_USE_TYPE, " ").ask();
    assert!(blank.models.only.is_empty());
}

#[test]
fn hm_19_numa_bind_keeps_all_cards_on_one_node_of_memory() {
    for yes in ["true", "1", "T"] {
        assert_eq!(pod(&[(VGPU_COUNT, "2")]).annotation(VGPU_NUMA_BIND, yes).ask().topology, Topology::SameNuma);
    }
    assert_eq!(pod(&[(VGPU_COUNT, "2")]).annotation(VGPU_NUMA_BIND, "false").ask().topology, Topology::Best);
    assert_eq!(wrong_keys(&pod(&[(VGPU_COUNT, "2")]).annotation(VGPU_NUMA_BIND, "yes").mistakes()), [VGPU_NUMA_BIND]);
}

#[test]
fn hm_22_modes_choose_the_isolation() {
    let mode = |text| pod(&[(VGPU_COUNT, "1")]).annotation(VGPU_MODE, text);
    assert_eq!(mode("mig").ask().isolation, [Isolation::Mig]);
    assert!(!mode("hami-core").ask().isolation.contains(&Isolation::Mig));
    let both = mode("mig,hami-core").ask().isolation;
    assert!(both.contains(&Isolation::Mig) && both.contains(&Isolation::Intercept));
    for text in ["mps", "fast", "hami-core,migg", "mig,hami"] {
        assert_eq!(wrong_keys(&mode(text).mistakes()), [VGPU_MODE], "{text}");
    }
    assert!(mode("hami-core,migg").mistakes()[0].mend.contains("did you mean mig"));
}

#[test]
fn hm_17_partitions_are_asked_for_by_profile() {
    let asking = pod(&[("nvidia.com/mig-1g.5gb", "2"), ("nvidia.com/mig-3g.20gb", "1")]);
    let ask = asking.ask();
    let seen: Vec<(u32, Option<&str>)> =
        ask.containers[0].wants.iter().map(|want| (want.count, want.partition.as_deref())).collect();
    assert_eq!(seen, [(2, Some("1g.5gb")), (1, Some("3g.20gb"))]);
    assert!(ask.isolation.is_empty(), "the profile itself wants a card that is cut up");
    let beside = bare().container("cut", &[("nvidia.com/mig-1g.5gb", "1")]).container("card", &[(VGPU_MEMORY, "3000")]);
    assert!(beside.ask().isolation.is_empty(), "and a container beside it may have any card");
    for profile in
        ["nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.5gb+me", "nvidia.com/mig-1c.3g.20gb", "nvidia.com/mig-7g.80gb"]
    {
        assert_eq!(pod(&[(profile, "1")]).want().count, 1, "{profile}");
    }
    for broken in ["nvidia.com/mig-", "nvidia.com/mig-5gb", "nvidia.com/mig-big", "nvidia.com/mig-1g.5gb."] {
        assert_eq!(pod(&[(broken, "1")]).mistakes().len(), 1, "{broken}");
    }
    let contradiction = pod(&[("nvidia.com/mig-1g.5gb", "1")]).annotation(VGPU_MODE, "hami-core");
    assert_eq!(wrong_keys(&contradiction.mistakes()), [VGPU_MODE]);
}

#[test]
fn resources_may_have_other_names() {
    let names = VgpuNames {
        resource_name: "example.com/vgpu".into(),
        resource_mem: "example.com/mem".into(),
        resource_cores: "example.com/cores".into(),
        ..VgpuNames::default()
    };
    let config = with(VgpuConfig { names, memory_factor: 256, ..VgpuConfig::default() });
    let want = only_want(
        &pod(&[("example.com/vgpu", "2"), ("example.com/mem", "4"), ("example.com/cores", "25")]).ask_with(&config),
    );
    assert_eq!((want.count, want.memory, want.share), (2, MemoryAsk::Bytes(Bytes::gib(1)), Share(250)));
    assert_eq!(pod(&[(VGPU_COUNT, "1")]).read_with(&config), Reading::NotOurs, "the usual name means nothing here");
}

#[test]
fn defaults_of_the_chart_fill_what_is_not_said() {
    let config = with(VgpuConfig { default_mem: 5000, default_cores: 20, default_gpu_num: 2, ..VgpuConfig::default() });
    let read = |resources: &[(&str, &str)], config: &DialectConfig| {
        let want = only_want(&pod(resources).ask_with(config));
        (want.memory, want.share, want.exclusive)
    };
    let filled = MemoryAsk::Bytes(Bytes::mib(5000));
    // HAMi goes by what is written: a card of which no part is said is a card for oneself, however much memory is then the default.
    for alone in [&[(VGPU_COUNT, "1")][..], &[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "0")]] {
        assert_eq!(read(alone, &config), (filled, Share(1000), true), "{alone:?}");
    }
    let half = [(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "50")];
    assert_eq!(read(&half, &config), (MemoryAsk::Part(Share(500)), Share(200), false));
    let fourth = DialectConfig { nvidia: NvidiaFlavour::Vgpu, ..config.clone() };
    assert_eq!(read(&[(VGPU_COUNT, "1")], &fourth), (filled, Share(200), false));
    assert_eq!(only_want(&pod(&[(VGPU_CORES, "10")]).ask_with(&config)).count, 2);
}

#[test]
fn cores_above_100_are_clamped_by_hami_and_refused_by_4paradigm() {
    let asking = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100"), (VGPU_CORES, "150")]);
    assert!(asking.want().exclusive);
    assert_eq!(wrong_keys(&asking.mistakes_with(&vgpu())), [VGPU_CORES]);
}

#[test]
fn priorities_beyond_two_levels_are_hamis() {
    let asking = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "100"), (VGPU_PRIORITY, "5")]);
    assert_eq!(asking.ask().priority, -4);
    assert_eq!(wrong_keys(&asking.mistakes_with(&vgpu())), [VGPU_PRIORITY]);
    assert_eq!(pod(&[(VGPU_COUNT, "1")]).ask().priority, 0);
}

#[test]
fn amounts_that_are_none_are_refused() {
    for (key, value) in
        [(VGPU_COUNT, "-1"), (VGPU_COUNT, "1.5"), (VGPU_COUNT, "99999"), (VGPU_CORES, "x"), (VGPU_MEMORY, "1e400")]
    {
        let mut resources = vec![(VGPU_COUNT, "1")];
        resources.retain(|(other, _)| *other != key);
        resources.push((key, value));
        assert_eq!(wrong_keys(&pod(&resources).mistakes()), [key], "{value}");
    }
    assert_eq!(wrong_keys(&pod(&[(VGPU_COUNT, "0"), (VGPU_MEMORY, "100")]).mistakes()), [VGPU_COUNT]);
    assert_eq!(pod(&[(VGPU_COUNT, "0")]).read(), Reading::NotOurs);
    let nothing = pod(&[(VGPU_COUNT, "0"), (VGPU_MEMORY, "0"), (VGPU_CORES, "0")]);
    assert_eq!(nothing.read(), Reading::NotOurs, "nothing of no card is nothing");
}

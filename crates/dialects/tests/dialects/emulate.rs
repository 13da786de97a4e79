//! What users of each system find on their pods and in their containers.

use divvy_core::keys::*;
use divvy_core::units::Bytes;
use divvy_dialects::emulate::{Place, VcudaConfig, kubegpu_result, vcuda_config};
use divvy_dialects::{DialectConfig, NvidiaFlavour, OnTrick, PodManifest};
use expect_test::expect;
use serde_json::json;

use crate::support::{Pod, bare, grant, node, pod, shown};

fn hami() -> DialectConfig {
    DialectConfig::default()
}

fn vgpu() -> DialectConfig {
    DialectConfig { nvidia: NvidiaFlavour::Vgpu, ..DialectConfig::default() }
}

fn sharedgpu(request: &str, limit: &str) -> Pod {
    pod(&[]).named("ns", "mnist", "u1").label(KUBESHARE_REQUEST, request).label(KUBESHARE_LIMIT, limit)
}

#[test]
fn ks_01_a_shared_pod_finds_its_device_and_geminis_variables() {
    let emulation =
        sharedgpu("0.5", "1.0").bound(&hami(), &node(&[("GPU-a", 8192), ("GPU-b", 8192)]), &[&["GPU-b"]], &[]);
    expect![[r#"
        annotation sharedgpu/cell_id=n1/2
        annotation sharedgpu/gpu_manager_port=50051
        annotation sharedgpu/gpu_mem=4294967296
        annotation sharedgpu/gpu_model=NVIDIA-V100
        annotation sharedgpu/gpu_uuid=GPU-b
        container main
          env LD_PRELOAD=/kubeshare/library/libgemhook.so.1
          env NVIDIA_DRIVER_CAPABILITIES=compute,utility
          env NVIDIA_VISIBLE_DEVICES=GPU-b
          env POD_MANAGER_PORT=50051
          env POD_NAME=ns/mnist
          mount /kubeshare/library/libgemhook.so.1 <- Library (ro)
    "#]]
    .assert_eq(&shown(&emulation));
}

#[test]
fn ks_09_whole_gpus_come_without_hook_and_port() {
    let emulation =
        sharedgpu("2.0", "2.0").bound(&hami(), &node(&[("GPU-a", 8192), ("GPU-b", 8192)]), &[&["GPU-a", "GPU-b"]], &[]);
    expect![[r#"
        annotation sharedgpu/cell_id=n1/1,n1/2,
        annotation sharedgpu/gpu_mem=17179869184
        annotation sharedgpu/gpu_model=NVIDIA-V100,NVIDIA-V100,
        annotation sharedgpu/gpu_uuid=GPU-a,GPU-b,
        container main
          env NVIDIA_DRIVER_CAPABILITIES=compute,utility
          env NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b
    "#]]
    .assert_eq(&shown(&emulation));
}

#[test]
fn ks_28_a_device_with_a_cell_is_shown_by_it() {
    let mut inventory = node(&[("GPU-a", 8192)]);
    inventory.devices[0].attributes.insert(divvy_core::cells::ATTRIBUTE.into(), "2/lemon/1".into());
    let emulation = sharedgpu("0.5", "1.0").bound(&hami(), &inventory, &[&["GPU-a"]], &[]);
    assert_eq!(emulation.annotations[KUBESHARE_CELL_ID], "2/lemon/1");
}

#[test]
fn ks_31_ports_of_the_node_are_not_given_twice_and_a_pod_keeps_its_own() {
    let inventory = node(&[("GPU-a", 8192)]);
    let port = |pod: &Pod, taken: &[u16]| {
        let mut config = hami();
        config.guard.node_name = OnTrick::Allow; // once it is bound it has one
        pod.bound(&config, &inventory, &[&["GPU-a"]], taken).annotations[KUBESHARE_PORT].clone()
    };
    let fresh = sharedgpu("0.5", "1.0");
    assert_eq!(port(&fresh, &[50051, 50052]), "50053");
    assert_eq!(port(&fresh, &[50052]), "50051");
    let mut bound = fresh.clone();
    bound.0["metadata"]["annotations"][KUBESHARE_PORT] = "50077".into();
    assert_eq!(port(&bound, &[50077]), "50051", "copied from another pod");
    bound.0["spec"]["nodeName"] = "n1".into();
    assert_eq!(port(&bound, &[50077]), "50077");
    bound.0["metadata"]["annotations"][KUBESHARE_PORT] = "80".into();
    assert_eq!(port(&bound, &[]), "50051", "no port of a pod manager");
    let full: Vec<u16> = (50051..=50561).collect();
    assert!(!fresh.bound(&hami(), &inventory, &[&["GPU-a"]], &full).annotations.contains_key(KUBESHARE_PORT));
}

#[test]
fn every_container_of_a_kubeshare_pod_finds_the_same() {
    let pod = bare()
        .named("ns", "p", "u")
        .container("a", &[])
        .container("b", &[])
        .label(KUBESHARE_LIMIT, "1.0")
        .label(KUBESHARE_REQUEST, "0.5");
    let emulation = pod.bound(&hami(), &node(&[("GPU-a", 8192)]), &[&["GPU-a"], &["GPU-a"]], &[]);
    assert_eq!(emulation.containers["a"], emulation.containers["b"]);
    assert_eq!(emulation.annotations[KUBESHARE_MEMORY], "4294967296", "booked once");
}

/// Two pairs on a switch each, on one bridge.
fn two_pairs() -> divvy_core::device::Inventory {
    use divvy_core::device::Link;
    let mut inventory = node(&[("U0", 8192), ("U1", 16384), ("U2", 16384), ("U3", 32768)]);
    for (a, b, link) in
        [(0, 1, Link::SingleSwitch), (2, 3, Link::SingleSwitch), (0, 2, Link::HostBridge), (1, 3, Link::HostBridge)]
    {
        let id = inventory.devices[b].id.clone();
        inventory.devices[a].links.insert(id, link);
    }
    inventory
}

#[test]
fn kg_27_allocatefrom_names_the_devices_and_the_container_sees_exactly_them() {
    let info = json!({ "requests": { KUBEGPU_TOPOLOGY: 0 }, "runningcontainer": { "main": { "requests": {
        "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/cards": 1,
        "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/memory": 17_179_869_184_u64,
        "resource/group/gpugrp1/A/gpugrp0/A/gpu/1/cards": 1,
    } } } });
    let pod = bare()
        .named("ns", "pair", "u")
        .container("main", &[(VGPU_COUNT, "2")])
        .container("plain", &[])
        .annotation(KUBEGPU_DEVICE_INFO, &info.to_string());
    let emulation = pod.bound(&hami(), &two_pairs(), &[&["U0", "U1"]], &[]);
    assert_eq!(emulation.containers["main"].env["NVIDIA_VISIBLE_DEVICES"], "U0,U1");
    assert!(!emulation.containers.contains_key("plain"));
    let written: serde_json::Value = serde_json::from_str(&emulation.annotations[KUBEGPU_DEVICE_INFO]).unwrap();
    let expected = json!({
        "podname": "pair",
        "nodename": "n1",
        "requests": { KUBEGPU_TOPOLOGY: 0 },
        "runningcontainer": { "main": {
            "requests": info["runningcontainer"]["main"]["requests"],
            "devrequests": {
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/cards": 1,
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/memory": 17_179_869_184_u64,
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/1/cards": 1,
            },
            // The one that wants memory got the larger card, whichever was granted first.
            "allocatefrom": {
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/cards": "resource/group/gpugrp1/0/gpugrp0/0/gpu/U1/cards",
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/0/memory": "resource/group/gpugrp1/0/gpugrp0/0/gpu/U1/memory",
                "resource/group/gpugrp1/A/gpugrp0/A/gpu/1/cards": "resource/group/gpugrp1/0/gpugrp0/0/gpu/U0/cards",
            },
        } },
    });
    assert_eq!(written, expected);
}

#[test]
fn kg_09_an_automatic_request_reads_as_the_devices_lie() {
    let pod = pod(&[(VGPU_COUNT, "3")]).named("ns", "p", "u").annotation(KUBEGPU_DEVICE_INFO, "{}");
    let inventory = two_pairs();
    let ask = pod.ask();
    let grant = grant(&ask, &inventory, &[&["U3", "U2", "U1"]]);
    let place = Place { node: "n1", inventory: &inventory, ports_taken: &Default::default() };
    let result = kubegpu_result(&PodManifest::new(&pod.0), &ask, &grant, &place);
    let expected = json!({
        "resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards": "resource/group/gpugrp1/0/gpugrp0/1/gpu/U3/cards",
        "resource/group/gpugrp1/0/gpugrp0/0/gpu/1/cards": "resource/group/gpugrp1/0/gpugrp0/1/gpu/U2/cards",
        "resource/group/gpugrp1/0/gpugrp0/1/gpu/0/cards": "resource/group/gpugrp1/0/gpugrp0/0/gpu/U1/cards",
    });
    assert_eq!(result["runningcontainer"]["main"]["allocatefrom"], expected);
}

#[test]
fn the_annotation_of_2018_is_answered_where_it_was_asked() {
    let pod = pod(&[(KUBEGPU_COUNT_2018, "1")]).named("ns", "p", "u").annotation(KUBEGPU_POD_2018, "{}");
    let emulation = pod.bound(&hami(), &two_pairs(), &[&["U2"]], &[]);
    assert_eq!(emulation.annotations.keys().collect::<Vec<_>>(), [KUBEGPU_POD_2018]);
}

#[test]
fn tk_01_and_tk_02_containers_find_the_indexes_of_their_cards() {
    let vcuda = |core, memory| vec![(VCUDA_CORE, core), (VCUDA_MEMORY, memory)];
    let pod = bare()
        .named("ns", "p", "u1")
        .container("c0", &vcuda("100", "3"))
        .container("cpu", &[])
        .container("c1", &vcuda("80", "3"))
        .env("compat32", "TRUE");
    let emulation = pod.bound(&hami(), &node(&[("GPU-a", 1024), ("GPU-b", 1024)]), &[&["GPU-a"], &["GPU-b"]], &[]);
    expect![[r#"
        annotation tencent.com/gpu-assigned=false
        annotation tencent.com/predicate-gpu-idx-0=0
        annotation tencent.com/predicate-gpu-idx-2=1
        annotation tencent.com/predicate-node=n1
        annotation tencent.com/predicate-time=1700000000123000000
        started    tencent.com/gpu-assigned=true
        container c0
          env LD_LIBRARY_PATH=/usr/local/nvidia/lib64
          env NVIDIA_VISIBLE_DEVICES=GPU-a
          mount /usr/local/nvidia <- Driver (ro)
          mount /etc/vcuda <- Own (ro)
          file /etc/vcuda/vcuda.config (8240 bytes)
        container c1
          env LD_LIBRARY_PATH=/usr/local/nvidia/lib
          env NVIDIA_VISIBLE_DEVICES=GPU-b
          mount /usr/local/nvidia <- Driver (ro)
          mount /etc/vcuda <- Own (ro)
          file /etc/vcuda/vcuda.config (8240 bytes)
    "#]]
    .assert_eq(&shown(&emulation));
}

fn number(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn tk_16_the_library_is_told_the_limits() {
    let pod =
        pod(&[(VCUDA_CORE, "30"), (VCUDA_MEMORY, "30")]).named("ns", "p", "uid-1").annotation(VCUDA_CORE_LIMIT, "50");
    let emulation = pod.bound(&hami(), &node(&[("GPU-a", 16384)]), &[&["GPU-a"]], &[]);
    let content = &emulation.containers["main"].files[0].content;
    assert_eq!(&content[..6], b"uid-1\0");
    assert_eq!(&content[4096..4101], b"main\0");
    assert_eq!(u64::from_le_bytes(content[8208..8216].try_into().unwrap()), 8_053_063_680);
    let [limit, utilization, hard, enable] = [48, 8216, 8220, 8232].map(|at| number(content, at));
    assert_eq!((utilization, hard, limit, enable), (30, 0, 50, 1));
    assert_eq!((number(content, 8224), number(content, 8228)), (550, 54));
}

#[test]
fn tk_17_whole_cards_are_not_limited() {
    let pod = pod(&[(VCUDA_CORE, "200"), (VCUDA_MEMORY, "1")]).named("ns", "p", "u");
    let emulation = pod.bound(&hami(), &node(&[("GPU-a", 16384), ("GPU-b", 16384)]), &[&["GPU-a", "GPU-b"]], &[]);
    assert_eq!(number(&emulation.containers["main"].files[0].content, 8232), 0);
    assert_eq!(emulation.annotations[&format!("{VCUDA_GPU_INDEX}0")], "0,1");
}

#[test]
fn gpu_managers_limit_is_hard_only_where_no_other_is_named() {
    let hard = |limit: Option<&str>| {
        let pod = pod(&[(VCUDA_CORE, "30"), (VCUDA_MEMORY, "30")]).named("ns", "p", "u");
        let pod = limit.into_iter().fold(pod, |pod, limit| pod.annotation(VCUDA_CORE_LIMIT, limit));
        let emulation = pod.bound(&hami(), &node(&[("GPU-a", 16384)]), &[&["GPU-a"]], &[]);
        let content = &emulation.containers["main"].files[0].content;
        (number(content, 8220), number(content, 48))
    };
    assert_eq!(hard(None), (1, 30));
    assert_eq!(hard(Some("30")), (0, 30), "what admission sets is an annotation like any other");
    assert_eq!(hard(Some("20")), (0, 30), "and one below takes nothing away");
}

#[test]
fn a_cards_address_fits_its_room_and_keeps_its_last_digit() {
    let cases = [
        ("00000000:3B:00.0", "0000:3B:00.0"),
        ("00010000:3B:00.1", "10000:3B:00.1"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("elsewhere", "elsewhere"),
    ];
    for (pci, shown) in cases {
        let mut inventory = node(&[("GPU-a", 16384)]);
        inventory.devices[0].pci = Some(pci.into());
        let pod = pod(&[(VCUDA_CORE, "30"), (VCUDA_MEMORY, "30")]).named("ns", "p", "u");
        let emulation = pod.bound(&hami(), &inventory, &[&["GPU-a"]], &[]);
        let content = &emulation.containers["main"].files[0].content;
        assert_eq!(&content[8192..8192 + shown.len() + 1], format!("{shown}\0").as_bytes(), "{pci}");
    }
}

#[test]
fn cards_are_called_by_the_numbers_of_their_device_files_where_the_node_says_them() {
    let mut inventory = node(&[("GPU-a", 16384), ("GPU-b", 16384)]);
    inventory.devices[0].attributes.insert("minor".into(), "3".into());
    let pod = pod(&[(VCUDA_CORE, "200"), (VCUDA_MEMORY, "1")]).named("ns", "p", "u");
    let emulation = pod.bound(&hami(), &inventory, &[&["GPU-a", "GPU-b"]], &[]);
    assert_eq!(emulation.annotations[&format!("{VCUDA_GPU_INDEX}0")], "3,1");
}

#[test]
fn names_longer_than_their_room_are_cut_and_keep_their_end() {
    let config = VcudaConfig {
        pod_uid: "u".repeat(100),
        container: "c".repeat(5000),
        bus_id: "00000000:3B:00.0-longer".into(),
        memory: Bytes(u64::MAX),
        utilization: u32::MAX,
        limit: 7,
        hard: true,
        driver: (1, 2),
        enabled: true,
    };
    let bytes = vcuda_config(&config);
    assert_eq!((bytes.len(), bytes[47], number(&bytes, 48), bytes[8191], bytes[8207]), (8240, 0, 7, 0, 0));
    assert_eq!(number(&bytes, 8216), i32::MAX);
}

#[test]
fn al_01_the_card_and_everybodys_units_are_on_the_pod() {
    let mut inventory = node(&[("U0", 16276), ("U1", 16276), ("U2", 16276), ("U3", 16276)]);
    inventory.memory_unit = divvy_core::device::MemoryUnit::MiB;
    let emulation = pod(&[(GPUSHARE_MEMORY, "8138")]).named("ns", "p", "u").bound(&hami(), &inventory, &[&["U1"]], &[]);
    expect![[r#"
        annotation ALIYUN_COM_GPU_MEM_ASSIGNED=false
        annotation ALIYUN_COM_GPU_MEM_ASSUME_TIME=1700000000123000000
        annotation ALIYUN_COM_GPU_MEM_DEV=16276
        annotation ALIYUN_COM_GPU_MEM_IDX=1
        annotation ALIYUN_COM_GPU_MEM_POD=8138
        started    ALIYUN_COM_GPU_MEM_ASSIGNED=true
        container main
          env ALIYUN_COM_GPU_MEM_CONTAINER=8138
          env ALIYUN_COM_GPU_MEM_DEV=16276
          env ALIYUN_COM_GPU_MEM_IDX=1
          env ALIYUN_COM_GPU_MEM_POD=8138
          env NVIDIA_VISIBLE_DEVICES=U1
    "#]]
    .assert_eq(&shown(&emulation));
}

#[test]
fn al_13_each_of_two_containers_finds_its_own_units_on_the_pods_card() {
    let pod = bare()
        .named("ns", "p", "u")
        .container("a", &[(GPUSHARE_MEMORY, "1")])
        .container("b", &[(GPUSHARE_MEMORY, "2")]);
    let emulation = pod.bound(&hami(), &node(&[("U0", 15360), ("U1", 15360)]), &[&["U1"], &["U1"]], &[]);
    assert_eq!(emulation.annotations[GPUSHARE_POD], "3");
    assert_eq!(emulation.annotations[GPUSHARE_INDEX], "1");
    for (container, units) in [("a", "1"), ("b", "2")] {
        let env = &emulation.containers[container].env;
        assert_eq!((env["ALIYUN_COM_GPU_MEM_CONTAINER"].as_str(), env[GPUSHARE_POD].as_str()), (units, "3"));
        assert_eq!((env[GPUSHARE_INDEX].as_str(), env[GPUSHARE_DEVICE].as_str()), ("1", "15"));
    }
}

#[test]
fn memory_over_several_cards_is_listed_by_card() {
    let pod = pod(&[(GPUSHARE_MEMORY, "8")]).named("ns", "p", "u").label(GPUSHARE_COUNT, "2");
    let emulation = pod.bound(&hami(), &node(&[("U0", 15360), ("U1", 15360)]), &[&["U0", "U1"]], &[]);
    assert_eq!(emulation.annotations[GPUSHARE_ALLOCATION], r#"{"0":{"0":4,"1":4}}"#);
    assert_eq!(emulation.annotations[GPUSHARE_INDEX], "0,1");
}

#[test]
fn containers_are_listed_by_their_place_in_the_pod() {
    let pod = bare()
        .named("ns", "p", "u")
        .container("plain", &[])
        .container("gpu", &[(GPUSHARE_MEMORY, "8")])
        .label(GPUSHARE_COUNT, "2");
    let emulation = pod.bound(&hami(), &node(&[("U0", 15360), ("U1", 15360)]), &[&["U0", "U1"]], &[]);
    assert_eq!(emulation.annotations[GPUSHARE_ALLOCATION], r#"{"1":{"0":4,"1":4}}"#);
}

#[test]
fn fp_06_containers_without_devices_are_empty_in_the_encoding() {
    let pod = bare()
        .named("ns", "p", "u")
        .container("none", &[])
        .container("gpu", &[(VGPU_COUNT, "1"), (VGPU_MEMORY, "1000")]);
    let emulation = pod.bound(&vgpu(), &node(&[("G", 16384)]), &[&["G"]], &[]);
    assert_eq!(emulation.annotations[VGPU_IDS], ";G,NVIDIA,1000,0:");
    expect![[r#"
        annotation 4pd.io/bind-phase=allocating
        annotation 4pd.io/bind-time=1700000000
        annotation 4pd.io/devices-to-allocate=;G,NVIDIA,1000,0:
        annotation 4pd.io/vgpu-ids-new=;G,NVIDIA,1000,0:
        annotation 4pd.io/vgpu-node=n1
        annotation 4pd.io/vgpu-time=1700000000
        started    4pd.io/bind-phase=success
        started    4pd.io/devices-to-allocate=;
        container gpu
          env CUDA_DEVICE_MEMORY_LIMIT_0=1000m
          env CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/u.cache
          env CUDA_DEVICE_SM_LIMIT=0
          env NVIDIA_VISIBLE_DEVICES=G
          mount /usr/local/vgpu <- Own
          mount /usr/local/vgpu/libvgpu.so <- Library (ro)
          mount /tmp/vgpulock <- Own
    "#]]
    .assert_eq(&shown(&emulation));
}

#[test]
fn fp_09_half_a_card_is_8080_mib() {
    let pod = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY_PERCENTAGE, "50")]).named("ns", "p", "u");
    let emulation = pod.bound(&vgpu(), &node(&[("G", 16160)]), &[&["G"]], &[]);
    assert_eq!(emulation.containers["main"].env["CUDA_DEVICE_MEMORY_LIMIT_0"], "8080m");
}

#[test]
fn fp_11_a_scaled_card_says_so() {
    let pod = pod(&[(VGPU_COUNT, "1"), (VGPU_MEMORY, "20000")]).named("ns", "p", "u");
    let env = |bookable| {
        let mut inventory = node(&[("G", 16384)]);
        inventory.devices[0].bookable_memory = Some(Bytes::mib(bookable));
        pod.bound(&vgpu(), &inventory, &[&["G"]], &[]).containers["main"].env.clone()
    };
    assert_eq!(env(29491).get("CUDA_OVERSUBSCRIBE").map(String::as_str), Some("true"));
    assert_eq!(env(8192).get("CUDA_OVERSUBSCRIBE"), None);
}

#[test]
fn fp_26_a_part_of_an_mlu_is_told_by_variables() {
    let mut inventory = node(&[("MLU-0", 24576), ("MLU-1", 24576)]);
    for device in &mut inventory.devices {
        device.kind = divvy_core::device::DeviceKind::Mlu;
        device.model = "MLU370-X4".into();
    }
    let pod = pod(&[(MLU_COUNT, "1"), (MLU_MEMORY, "10240")]).named("ns", "p", "u");
    let emulation = pod.bound(&vgpu(), &inventory, &[&["MLU-1"]], &[]);
    expect![[r#"
        annotation 4pd.io/bind-phase=allocating
        annotation 4pd.io/bind-time=1700000000
        annotation 4pd.io/devices-to-allocate=MLU-1,MLU,10240,0:
        annotation 4pd.io/vgpu-ids-new=MLU-1,MLU,10240,0:
        annotation 4pd.io/vgpu-node=n1
        annotation 4pd.io/vgpu-time=1700000000
        started    4pd.io/bind-phase=success
        started    4pd.io/devices-to-allocate=
        container main
          env CAMBRICON_SPLIT_ENABLE=1
          env CAMBRICON_SPLIT_MEMS=10
          env CAMBRICON_SPLIT_VISIBLE_DEVICES=1
          mount /dev/cambricon <- Host
          mount /usr/bin/cnmon <- Host (ro)
          mount /usr/bin/smlu-containerd <- Host (ro)
    "#]]
    .assert_eq(&shown(&emulation));
}

#[test]
fn hamis_encoding_ends_every_container_and_begins_with_init_containers() {
    let gpu = |memory| vec![(VGPU_COUNT, "1"), (VGPU_MEMORY, memory)];
    let pod =
        bare().named("ns", "p", "u").init("load", &gpu("3000")).container("cpu", &[]).container("app", &gpu("5000"));
    let emulation = pod.bound(&hami(), &node(&[("U", 16384)]), &[&["U"], &["U"]], &[]);
    assert_eq!(emulation.annotations[HAMI_ALLOCATED], "U,NVIDIA,3000,0:;;U,NVIDIA,5000,0:;");
    assert_eq!(emulation.annotations[HAMI_TO_ALLOCATE], emulation.annotations[HAMI_ALLOCATED]);
    assert_eq!(emulation.started[HAMI_TO_ALLOCATE], ";;;");
    assert_eq!(emulation.annotations[HAMI_BIND_PHASE], "allocating");
}

#[test]
fn hami_names_a_part_of_an_mlu_by_its_profile() {
    let mut inventory = node(&[("device-0", 512_000)]);
    inventory.devices[0].kind = divvy_core::device::DeviceKind::Mlu;
    let pod = pod(&[(HAMI_MLU_COUNT, "1"), (HAMI_MLU_MEMORY, "1000"), (HAMI_MLU_CORES, "1")]).named("ns", "p", "u");
    let emulation = pod.bound(&hami(), &inventory, &[&["device-0"]], &[]);
    assert_eq!(emulation.annotations[HAMI_MLU_PROFILE], "0_1_1000");
    assert_eq!(emulation.annotations[HAMI_MLU_ALLOCATED], "device-0,MLU,256000,1:;");
    assert!(!emulation.annotations.contains_key(HAMI_ALLOCATED));
}

#[test]
fn the_native_dialect_promises_nothing_but_the_grant() {
    let emulation = pod(&[(GPU, "1")]).named("ns", "p", "u").bound(&hami(), &node(&[("U", 16384)]), &[&["U"]], &[]);
    assert_eq!(emulation, Default::default());
}

#[test]
fn a_grant_of_a_device_that_is_gone_is_told_without_it() {
    let inventory = node(&[("U0", 8192)]);
    for pod in [
        sharedgpu("0.5", "1.0"),
        pod(&[(VCUDA_CORE, "50"), (VCUDA_MEMORY, "1")]),
        pod(&[(GPUSHARE_MEMORY, "3")]),
        pod(&[(VGPU_MEMORY, "3")]),
        pod(&[(VGPU_COUNT, "1")]).annotation(KUBEGPU_DEVICE_INFO, "{}"),
    ] {
        let ask = pod.ask();
        let grant = grant(&ask, &inventory, &[&["U0"]]);
        let gone = divvy_core::device::Inventory { devices: Vec::new(), ..inventory.clone() };
        let place = Place { node: "n1", inventory: &gone, ports_taken: &Default::default() };
        let emulation = divvy_dialects::emulate(&PodManifest::new(&pod.0), &ask, &grant, &place);
        assert!(!emulation.annotations.is_empty());
    }
}

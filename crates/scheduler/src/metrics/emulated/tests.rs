use divvy_core::device::{Device, Inventory, Isolation};
use divvy_core::grant::{Grant, Slice};
use divvy_core::node::Node;
use divvy_core::pod::{Bound, Pod, State};
use divvy_core::quota::{Amounts, Limit, Quota};
use divvy_core::resources::Resources;
use divvy_core::time::Time;
use divvy_core::units::{Bytes, Share};
use prometheus_client::registry::Registry;

use super::*;
use crate::metrics::Metrics;
use crate::world::World;

/// A node with a card of 16384 MiB.
fn cluster() -> Snapshot {
    let mut node = Node::new("n", Resources::default());
    let devices = vec![Device::gpu("GPU-1", 0, "T4", Bytes::mib(16384))];
    node.inventory = Inventory { devices, ..Inventory::default() };
    let mut snapshot = Snapshot::new();
    snapshot.put_node(node);
    snapshot
}

fn slice(mib: u64, share: u32) -> Slice {
    Slice {
        device: "GPU-1".into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::mib(mib),
        memory_limit: Bytes::mib(mib),
        share: Share(share),
        share_limit: Share(share),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    }
}

/// A pod that holds these slices, container by container.
fn pod(name: &str, containers: &[(Role, &[Slice])], init_done: bool) -> Pod {
    let of = |(role, slices): &(Role, &[Slice])| ContainerGrant {
        name: format!("{role:?}").as_str().into(),
        role: *role,
        slices: slices.to_vec(),
    };
    let containers = containers.iter().map(of).collect();
    let grant = Grant { v: Grant::VERSION, at: 0, policy: "frag".into(), containers, claim: None };
    let bound = Bound { node: "n".into(), grant: Some(grant.into()), since: Time(0), init_done, terminating: false };
    Pod { state: State::Bound(bound), ..Pod::new("team", name) }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn shown(snapshot: &Snapshot) -> String {
    let (emulated, mut registry) = (Emulated::default(), Registry::default());
    emulated.show(Table::of(snapshot));
    registry.register_collector(Box::new(emulated));
    text(&registry)
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
}

#[test]
fn fp_28_two_pods_of_100_mib_and_10_cores_are_209715200_bytes_2_containers_and_20_cores() {
    let mut snapshot = cluster();
    for name in ["a", "b"] {
        snapshot.put_pod(pod(name, &[(Role::Main, &[slice(100, 100)])], false));
    }
    let text = shown(&snapshot);
    let of = r#"nodeid="n",deviceuuid="GPU-1",deviceidx="0""#;
    let of_a = r#"podnamespace="team",nodename="n",podname="a",containeridx="0",deviceuuid="GPU-1""#;
    for (series, value) in [
        (format!("GPUDeviceMemoryLimit{{{of},"), "17179869184.0"),
        (format!("GPUDeviceCoreLimit{{{of},"), "100.0"),
        (format!(r#"GPUDeviceMemoryAllocated{{{of},devicecores="20","#), "209715200.0"),
        (format!("GPUDeviceSharedNum{{{of},"), "2.0"),
        (format!("GPUDeviceCoreAllocated{{{of},"), "20.0"),
        (
            format!(
                r#"nodeGPUOverview{{{of},devicecores="20",sharedcontainers="2",devicememorylimit="16384",devicetype="NVIDIA-T4","#
            ),
            "209715200.0",
        ),
        (format!("nodeGPUMemoryPercentage{{{of},"), "0.01220703125"),
        (format!(r#"vGPUPodsDeviceAllocated{{{of_a},deviceusedcore="10","#), "104857600.0"),
        (format!("vGPUMemoryPercentage{{{of_a},"), "0.006103515625"),
        (format!("vGPUCorePercentage{{{of_a},"), "10.0"),
    ] {
        has(&text, &format!(r#"{series}zone="vGPU"}} {value}"#));
    }
}

#[test]
fn hamis_names_have_hamis_labels() {
    let mut snapshot = cluster();
    snapshot.put_pod(pod("a", &[(Role::Main, &[slice(100, 100)])], false));
    let nominal = Amounts { memory: Some(2000 << 20), ..Amounts::default() };
    let quota = Quota { name: "q".into(), limits: vec![Limit { nominal, ..Limit::default() }], ..Quota::default() };
    snapshot.surroundings_mut().quotas.0.insert("team".into(), vec![quota]);
    let text = shown(&snapshot);
    let of = r#"node="n",device_uuid="GPU-1",device_index="0""#;
    let kind = r#"device_type="NVIDIA-T4",zone="vGPU""#;
    let of_a = r#"namespace="team",node="n",pod="a",container_index="0",device_uuid="GPU-1",zone="vGPU""#;
    for line in [
        format!("hami_gpu_memory_limit_bytes{{{of},{kind}}} 17179869184.0"),
        format!("hami_gpu_core_limit_ratio{{{of},{kind}}} 100.0"),
        format!(r#"hami_gpu_memory_allocated_bytes{{{of},device_cores="100",{kind}}} 104857600.0"#),
        format!("hami_gpu_shared_count{{{of},{kind}}} 1.0"),
        format!("hami_gpu_core_allocated_ratio{{{of},{kind}}} 10.0"),
        format!(r#"hami_node_gpu_overview{{{of},device_cores="100",device_memory_limit="16384",{kind}}} 104857600.0"#),
        format!(r#"hami_node_gpu_memory_allocated_ratio{{{of},zone="vGPU"}} 0.006103515625"#),
        format!("hami_vgpu_memory_allocated_bytes{{{of_a}}} 104857600.0"),
        format!("hami_vgpu_core_allocated_ratio{{{of_a}}} 10.0"),
        r#"hami_resource_quota_used{namespace="team",quota_name="nvidia.com/gpumem",limit="2000",zone="vGPU"} 100.0"#
            .to_owned(),
        r#"hami_resource_quota_limit{namespace="team",quota_name="nvidia.com/gpumem",zone="vGPU"} 2000.0"#.to_owned(),
    ] {
        has(&text, &line);
    }
}

#[test]
fn several_partitions_of_a_card_are_one_series_and_an_init_container_that_ended_is_none() {
    let containers: [(Role, &[Slice]); 2] =
        [(Role::Init, &[slice(500, 500)]), (Role::Main, &[slice(100, 100), slice(200, 100)])];
    let held = |init_done| {
        let mut snapshot = cluster();
        snapshot.put_pod(pod("a", &containers, init_done));
        let parts = Table::of(&snapshot).parts;
        parts.iter().map(|p| (p.container, p.memory / MIB, p.share)).collect::<Vec<_>>()
    };
    assert_eq!(held(false), [(0, 500, 500), (1, 300, 200)]);
    assert_eq!(held(true), [(1, 300, 200)]);
}

#[test]
fn only_the_replica_that_decides_shows_them_and_only_with_the_switch() {
    let mut world = World::new("divvy");
    let mut node = Node::new("n", Resources::default());
    node.inventory.devices = vec![Device::gpu("GPU-1", 0, "T4", Bytes::gib(16))];
    world.apply(divvy_cluster::Change::Node(Box::new(node), None), Time(0));
    let shows = |emulate: bool, leads: &[bool]| {
        let mut registry = Registry::default();
        let mut metrics = Metrics::register(&mut registry);
        if emulate {
            metrics = metrics.with_emulated(&mut registry);
        }
        for leads in leads {
            metrics.leads(*leads);
            metrics.show(&world, Time(0));
        }
        text(&registry).contains("GPUDeviceMemoryLimit")
    };
    assert!(shows(true, &[true]));
    assert!(!shows(true, &[false]));
    assert!(!shows(true, &[true, false]), "it lost the lead");
    assert!(!shows(false, &[true]));
}

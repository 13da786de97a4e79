use divvy_core::ask::Role;
use divvy_core::units::Bytes;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::testing;

fn shown(emulate: bool) -> String {
    let device = Device::gpu("GPU-1", 0, "Tesla T4", Bytes::gib(16));
    let grant = testing::grant(vec![testing::container(
        "main",
        Role::Main,
        vec![testing::slice(&"GPU-1".into(), Bytes::gib(4), 300)],
    )]);
    let mut pod = testing::pod();
    pod.grant = Some(Ok(grant));
    pod.running = true;
    pod.manifest = Arc::new(json!({"metadata": {"labels": {
        divvy_core::keys::KUBESHARE_LIMIT: "1.0", divvy_core::keys::KUBESHARE_REQUEST: "0.3"}}}));
    let account =
        Account { busy_ns: 1_500_000_000, memory: 1 << 20, utilisation: 250, refused: 2, ..Account::default() };
    let accounts = Accounts::from([((hold::account(&pod.uid, &"main".into()), "GPU-1".to_owned()), account)]);
    let usage = [Usage {
        device: "GPU-1".into(),
        memory: Bytes::gib(2),
        busy: 400,
        periods: Vec::new(),
        processes: Vec::new(),
    }];
    let mut ledger = Ledger::default();
    if let Some(Ok(grant)) = &pod.grant {
        ledger.adopt(&pod.uid, &pod.pod, grant);
    }
    let facts = Facts {
        node: "n",
        devices: &[device],
        usage: &usage,
        ledger: &ledger,
        pods: &[Arc::new(pod)],
        accounts: &accounts,
        now: 7.0,
    };
    let families = if emulate { emulated::families(&facts) } else { facts.families() };
    #[derive(Debug)]
    struct Fixed(Vec<Family>);
    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            self.0.iter().try_for_each(|family| write(&mut encoder, family))
        }
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Fixed(families)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
}

#[test]
fn devices_and_containers_are_shown_with_pod_namespace_and_container() {
    let text = shown(false);
    let of = r#"{namespace="default",pod="pod",container="main",device="GPU-1"}"#;
    has(&text, &format!("divvy_container_memory_limit_bytes{of} 4294967296.0"));
    has(&text, &format!("divvy_container_busy_seconds_total{of} 1.5"));
    has(&text, &format!("divvy_container_refused_allocations_total{of} 2.0"));
    has(&text, r#"divvy_device_memory_booked_bytes{device="GPU-1",index="0",model="Tesla T4"} 4294967296.0"#);
    has(&text, r#"divvy_device_busy_ratio{device="GPU-1",index="0",model="Tesla T4"} 0.4"#);
    has(&text, r#"divvy_device_healthy{device="GPU-1",index="0",model="Tesla T4"} 1.0"#);
}

#[test]
fn ks_34_capacity_and_requirement_are_told_in_labels() {
    let text = shown(true);
    has(&text, r#"gpu_capacity{node="n",uuid="GPU-1",model="Tesla-T4",memory="17179869184",index="0"} 7.0"#);
    has(
        &text,
        r#"gpu_requirement{namespace="default",pod="pod",pod_id="0f3b1c7e-1111-4222-8333-444455556666",node="n",group_name="default/pod",min_available="1",limit="1.0",request="0.3",memory="0",cell_id="",uuid="GPU-1",port="0"} 7.0"#,
    );
}

#[test]
fn ks_34_a_requirement_names_all_devices_of_its_pod_and_its_group_by_either_label() {
    let device = |n: u32| Device::gpu(format!("GPU-{n}"), n, "Tesla T4", Bytes::gib(16));
    let slice = |n: u32| testing::slice(&device(n).id, Bytes::gib(16), 1000);
    let pod = |group: serde_json::Value| {
        let slices = || vec![slice(2), slice(1)];
        let containers =
            ["main", "onlooker"].map(|name| testing::container(name, Role::Main, slices())).into_iter().collect();
        let mut pod = testing::pod();
        (pod.grant, pod.running) = (Some(Ok(testing::grant(containers))), true);
        let mut labels = json!({divvy_core::keys::KUBESHARE_LIMIT: "2", divvy_core::keys::KUBESHARE_REQUEST: "2"});
        labels.as_object_mut().unwrap().extend(group.as_object().unwrap().clone());
        pod.manifest = Arc::new(json!({"metadata": {"labels": labels}}));
        pod
    };
    for (group, shown) in [
        (json!({"sharedgpu/pod_group_name": "b"}), "b"),
        (json!({"sharedgpu/group_name": "a"}), "a"),
        (json!({"sharedgpu/pod_group_name": " ", "sharedgpu/group_name": ""}), "default/pod"),
    ] {
        let facts = Facts {
            node: "n",
            devices: &[device(1), device(2)],
            usage: &[],
            ledger: &Ledger::default(),
            pods: &[Arc::new(pod(group))],
            accounts: &Accounts::new(),
            now: 7.0,
        };
        let families = emulated::families(&facts);
        let series = &families.iter().find(|family| family.name == "gpu_requirement").unwrap().series;
        assert_eq!(series.len(), 1, "one for the pod");
        let label = |name: &str| series[0].0.0.iter().find(|(key, _)| *key == name).unwrap().1.clone();
        assert_eq!((label("uuid"), label("group_name")), ("GPU-2,GPU-1".to_owned(), shown.to_owned()));
    }
}

#[test]
fn the_other_systems_dashboards_find_their_names() {
    let text = shown(true);
    let who = r#"pod_name="pod",namespace="default",node="n",container_name="main""#;
    has(&text, &format!(r#"container_gpu_utilization{{{who},gpu="gpu0"}} 25.0"#));
    has(&text, &format!(r#"container_gpu_utilization{{{who},gpu="total"}} 25.0"#));
    has(&text, &format!(r#"container_request_gpu_memory{{{who},req_of_gpu_memory="total"}} 4096.0"#));
    has(&text, r#"HostGPUMemoryUsage{deviceidx="0",deviceuuid="GPU-1",zone="vGPU"} 2147483648.0"#);
    let of = r#"{podnamespace="default",podname="pod",ctrname="main",vdeviceid="0",deviceuuid="GPU-1",zone="vGPU"}"#;
    has(&text, &format!("vGPU_device_memory_limit_in_bytes{of} 4294967296.0"));
}

#[test]
fn hamis_names_have_hamis_labels_and_its_ratios_are_in_percent() {
    let text = shown(true);
    let of = r#"{namespace="default",pod="pod",container="main",vdevice_index="0",device_uuid="GPU-1",zone="vGPU"}"#;
    has(&text, &format!("hami_vgpu_memory_used_bytes{of} 1048576.0"));
    has(&text, &format!("hami_vgpu_memory_limit_bytes{of} 4294967296.0"));
    has(&text, &format!("hami_container_device_utilization_ratio{of} 25.0"));
    let of = r#"{node="n",device_index="0",device_uuid="GPU-1",device_type="NVIDIA-Tesla T4",zone="vGPU"}"#;
    has(&text, &format!("hami_host_gpu_memory_used_bytes{of} 2147483648.0"));
    has(&text, &format!("hami_host_gpu_utilization_ratio{of} 40.0"));
}

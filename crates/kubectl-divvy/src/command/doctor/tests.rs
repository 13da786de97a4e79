//! Every check, well and broken.

use std::collections::BTreeMap;

use divvy_api::policy::GpuPolicySpec;
use divvy_core::device::{Device, Health};
use divvy_core::keys;
use divvy_core::node::Node;
use divvy_core::pod::{Bound, Pod, State};
use divvy_core::resources::Resources;
use divvy_core::snapshot::Record;
use divvy_core::time::Time;
use divvy_core::units::Bytes;

use super::facts::{Admission, Facts, NodeFacts};
use super::host::{self, Host};
use super::{Finding, Verdict, cluster};
use crate::cluster::{File, NodeNote, View};

struct Patient {
    file: File,
    facts: Facts,
}

/// A cluster in which nothing is wrong.
fn healthy() -> Patient {
    let mut node = Node::new("gpu-a", Resources::default());
    node.inventory.agent = env!("CARGO_PKG_VERSION").into();
    node.inventory.devices = vec![Device::gpu("GPU-1", 0, "NVIDIA-H200", Bytes::gib(141))];
    let cluster = Record { v: Record::VERSION, nodes: vec![node], ..Record::default() };
    let facts = Facts {
        server: "v1.36.3".into(),
        nodes: BTreeMap::from([(
            "gpu-a".into(),
            NodeFacts {
                kubelet: "v1.36.3".into(),
                slots: 16,
                clock_ahead: Some(12),
                says_gpu: true,
                ..NodeFacts::default()
            },
        )]),
        daemon_sets: BTreeMap::from([("divvy-system/divvy-agent".into(), vec!["example.com/divvy-agent:1".into()])]),
        device_classes: BTreeMap::from([("fpga".into(), "example.com/fpga".into())]),
        admission: Admission::Answers,
        grants_guarded: Some(true),
        leader: Some(("divvy-1".into(), 2)),
        policy_problem: None,
    };
    Patient { file: File { v: File::VERSION, cluster, ..File::default() }, facts }
}

fn examine(patient: Patient) -> Vec<Finding> {
    let policy = patient.file.policy.clone();
    cluster::check(&View::of(patient.file, "default".into()), &policy, &patient.facts)
}

/// Breaks one thing, and expects one check to see it, with these words, and every other to be well.
fn broken(check: &str, verdict: Verdict, words: &str, breaks: impl FnOnce(&mut Patient)) {
    let mut patient = healthy();
    breaks(&mut patient);
    let findings = examine(patient);
    let bad: Vec<&Finding> = findings.iter().filter(|f| f.verdict != Verdict::Well).collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    assert_eq!((bad[0].check, bad[0].verdict), (check, verdict), "{bad:#?}");
    assert!(bad[0].found.contains(words), "{:?} does not say {words:?}", bad[0].found);
    assert!(verdict == Verdict::Unknown || !bad[0].mend.is_empty(), "no mend: {:?}", bad[0]);
}

#[test]
fn a_healthy_cluster_has_no_findings() {
    let findings = examine(healthy());
    assert!(findings.iter().all(|f| f.verdict == Verdict::Well), "{findings:#?}");
}

#[test]
fn a_policy_that_is_not_followed_is_found() {
    broken("policy", Verdict::Wrong, "typo", |p| p.facts.policy_problem = Some("typo".into()));
}

#[test]
fn old_versions_are_found() {
    broken("versions", Verdict::Wrong, "v1.33.9", |p| p.facts.server = "v1.33.9".into());
    broken("versions", Verdict::Wrong, "gpu-a", |p| {
        p.facts.nodes.get_mut("gpu-a").unwrap().kubelet = "v1.30.14".into()
    });
    broken("versions", Verdict::Unknown, "not known", |p| p.facts.server.clear());
}

#[test]
fn a_webhook_that_is_missing_unreachable_or_not_believed_is_found() {
    broken("webhook", Verdict::Wrong, "not registered", |p| p.facts.admission = Admission::Silent);
    broken("webhook", Verdict::Wrong, "certificate", |p| {
        p.facts.admission =
            Admission::Fails("failed calling webhook: x509: certificate signed by unknown authority".into());
    });
    broken("webhook", Verdict::Wrong, "refused", |p| {
        p.facts.admission = Admission::Fails("failed calling webhook: connection refused".into());
    });
    broken("webhook", Verdict::Unknown, "may not", |p| p.facts.admission = Admission::Forbidden);
}

#[test]
fn grants_that_anybody_may_write_are_found() {
    broken("grants", Verdict::Wrong, "anybody", |p| p.facts.grants_guarded = Some(false));
}

#[test]
fn a_leader_that_fell_silent_is_found() {
    broken("scheduler", Verdict::Wrong, "300 seconds", |p| p.facts.leader = Some(("divvy-1".into(), 300)));
    broken("scheduler", Verdict::Warning, "no leader", |p| p.facts.leader = None);
}

#[test]
fn a_bad_inventory_is_found() {
    broken("inventory", Verdict::Wrong, "layout 99", |p| {
        let note = NodeNote { problem: Some("its inventory has layout 99".into()), ..NodeNote::default() };
        p.file.nodes.insert("gpu-b".into(), note);
    });
}

#[test]
fn no_device_at_all_is_found() {
    let mut patient = healthy();
    patient.file.cluster.nodes[0].inventory.devices.clear();
    let findings = examine(patient);
    let inventory = findings.iter().find(|f| f.check == "inventory").unwrap();
    assert_eq!((inventory.verdict, inventory.found.as_str()), (Verdict::Wrong, "no node offers a GPU"));
}

#[test]
fn a_gpu_node_that_is_not_offered_is_found_with_the_label_to_set() {
    let mut patient = healthy();
    patient.file.policy = serde_json::from_str::<GpuPolicySpec>(r#"{"devices": {"onlyOptedInNodes": true}}"#).unwrap();
    let findings = examine(patient);
    let labels = findings.iter().find(|f| f.check == "labels").unwrap();
    assert_eq!(labels.verdict, Verdict::Warning);
    assert!(labels.mend.contains(&format!("kubectl label node gpu-a {}=on", keys::NODE_OPT_IN)), "{labels:?}");
    broken("labels", Verdict::Warning, "gpu-z", |p| {
        p.facts
            .nodes
            .insert("gpu-z".into(), NodeFacts { says_gpu: true, kubelet: "v1.36.0".into(), ..NodeFacts::default() });
    });
}

#[test]
fn a_kubelet_without_slots_is_found() {
    broken("slots", Verdict::Wrong, "gpu-a", |p| p.facts.nodes.get_mut("gpu-a").unwrap().slots = 0);
}

#[test]
fn agents_of_other_versions_are_found() {
    broken("agents", Verdict::Warning, "0.0.1", |p| p.file.cluster.nodes[0].inventory.agent = "0.0.1".into());
    broken("agents", Verdict::Warning, "differ", |p| {
        let mut other = Node::new("gpu-b", Resources::default());
        other.inventory.agent = "0.0.1".into();
        p.file.cluster.nodes.push(other);
    });
}

#[test]
fn a_failed_device_and_foreign_processes_are_found() {
    broken("devices", Verdict::Wrong, "XID 79", |p| {
        // Another card is fit, so that the node still has slots to count.
        let inventory = &mut p.file.cluster.nodes[0].inventory;
        let mut ill = Device::gpu("GPU-2", 1, "NVIDIA-H200", Bytes::gib(141));
        ill.health = Health::Unhealthy { reason: "XID 79".into() };
        inventory.devices.push(ill);
    });
    broken("devices", Verdict::Warning, "3 GiB of GPU-1", |p| {
        p.file.cluster.nodes[0].inventory.foreign.insert("GPU-1".into(), Bytes::gib(3));
    });
}

#[test]
fn another_owner_of_the_gpus_is_found_by_name() {
    for (image, who) in [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "NVIDIA's device plugin"),
        ("registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2", "gpushare"),
        ("tkestack/gpu-manager:v1.1.5", "gpu-manager"),
        ("4pdosc/k8s-vdevice:latest", "4paradigm"),
        ("projecthami/hami:v2.6.0", "HAMi"),
    ] {
        broken("owners", Verdict::Wrong, who, |p| {
            p.facts.daemon_sets.insert("kube-system/other".into(), vec![image.into()]);
        });
    }
}

#[test]
fn a_device_class_with_one_of_our_names_is_found() {
    for resource in [keys::VGPU_COUNT, keys::GPU, keys::SLOT] {
        broken("device classes", Verdict::Wrong, resource, |p| {
            p.facts.device_classes.insert("gpu".into(), resource.into());
        });
    }
}

#[test]
fn a_clock_that_is_off_is_found() {
    broken("clocks", Verdict::Wrong, "gpu-a is 42 s ahead", |p| {
        p.facts.nodes.get_mut("gpu-a").unwrap().clock_ahead = Some(42_000);
    });
    broken("clocks", Verdict::Unknown, "no node", |p| p.facts.nodes.get_mut("gpu-a").unwrap().clock_ahead = None);
}

/// A machine in which nothing is wrong.
fn sound() -> Host {
    Host {
        containerd: Some("version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = true\n".into()),
        nvidia: Some("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n".into()),
        plugins: true,
        foreign_specs: Vec::new(),
        driver: Some("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06".into()),
        cards: 8,
    }
}

fn host_broken(check: &str, verdict: Verdict, words: &str, breaks: impl FnOnce(&mut Host)) {
    let mut host = sound();
    breaks(&mut host);
    let findings = host::check(&host);
    let bad: Vec<&Finding> = findings.iter().filter(|f| f.verdict != Verdict::Well).collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    assert_eq!((bad[0].check, bad[0].verdict), (check, verdict));
    assert!(bad[0].found.contains(words), "{:?} does not say {words:?}", bad[0].found);
}

#[test]
fn a_sound_machine_has_no_findings() {
    assert!(host::check(&sound()).iter().all(|f| f.verdict == Verdict::Well), "{:#?}", host::check(&sound()));
}

#[test]
fn nvidia_as_the_default_runtime_is_found() {
    host_broken("runtime default", Verdict::Warning, "nvidia", |h| {
        h.containerd = Some("enable_cdi = true\ndefault_runtime_name = \"nvidia\" # by nvidia-ctk\n".into());
    });
}

#[test]
fn a_runtime_that_reads_no_cdi_is_found() {
    host_broken("CDI", Verdict::Wrong, "enable_cdi", |h| h.containerd = Some("  enable_cdi = false".into()));
    host_broken("CDI", Verdict::Wrong, "/elsewhere", |h| {
        h.containerd = Some("enable_cdi = true\ncdi_spec_dirs = [\"/elsewhere\"]".into());
    });
}

#[test]
fn a_variable_that_chooses_devices_is_found() {
    host_broken("visible devices", Verdict::Warning, "NVIDIA_VISIBLE_DEVICES", |h| {
        h.nvidia = Some("#accept-nvidia-visible-devices-envvar-when-unprivileged = false".into());
    });
}

#[test]
fn a_missing_kubelet_driver_or_a_foreign_spec_is_found() {
    host_broken("kubelet", Verdict::Wrong, "device-plugins", |h| h.plugins = false);
    host_broken("driver", Verdict::Wrong, "8 NVIDIA GPUs", |h| h.driver = None);
    host_broken("driver", Verdict::Warning, "no NVIDIA GPU", |h| (h.driver, h.cards) = (None, 0));
    host_broken("CDI specs", Verdict::Warning, "nvidia.yaml", |h| h.foreign_specs = vec!["nvidia.yaml".into()]);
}

#[test]
fn a_machine_is_read_from_its_files() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("etc/containerd/config.toml", "default_runtime_name = 'runc'");
    write("etc/containerd/conf.d/99-nvidia.toml", "default_runtime_name = 'nvidia'");
    write("var/run/cdi/nvidia.yaml", "");
    write("var/run/cdi/divvy.dev-slot.json", "");
    write("sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de\n");
    write("sys/bus/pci/devices/0000:18:00.0/class", "0x030200\n");
    write("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n");
    std::fs::create_dir_all(root.path().join("var/lib/kubelet/device-plugins")).unwrap();
    let host = Host::read(root.path());
    assert_eq!(
        (host.cards, host.plugins, host.foreign_specs.as_slice()),
        (1, true, ["nvidia.yaml".to_owned()].as_slice())
    );
    let findings = host::check(&host);
    let default = findings.iter().find(|f| f.check == "runtime default").unwrap();
    assert!(default.found.starts_with("nvidia is containerd's default"), "a drop-in wins: {default:?}");
}

#[test]
fn a_pod_that_an_earlier_version_gave_a_part_of_a_card_without_isolation_is_found() {
    broken("isolation", Verdict::Wrong, "team/old on gpu-a (GPU-1)", |p| {
        let slice = serde_json::json!({"device": "GPU-1", "memory": 1, "memoryLimit": 1, "share": 1, "shareLimit": 1000,
            "isolation": "none"});
        let grant = serde_json::json!({"v": 1, "at": 0, "policy": "frag",
            "containers": [{"name": "main", "slices": [slice]}]});
        let mut pod = Pod::new("team", "old");
        pod.state = State::Bound(Bound {
            node: "gpu-a".into(),
            grant: Some(serde_json::from_value(grant).unwrap()),
            since: Time(0),
            init_done: false,
            terminating: false,
        });
        p.file.cluster.pods.push(pod);
    });
}

//! Every example of every dialect, applied with kubectl as its users would, ends bound with what its words ask for; and the cluster's
//! policy, changed while everything runs.
//!
//! One cluster with something for everybody, one test after another: a policy is everybody's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/fold.rs"]
mod fold;
#[path = "control_plane/ground.rs"]
mod ground;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use divvy_core::ask::{GpuAsk, MemoryAsk};
use divvy_core::device::{Device, DeviceKind, Inventory, Isolation, Link};
use divvy_core::grant::Grant;
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use divvy_e2e::{Kubectl, Options, Scheduler, eventually, simulated_node};
use fold::assert_within_capacity_of;
use ground::{Ground, SOON, file, free_ports, grant, pod, share, wait_bound, wait_unschedulable, whole};
use serde_json::{Value, json};

static GROUND: LazyLock<Mutex<Ground>> = LazyLock::new(|| {
    let ground = Ground::start(Options { scheduler: Scheduler::Absent, ..Options::control_plane() }, "controller", &[]);
    populate(&ground);
    Mutex::new(ground)
});

/// The same nodes under a kube-scheduler that asks Divvy, with the configuration that is delivered for it.
fn extended() -> Ground {
    let [port] = free_ports();
    let text = std::fs::read_to_string(file("deploy/kube-scheduler.yaml")).unwrap();
    let mut configuration: Value = serde_saphyr::from_str(&text).unwrap();
    // On one machine, without certificates.
    let extender = configuration["extenders"][0].as_object_mut().unwrap();
    extender.retain(|field, _| !["enableHTTPS", "tlsConfig"].contains(&field.as_str()));
    extender["urlPrefix"] = json!(format!("http://127.0.0.1:{port}/divvy"));
    let options = Options { scheduler: Scheduler::Configured(configuration), ..Options::control_plane() };
    let listen = format!("127.0.0.1:{port}");
    let flags = ["--extender-listen", &listen, "--kube-scheduler", "default-scheduler"];
    let ground = Ground::start(options, "controller", &flags);
    populate(&ground);
    ground
}

fn populate(ground: &Ground) {
    let nodes: Vec<Value> = inventories()
        .iter()
        .map(|(name, inventory)| {
            let annotations = json!({(keys::INVENTORY): serde_json::to_string(inventory).unwrap()});
            let amounts = json!({"cpu": "192", "memory": "2Ti", (keys::SLOT): "256"});
            simulated_node(name, &annotations, &json!({(keys::SIMULATED): "true"}), &amounts)
        })
        .collect();
    ground.cluster.simulate_nodes(&nodes).unwrap();
}

fn alone() -> MutexGuard<'static, Ground> {
    GROUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something for everybody.
fn inventories() -> Vec<(String, Inventory)> {
    let node = |name: &str, gpus: u32, model: &str, memory: Bytes, more: &dyn Fn(&mut Device)| {
        let device = |n: u32| {
            let mut device = Device::gpu(format!("GPU-{name}-{n}"), n, model, memory);
            device.isolation = vec![Isolation::Intercept];
            more(&mut device);
            device
        };
        let devices = (0..gpus).map(device).collect();
        (name.to_owned(), Inventory { generation: 1, devices, agent: "simulated".into(), ..Inventory::default() })
    };
    vec![
        node("h200", 8, "NVIDIA-H200", Bytes::gib(141), &|device| {
            device.numa = Some(device.index / 4);
            let others = (0..8).filter(|n| *n != device.index);
            device.links = others.map(|n| (format!("GPU-h200-{n}").into(), Link::NvLink)).collect();
        }),
        node("old", 4, "NVIDIA-GeForce-GTX-1080", Bytes::gib(8), &|_| {}),
        node("mlu", 2, "MLU370-X4", Bytes::gib(24), &|device| device.kind = DeviceKind::Mlu),
        node("cut", 2, "NVIDIA-A100-PCIE-40GB", Bytes::gib(40), &|device| {
            device.isolation = vec![Isolation::Mig];
            let profiles = "1g.5gb:4864:1:0,1,2,3,4,5,6;2g.10gb:9856:2:0,2,4";
            device.attributes.insert("mig-profiles".into(), profiles.into());
        }),
        node("named", 2, "NVIDIA-V100", Bytes::gib(16), &|device| {
            device.id = ["GPU-1111", "GPU-2222"][device.index as usize].into();
        }),
    ]
}

/// Writes the cluster's policy, and waits until the scheduler follows it.
fn policy(ground: &Ground, spec: &Value) {
    let object =
        json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuPolicy", "metadata": {"name": "default"}, "spec": spec});
    ground.cluster.admin().feed(&["replace", "--force", "-f", "-"], &object.to_string()).unwrap();
    let followed = |policy: &Value| {
        let of_this = policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        let conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        of_this && conditions.into_iter().any(|c| c["type"] == "Followed" && c["status"] == "True")
    };
    ground.cluster.admin().wait("gpupolicy", "default", SOON, followed).unwrap();
}

/// The files of a dialect, with the objects that kubectl applies.
fn examples(folder: &Path) -> Vec<(String, Vec<Value>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let mut objects = serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let name = format!("{}/{}", folder.file_name().unwrap().display(), path.file_name().unwrap().display());
            for object in &mut objects {
                // A custom resource of which Divvy reads the annotations: on a Pod they mean the same.
                if object["kind"] == "SharePod" {
                    (object["apiVersion"], object["kind"]) = (json!("v1"), json!("Pod"));
                }
            }
            // One member is written down; it starts when there are as many as it says.
            if let Some(wanted) = objects[0]["metadata"]["labels"][keys::KUBESHARE_MIN_AVAILABLE].as_str() {
                let first = objects[0].clone();
                for n in 1..wanted.parse().unwrap() {
                    let mut next = first.clone();
                    next["metadata"]["name"] = json!(format!("member-{n}"));
                    objects.push(next);
                }
            }
            (name, objects)
        })
        .collect()
}

/// How many pods these objects make.
fn pods_of(objects: &[Value]) -> usize {
    let of = |o: &Value| match o["kind"].as_str() {
        Some("Job") => o["spec"]["parallelism"].as_u64().unwrap_or(1),
        Some("Deployment" | "StatefulSet") => o["spec"]["replicas"].as_u64().unwrap_or(1),
        _ => 1,
    };
    objects.iter().map(|o| of(o) as usize).sum()
}

/// Is this what was asked for? Memory by what it means on the device that was given.
fn check(name: &str, pod: &Value, memory_of: &BTreeMap<String, Bytes>) {
    let ask: GpuAsk = serde_json::from_str(pod["metadata"]["annotations"][keys::ASK].as_str().unwrap()).unwrap();
    let grant: Grant = grant(pod);
    assert_eq!(ask.containers.len(), grant.containers.len(), "{name}");
    for (asked, granted) in ask.containers.iter().zip(&grant.containers) {
        assert_eq!(asked.name, granted.name, "{name}");
        let mut slices = granted.slices.iter();
        for want in &asked.wants {
            for _ in 0..want.count {
                let slice = slices.next().unwrap_or_else(|| panic!("{name}: too few devices"));
                let of_device = memory_of[slice.device.as_str()];
                let memory = match &want.memory {
                    MemoryAsk::Nothing => slice.memory,
                    MemoryAsk::Bytes(bytes) => *bytes,
                    MemoryAsk::Part(part) => of_device.thousandths(*part),
                    MemoryAsk::NodeUnits(units) => Bytes::gib(*units),
                };
                if slice.partition.is_some() {
                    // A hardware partition is as large as it is.
                    assert!(slice.memory >= memory, "{name}: memory on {}", slice.device);
                } else {
                    assert!(want.partition.is_none(), "{name}: no partition");
                    assert_eq!(slice.memory, memory, "{name}: memory on {}", slice.device);
                    assert_eq!((slice.share, slice.exclusive), (want.share, want.exclusive), "{name}");
                }
                assert_eq!(slice.kind, want.kind, "{name}");
            }
        }
        assert!(slices.next().is_none(), "{name}: more devices than asked for");
        let devices: BTreeSet<&str> = granted.slices.iter().map(|s| s.device.as_str()).collect();
        let partitions = granted.slices.iter().any(|s| s.partition.is_some());
        assert!(partitions || devices.len() == granted.slices.len(), "{name}: one device twice");
    }
}

/// What the manifest of each system's own documents gets: container, devices, memory of each in MiB, share of each.
const DOCUMENTED: [(&str, &str, usize, u64, u32); 5] = [
    ("kubeshare/pod.yaml", "pytorch", 1, 4096, 500),
    ("kubegpu/two-gpus.yaml", "main", 2, 0, 1000),
    ("gpu-manager/mnist.yaml", "nvidia", 1, 15 * 256, 500),
    ("gpushare/binpack.yaml", "binpack-1", 1, 3 * 1024, 0),
    ("vgpu/pod.yaml", "ubuntu-container", 2, 3000, 300),
];

#[test]
fn the_examples_of_every_dialect_end_bound_with_what_they_ask_for() {
    every_example_ends_bound_with_what_it_asks_for(&alone());
}

#[test]
fn the_same_examples_end_bound_with_what_they_ask_for_where_kube_scheduler_asks_divvy() {
    every_example_ends_bound_with_what_it_asks_for(&extended());
}

fn every_example_ends_bound_with_what_it_asks_for(ground: &Ground) {
    let memory_of: BTreeMap<String, Bytes> = inventories()
        .iter()
        .flat_map(|(_, inventory)| inventory.devices.iter().map(|d| (d.id.to_string(), d.memory)))
        .collect();
    let mut documented = 0;
    let mut folders: Vec<_> = std::fs::read_dir(file("examples")).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|path| path.is_dir()) {
        let flavour = if folder.ends_with("vgpu") { "vgpu" } else { "hami" };
        policy(ground, &json!({"dialects": {"nvidia": flavour}}));
        let space = ground.cluster.namespace("examples").unwrap();
        for (name, objects) in examples(folder) {
            space.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()).unwrap();
            let expected = pods_of(&objects);
            let pods = eventually(&format!("all pods of {name} are bound"), SOON, || {
                let pods = space.list("pods")?;
                let bound = pods.iter().filter(|p| p["spec"]["nodeName"].is_string()).count();
                anyhow::ensure!(bound == expected, "{bound} of {expected}: {}", space.story());
                Ok(pods)
            })
            .unwrap();
            pods.iter().for_each(|pod| check(&name, pod, &memory_of));
            // What users of an emulated system look for stands beside the grant.
            let shown = |pod: &Value| {
                pod["metadata"]["annotations"].as_object().unwrap().keys().any(|k| !k.starts_with(keys::DOMAIN))
            };
            assert!(name.starts_with("native/") || pods.iter().all(shown), "{name}: nothing of its own system");
            if let Some((_, container, count, mib, part)) = DOCUMENTED.iter().find(|(file, ..)| *file == name) {
                let granted = grant(&pods[0]);
                let granted = granted.containers.iter().find(|c| c.name.as_str() == *container).unwrap();
                assert_eq!(granted.slices.len(), *count, "{name}");
                for slice in &granted.slices {
                    let memory = if *mib == 0 { memory_of[slice.device.as_str()] } else { Bytes::mib(*mib) };
                    assert_eq!((slice.memory, slice.share), (memory, Share(*part)), "{name}");
                }
                documented += 1;
            }
            let ours: BTreeSet<String> = inventories().into_iter().map(|(name, _)| name).collect();
            assert_within_capacity_of(&ground.cluster, |node| ours.contains(node));
            clear(&space, &objects);
        }
    }
    assert_eq!(documented, DOCUMENTED.len());
}

/// Removes what was applied, and waits until nothing is left of it.
fn clear(space: &Kubectl, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    space.feed(&["delete", "--wait=false", "-f", "-"], &list).unwrap();
    eventually("the pods are gone", SOON, || {
        space.say(&["delete", "pods", "--all", "--force", "--grace-period=0"])?;
        anyhow::ensure!(space.list("pods")?.is_empty());
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_new_policy_is_followed_at_once_and_one_that_cannot_be_followed_changes_nothing() {
    let ground = alone();
    let (admin, space) = (ground.cluster.admin(), ground.cluster.namespace("policy").unwrap());
    let only = |mut pod: Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Policy-1"});
        pod
    };
    ground.simulate_as("policy", 1, 1, &["--model", "Policy-1"]);
    policy(&ground, &json!({"maxTasks": 1}));
    space.create(&only(share("first", 100)).to_string()).unwrap();
    wait_bound(&space, "first");
    space.create(&only(share("second", 100)).to_string()).unwrap();
    wait_unschedulable(&space, "second");
    policy(&ground, &json!({"maxTasks": 2}));
    wait_bound(&space, "second");
    // Over-subscription: a card of which one and a half may be promised.
    let much = json!({(keys::GPU_SHARE): 900, (keys::GPU_MEMORY): "8Gi"});
    space.create(&only(pod("much", much)).to_string()).unwrap();
    wait_unschedulable(&space, "much");
    policy(&ground, &json!({"maxTasks": 3, "devices": {"shareOversubscription": 1500}}));
    // Nobody is sent where the node's agent has not said that it will let them in.
    let node = admin.get("node", "policy-0").unwrap();
    let inventory = node["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap();
    let mut inventory: Value = serde_json::from_str(inventory).unwrap();
    inventory["devices"][0]["bookableShare"] = json!(2000);
    inventory["generation"] = json!(inventory["generation"].as_u64().unwrap() + 1);
    admin.say(&["annotate", "--overwrite", "node", "policy-0", &format!("{}={inventory}", keys::INVENTORY)]).unwrap();
    wait_bound(&space, "much");
    // The schema and its rules refuse what nobody can mean, by name.
    let refused = |spec: Value| {
        let object = json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuPolicy", "metadata": {"name": "default"}, "spec": spec});
        admin.apply(&object.to_string()).unwrap_err().to_string()
    };
    assert!(refused(json!({"maxTasks": 0})).contains("maxTasks"));
    assert!(refused(json!({"byDialect": {"esperanto": {"name": "frag"}}})).contains("dialects are native"));
    assert!(refused(json!({"placement": {"name": "worst"}})).contains("placement.name"));
    let other =
        json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuPolicy", "metadata": {"name": "mine"}, "spec": {}});
    let error = admin.apply(&other.to_string()).unwrap_err().to_string();
    assert!(error.contains("there is one GpuPolicy, and it is called default"), "{error}");
    // Only nodes that somebody opted in.
    policy(&ground, &json!({"devices": {"onlyOptedInNodes": true}}));
    let mut old = whole("old", 1);
    old["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "GTX-1080"});
    space.create(&old.to_string()).unwrap();
    wait_unschedulable(&space, "old");
    admin.say(&["label", "node", "old", &format!("{}=true", keys::KUBESHARE_NODE)]).unwrap();
    wait_bound(&space, "old");
    policy(&ground, &json!({}));
    admin.say(&["delete", "node", "policy-0"]).unwrap();
}

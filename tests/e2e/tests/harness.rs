//! The harness itself: what every other end-to-end test builds on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use divvy_e2e::{BUSYBOX, Cluster, Image, Kubectl, Options, eventually, is_ready, simulated_node};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

/// The cluster of the tests that do not crash anything.
static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(Options::with_node()).unwrap());

fn pod(name: &str, image: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": image, "command": ["sh", "-c", script]}],
        },
    })
}

#[test]
fn a_plain_pod_runs_on_the_real_kubelet_and_logs_and_exec_work() {
    let space = SHARED.namespace("plain").unwrap();
    space.apply(&pod("plain", BUSYBOX, "echo hello; sleep 3600").to_string()).unwrap();
    let seen = space.wait_phase("plain", "Running", SOON).unwrap();
    assert_eq!(seen["spec"]["nodeName"], "node-0");
    assert_eq!(space.say(&["logs", "plain"]).unwrap(), "hello\n");
    assert_eq!(space.say(&["exec", "plain", "--", "cat", "/proc/1/comm"]).unwrap(), "sleep\n");
    // The path that limits are keyed by is the one of a node that has the machine for itself.
    let groups = space.say(&["exec", "plain", "--", "cat", "/proc/self/cgroup"]).unwrap();
    let uid = seen["metadata"]["uid"].as_str().unwrap();
    assert!(groups.contains(&format!(":/kubepods/besteffort/pod{uid}/")), "{groups}");
}

#[test]
fn a_pod_reaches_the_api_server_at_its_service_address() {
    let space = SHARED.namespace("service").unwrap();
    let script = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached; sleep 3600";
    space.apply(&pod("caller", BUSYBOX, script).to_string()).unwrap();
    space.wait_phase("caller", "Running", SOON).unwrap();
    eventually("the pod has called", SOON, || {
        ensure!(space.say(&["logs", "caller"])? == "reached\n");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_foreign_image_that_is_always_pulled_runs_with_what_is_baked_into_it() {
    // Busybox is static; `env` of this machine needs its shared libraries, which the image must bring.
    let image = Image::busybox().unwrap().program("/usr/bin/printenv", Path::new("/usr/bin/printenv")).unwrap();
    let image = image.env("BAKED", "all of it").entrypoint(["/usr/bin/printenv", "BAKED"]);
    SHARED.offer_image("riyazhu/mnist:test", &image).unwrap();
    let space = SHARED.namespace("foreign").unwrap();
    let job = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mnist"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "riyazhu/mnist:test", "imagePullPolicy": "Always"}],
        },
    });
    space.apply(&job.to_string()).unwrap();
    let seen = space
        .wait("pod", "mnist", SOON, |pod| ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase));
    assert_eq!(space.say(&["logs", "mnist"]).unwrap(), "all of it\n");
    assert_eq!(seen.unwrap()["status"]["phase"], "Succeeded");
}

#[test]
fn an_image_that_nobody_offered_is_not_looked_for_elsewhere() {
    let space = SHARED.namespace("missing").unwrap();
    space.apply(&pod("missing", "example.com/nobody/has:this", "true").to_string()).unwrap();
    let why = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let seen = space.wait("pod", "missing", SOON, |pod| why(pod)["reason"] == "ErrImagePull").unwrap();
    assert!(why(&seen)["message"].as_str().unwrap().contains("not found"), "{}", why(&seen));
}

#[test]
fn two_clusters_with_nodes_live_side_by_side_and_one_outlives_crashes_of_its_parts() {
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(|| Cluster::start(Options::with_node()).unwrap());
        let two = scope.spawn(|| Cluster::start(Options::with_node()).unwrap());
        (one.join().unwrap(), two.join().unwrap())
    });
    for cluster in [&one, &two] {
        let space = cluster.admin().in_namespace("default");
        space.apply(&pod("resident", BUSYBOX, "sleep 3600").to_string()).unwrap();
        space.wait_phase("resident", "Running", SOON).unwrap();
        let plugins = cluster.nodes()[0].root().join("var/lib/kubelet/device-plugins/kubelet.sock");
        assert!(plugins.exists(), "the kubelet has no device-plugin socket of its own");
    }
    drop(one);
    let node = &two.nodes()[0];
    let space = two.admin().in_namespace("default");
    let before = container_of(&space, "resident");

    node.containerd.kill().unwrap();
    node.start_containerd().unwrap();
    node.kubelet.kill().unwrap();
    node.kubelet.start().unwrap();
    two.control_plane().api_server.kill().unwrap();
    two.control_plane().api_server.start().unwrap();
    two.wait_for_api_server().unwrap();
    // A pod that starts afterwards shows that all of them work again.
    space.apply(&pod("newcomer", BUSYBOX, "sleep 3600").to_string()).unwrap();
    space.wait_phase("newcomer", "Running", SOON).unwrap();
    assert_eq!(space.say(&["exec", "resident", "--", "echo", "alive"]).unwrap(), "alive\n");
    assert_eq!(container_of(&space, "resident"), before, "the container did not live through the crashes");

    let host = two.host_address().unwrap();
    let listener = TcpListener::bind((host, 0)).unwrap();
    let reach_us = format!("busybox nc -w 1 {host} {} </dev/null", listener.local_addr().unwrap().port());
    thread::spawn(move || listener.incoming().for_each(drop));
    let reaches_us = || node.shell(&reach_us).unwrap().status.success();
    assert!(reaches_us());
    node.partition(true).unwrap();
    assert!(!reaches_us(), "the node is not cut off");
    node.partition(false).unwrap();
    eventually("the node is joined again", SOON, || {
        ensure!(reaches_us());
        Ok(())
    })
    .unwrap();
}

fn container_of(space: &Kubectl, pod: &str) -> (Value, Value) {
    let status = space.get("pod", pod).unwrap()["status"]["containerStatuses"][0].clone();
    (status["containerID"].clone(), status["restartCount"].clone())
}

#[test]
fn the_control_plane_alone_serves_simulated_nodes_and_keeps_users_apart() {
    let cluster = Cluster::start(Options::control_plane()).unwrap();
    let nodes: Vec<Value> = (0..3)
        .map(|i| {
            let resources = if i == 2 { json!({"example.com/card": "4"}) } else { json!({}) };
            simulated_node(&format!("simulated-{i}"), &json!({"example.com/note": "kept"}), &json!({}), &resources)
        })
        .collect();
    cluster.simulate_nodes(&nodes).unwrap();
    let space = cluster.namespace("simulated").unwrap();
    let mut asking = pod("asking", BUSYBOX, "true");
    asking["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/card": "3"}});
    space.apply(&asking.to_string()).unwrap();
    let bound = space.wait("pod", "asking", SOON, |pod| pod["spec"]["nodeName"].is_string()).unwrap();
    assert_eq!(bound["spec"]["nodeName"], "simulated-2");
    for node in cluster.admin().list("nodes").unwrap() {
        assert!(is_ready(&node) && node["spec"]["taints"].is_null(), "{node}");
        assert_eq!(node["metadata"]["annotations"]["example.com/note"], "kept");
    }

    let stranger = cluster.kubeconfig_for("stranger", None).unwrap();
    let refused = space.with_kubeconfig(&stranger).say(&["get", "pods"]).unwrap_err();
    assert!(refused.to_string().contains(r#"User "stranger" cannot list resource "pods""#), "{refused}");
}

#[test]
fn nothing_remains_of_a_cluster_whose_owner_was_killed() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_hold-cluster")).stdout(Stdio::piped()).spawn().unwrap();
    let mut folder = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut folder).unwrap();
    let folder = PathBuf::from(folder.trim());
    let bridge = Path::new("/sys/class/net").join(fs::read_to_string(folder.join("bridge")).unwrap());
    let group = fs::read_to_string(folder.join("cgroups")).unwrap().trim().to_owned();
    let init = fs::read_to_string(folder.join("node-0/init.pid")).unwrap();
    let namespace = fs::read_link(format!("/proc/{}/ns/pid", init.trim())).unwrap();
    let left = || Left {
        processes: processes(&folder, &namespace),
        control_groups: control_groups(&group),
        bridge: bridge.exists(),
        folder: folder.exists(),
    };
    let before = left();
    // etcd, API server, controller manager, scheduler; process 1, containerd and kubelet of the node.
    assert!(
        before.processes.len() >= 7 && before.bridge && before.folder && !before.control_groups.is_empty(),
        "{before:?}"
    );

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("nothing remains", Duration::from_secs(30), || {
        let left = left();
        ensure!(left == Left::default(), "{left:?}");
        Ok(())
    })
    .unwrap();
}

/// What is left of a cluster on this machine.
#[derive(Debug, Default, PartialEq)]
struct Left {
    processes: BTreeSet<String>,
    control_groups: BTreeSet<PathBuf>,
    bridge: bool,
    folder: bool,
}

/// The processes that work in the cluster's folder or live in the node's process namespace.
fn processes(folder: &Path, namespace: &Path) -> BTreeSet<String> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|process| {
        fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
            || fs::read_link(process.join("ns/pid")).is_ok_and(|pid| pid == namespace)
    })
    .map(|process| {
        fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned() + &process.to_string_lossy()
    })
    .collect()
}

fn control_groups(name: &str) -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let hierarchies = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        kind.starts_with("cgroup").then(|| Path::new(at).join(name))
    });
    hierarchies.filter(|group| group.exists()).collect()
}

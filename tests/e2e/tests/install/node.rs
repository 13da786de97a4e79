//! `helm install` on a real node, from the archives that `cargo xtask dist` makes: every pod becomes ready, the first fraction runs, is
//! seen on the dashboard and resized from the command line, and neither `helm upgrade` nor `helm uninstall` breaks its GPU loop.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use divvy_core::keys;
use divvy_e2e::programs::{Programs, Release};
use divvy_e2e::{Cluster, Image, Kubectl, Options, eventually, own};
use divvy_fakedriver::machine::{Machine, Unit};
use divvy_shm::GateReader;
use serde_json::{Value, json};

use crate::{NAMESPACE, helm};

/// Long enough for a busy machine; the test waits for conditions, not for this.
const SOON: Duration = Duration::from_secs(180);
const CUDA: &str = "divvy.test/cuda:1";
const MACHINE: &str = "H200 memory=100GiB uuid=GPU-00000000-0000-4000-8000-000000000000";

/// What the chart must be told to run on the fake driver.
fn values(cluster: &Cluster) -> PathBuf {
    let driver = own::fake_driver().unwrap().display().to_string();
    let values = json!({
        "image": {"registry": "divvy.test", "tag": "test"},
        // Programs of the tests are not optimized and carry their symbols: they take more memory than the chart allows.
        "controller": {"resources": null},
        "dashboard": {"enabled": true, "resources": null},
        "keeper": {"resources": null},
        "agent": {
            "resources": null,
            "extraArgs": [format!("--fake-driver={driver}")],
            "extraEnv": [
                {"name": "FAKE_GPU_STATE", "value": "/run/fake-gpu"},
                {"name": "FAKE_GPU_CONFIG", "value": MACHINE},
            ],
            "extraVolumes": [
                {"name": "fake-driver", "hostPath": {"path": driver, "type": "Directory"}},
                {"name": "fake-gpu", "hostPath": {"path": "/run/fake-gpu", "type": "DirectoryOrCreate"}},
            ],
            "extraVolumeMounts": [
                {"name": "fake-driver", "mountPath": driver},
                {"name": "fake-gpu", "mountPath": "/run/fake-gpu"},
            ],
        },
    });
    let path = cluster.folder().join("values.json");
    std::fs::write(&path, values.to_string()).unwrap();
    path
}

/// Puts an image on the node by way of the archive that `cargo xtask dist` writes.
fn import(cluster: &Cluster, name: &str, image: &Image) {
    let file = cluster.folder().join("image.oci.tar");
    std::fs::write(&file, image.pack().unwrap().archive(name).unwrap()).unwrap();
    let programs = Programs::ready(Release::default(), &["ctr"]).unwrap();
    let ctr = programs.path("ctr").unwrap().display();
    let script = format!("{ctr} -n k8s.io images import {} && {ctr} -n k8s.io images ls -q", file.display());
    let output = cluster.node(0).shell(&script).unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(name), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until every pod of the release is ready, of the newest generation.
fn all_ready(admin: &Kubectl) {
    let system = admin.in_namespace(NAMESPACE);
    let parts = [
        ("deployment", "divvy"),
        ("deployment", "divvy-dashboard"),
        ("daemonset", "divvy-agent"),
        ("daemonset", "divvy-keeper"),
    ];
    eventually("every pod of the release is ready", SOON, || {
        for (kind, name) in parts {
            let object = system.get(kind, name)?;
            let status = &object["status"];
            let wanted = status["desiredNumberScheduled"].as_i64().or(object["spec"]["replicas"].as_i64()).unwrap_or(0);
            let ready = status["numberReady"].as_i64().or(status["readyReplicas"].as_i64()).unwrap_or(0);
            let updated = status["updatedNumberScheduled"].as_i64().or(status["updatedReplicas"].as_i64()).unwrap_or(0);
            let seen = status["observedGeneration"] == object["metadata"]["generation"];
            // The keeper is replaced only when it is deleted.
            let current = name == "divvy-keeper" || updated == wanted;
            ensure!(seen && wanted > 0 && ready == wanted && current, "{kind} {name}: {status}");
        }
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", story(&system)));
}

/// What the release's pods say, for the report of a failure.
fn story(system: &Kubectl) -> String {
    let mut text = system.story();
    for selector in ["controller", "dashboard", "agent", "keeper"] {
        let label = format!("app.kubernetes.io/component={selector}");
        let logs = system.say(&["logs", "--selector", &label, "--tail=15", "--prefix"]);
        text.push_str(&format!("--- {selector}\n{}\n", logs.unwrap_or_else(|e| e.to_string())));
    }
    text
}

/// The uids of the release's pods, by component.
fn pods(admin: &Kubectl) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in admin.in_namespace(NAMESPACE).list("pods").unwrap() {
        if pod["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let component = pod["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap_or_default();
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        all.entry(component.to_owned()).or_default().push(uid.to_owned());
    }
    all.values_mut().for_each(|uids| uids.sort());
    all
}

/// How much of the card's time was used so far.
fn busy(cluster: &Cluster) -> Duration {
    let state = cluster.node(0).root().join("run/fake-gpu");
    let Ok(machine) = Machine::open(&state, None) else { return Duration::ZERO };
    Duration::from_nanos(machine.tenants(Unit::card(0)).into_iter().map(|tenant| tenant.busy).sum())
}

/// Waits until so much more of the card's time was used.
fn goes_on(cluster: &Cluster, much: Duration) {
    let before = busy(cluster);
    eventually("the loop goes on", SOON, || {
        let more = busy(cluster).saturating_sub(before);
        ensure!(more >= much, "{more:?} more");
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", story(&cluster.admin().in_namespace(NAMESPACE))));
}

/// Does `act` and watches meanwhile how the card is used: the longest time without any progress.
fn longest_pause(cluster: &Cluster, act: impl FnOnce() + Send) -> Duration {
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        let (mut last, mut since, mut longest) = (busy(cluster), Instant::now(), Duration::ZERO);
        while !acting.is_finished() {
            thread::sleep(Duration::from_millis(50));
            let now = busy(cluster);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            longest = longest.max(since.elapsed());
        }
        acting.join().unwrap();
        longest
    })
}

/// Three tenths of the card, busy until it is deleted.
fn fraction() -> Value {
    let script = "printf 'ctx 0\\nalloc 1073741824\\nspin spin_us_500 8 3600000\\nquit\\n' | tenant";
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": CUDA, "command": ["sh", "-c", script],
            "resources": {"limits": {(keys::GPU_SHARE): "300", (keys::GPU_MEMORY): "4Gi"}},
        }]},
    })
}

/// Replaces a part of Divvy while pods keep coming: none of them is refused or lost. While the agent goes no slots are here for a while, and
/// the kubelet turns away for good whom it meets then; while a controller goes the API server may still ask its webhook. Nobody would
/// make these pods anew.
fn arrivals_outlive(part: &str, admin: &Kubectl, space: &Kubectl) {
    let arrival = |name: &str| {
        let mut pod = fraction();
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["containers"][0]["command"] = json!(["true"]);
        pod["spec"]["containers"][0]["resources"]["limits"] =
            json!({(keys::GPU_SHARE): "1", (keys::GPU_MEMORY): "64Mi"});
        pod.to_string()
    };
    let kind = part.split('/').next().unwrap();
    let arrived = thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            let system = admin.in_namespace(NAMESPACE);
            system.say(&["rollout", "restart", part]).unwrap();
            all_ready(admin);
            eventually("those that were replaced are gone", SOON, || {
                let going =
                    system.list("pods")?.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
                ensure!(going == 0, "{going} are still here");
                Ok(())
            })
            .unwrap();
        });
        let (mut arrived, mut cut_off) = (Vec::new(), 0);
        while !replacing.is_finished() {
            let name = format!("{kind}-{}", arrived.len());
            match space.create(&arrival(&name)) {
                Ok(_) => arrived.push(name),
                // A request may meet the end of the connection that it was sent into. Nobody is away for longer than that.
                Err(error) if cut_off == 0 && format!("{error:#}").contains("EOF") => cut_off += 1,
                Err(error) => panic!("{error:#}"),
            }
            // A node has room for a hundred or so.
            thread::sleep(Duration::from_millis(200));
        }
        replacing.join().unwrap();
        arrived
    });
    for name in &arrived {
        let ended = |pod: &Value| ["Succeeded", "Failed"].map(Value::from).contains(&pod["status"]["phase"]);
        let pod = space.wait("pod", name, SOON, ended).unwrap_or_else(|e| panic!("{e:#}\n{}", space.story()));
        assert_eq!(pod["status"]["phase"], "Succeeded", "{name}: {}", pod["status"]);
    }
    println!("{} pods arrived while {part} was replaced, and each of them ran", arrived.len());
}

/// What the dashboard's pod answers to the owner of a token.
fn dashboard(admin: &Kubectl, token: &str) -> anyhow::Result<Value> {
    let system = admin.in_namespace(NAMESPACE);
    let ours = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboard";
    let pods = system.list("pods")?;
    let address = pods.iter().filter(|pod| ours(pod)).find_map(|pod| pod["status"]["podIP"].as_str());
    let mut stream = TcpStream::connect((address.context("the dashboard has no address")?, 8088))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "GET /api/cluster HTTP/1.0\r\nHost: dashboard\r\nAuthorization: Bearer {token}\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("not an HTTP answer")?;
    ensure!(head.contains(" 200 "), "{head}\n{body}");
    Ok(serde_json::from_str(body)?)
}

/// Whoever may sees the pod on the dashboard, with what it uses.
fn is_seen_on_the_dashboard(admin: &Kubectl, pod: &str) {
    let denied = dashboard(admin, "nobody").unwrap_err().to_string();
    assert!(denied.contains(" 401 "), "{denied}");
    let token = admin.in_namespace(NAMESPACE).say(&["create", "token", "divvy-dashboard"]).unwrap();
    eventually("the dashboard shows what the pod uses", SOON, || {
        let picture = dashboard(admin, token.trim())?;
        let slice = &picture["nodes"][0]["cards"][0]["slices"][0];
        ensure!(slice["pod"] == pod && slice["shareUsed"].as_u64() > Some(0), "{slice}");
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", story(&admin.in_namespace(NAMESPACE))));
}

/// Grows, shrinks, and is refused by the books and by the node: from the command line into the page that the library reads.
fn is_resized(cluster: &Cluster, pod: &str, uid: &str) {
    let folder = cluster.node(0).root().join("run/divvy/containers").join(uid).join("main");
    let in_force = || {
        let config = GateReader::open(&folder).unwrap().config().1;
        let device = &config.devices[0];
        (device.memory_limit >> 20, device.share_request)
    };
    let resize = |words: &[&str]| {
        let mut command = Command::new(own::kubectl_divvy().unwrap());
        command.args(["resize", pod, "--wait", "120"]).args(words).env("KUBECONFIG", cluster.kubeconfig());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    assert_eq!(in_force(), (4096, 300));
    for (memory, mib, share, thousandths) in [("6Gi", 6144, "0.5", 500), ("2Gi", 2048, "0.2", 200)] {
        let (code, said) = resize(&["--memory", memory, "--share", share]);
        assert!(code == Some(0) && said.contains("In force"), "{code:?} {said}");
        assert_eq!(in_force(), (mib, thousandths), "{said}");
    }
    let (code, said) = resize(&["--memory", "9000Gi"]);
    assert!(code == Some(1) && said.contains("cannot be resized"), "{code:?} {said}");
    // It holds a gigabyte already.
    let (code, said) = resize(&["--memory", "512Mi"]);
    assert!(code == Some(1) && said.contains("It is refused") && said.contains("main uses"), "{code:?} {said}");
    assert_eq!(in_force(), (2048, 200), "{said}");
    let (code, said) = resize(&["--memory", "2Gi"]);
    assert!(code == Some(0) && said.contains("In force"), "{code:?} {said}");
    assert_eq!(in_force(), (2048, 200), "{said}");
}

#[test]
fn helm_installs_upgrades_and_removes_while_a_gpu_loop_runs_on() {
    let cluster = Cluster::start(Options::with_node()).unwrap();
    let admin = cluster.admin();
    import(&cluster, "divvy.test/divvy:test", &own::divvy_image(&own::divvy().unwrap()).unwrap());
    let agent = own::agent_image(&own::agent().unwrap(), &own::library().unwrap()).unwrap();
    import(&cluster, "divvy.test/divvy-agent:test", &agent);
    let cuda = Image::busybox().unwrap().program("/bin/tenant", &own::tenant().unwrap()).unwrap();
    cluster.offer_image(CUDA, &cuda).unwrap();
    let values = values(&cluster).display().to_string();
    let kubeconfig = cluster.kubeconfig().to_owned();

    let started = Instant::now();
    let common = ["divvy", "charts/divvy", "--namespace", NAMESPACE, "--values", &values];
    helm(Some(&kubeconfig), &[&["install"], &common[..], &["--create-namespace"]].concat());
    all_ready(admin);
    println!("every pod is ready {:.1} s after helm install began", started.elapsed().as_secs_f64());

    // The first fraction: the webhook reads it, the scheduler grants it, the agent gives it the card.
    let space = cluster.namespace("first").unwrap();
    eventually("the webhook takes the pod", SOON, || space.create(&fraction().to_string())).unwrap();
    let first = space
        .wait_phase("first", "Running", SOON)
        .unwrap_or_else(|e| panic!("{e:#}\n{}", story(&admin.in_namespace(NAMESPACE))));
    assert!(first["metadata"]["annotations"][keys::GRANT].is_string());
    goes_on(&cluster, Duration::from_millis(100));
    println!("the first fraction runs {:.1} s after helm install began", started.elapsed().as_secs_f64());
    let name = format!("{}/first", space.name());
    is_seen_on_the_dashboard(admin, &name);
    is_resized(&cluster, &name, first["metadata"]["uid"].as_str().unwrap());
    goes_on(&cluster, Duration::from_millis(100));
    let before = pods(admin);

    let upgrade = longest_pause(&cluster, || {
        let more = ["--set", "agent.log=debug", "--set", "controller.log=debug"];
        helm(Some(&kubeconfig), &[&["upgrade"], &common[..], &more[..]].concat());
        all_ready(admin);
    });
    let after = pods(admin);
    let same = |name: &str| before.get(name).zip(after.get(name)).is_some_and(|(a, b)| a == b);
    assert!(!same("agent") && !same("controller"), "the upgrade replaced nothing: {before:?} {after:?}");
    assert!(same("keeper"), "an upgrade leaves the keeper alone: {before:?} {after:?}");
    goes_on(&cluster, Duration::from_secs(1));
    arrivals_outlive("daemonset/divvy-agent", admin, &space);
    arrivals_outlive("deployment/divvy", admin, &space);

    let removal = longest_pause(&cluster, || {
        helm(Some(&kubeconfig), &["uninstall", "divvy", "--namespace", NAMESPACE, "--wait"]);
        eventually("every pod of the release is gone", SOON, || {
            let left = admin.in_namespace(NAMESPACE).list("pods")?;
            ensure!(left.is_empty(), "{} left", left.len());
            Ok(())
        })
        .unwrap();
    });
    // On its own, with nobody left to open a gate.
    goes_on(&cluster, Duration::from_secs(5));
    println!("longest pause of the loop: {upgrade:.1?} in the upgrade, {removal:.1?} in the removal");
    let last = space.get("pod", "first").unwrap();
    assert_eq!(last["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(last["status"]["containerStatuses"][0]["restartCount"], 0);
    assert!(last["status"]["containerStatuses"][0]["state"]["running"].is_object(), "{}", last["status"]);

    // Nothing stands in the way of others any more.
    let hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies";
    let rest = admin.say(&["get", hooks, "-o", "name"]).unwrap();
    assert!(!rest.contains("/divvy"), "{rest}");
}

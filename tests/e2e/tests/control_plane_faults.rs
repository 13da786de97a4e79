//! The control plane when things go wrong: processes killed, the API server gone for a while, two that believe to lead.
//!
//! One cluster for all of it, one test after another: they take turns at breaking it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/agent.rs"]
mod agent;
#[path = "control_plane/fold.rs"]
mod fold;
#[path = "control_plane/ground.rs"]
mod ground;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent::Agent;
use divvy_core::keys;
use divvy_e2e::install::{CONTROLLER, NAMESPACE};
use divvy_e2e::pki::Authority;
use divvy_e2e::{Kubectl, Options, Scheduler, eventually};
use fold::{assert_within_capacity, refused_left};
use ground::{Divvy, Ground, SOON, file, pod, share, wait_bound, wait_unschedulable, whole};
use serde_json::{Value, json};

static GROUND: LazyLock<Mutex<Ground>> = LazyLock::new(|| {
    let options = Options { scheduler: Scheduler::Absent, ..Options::control_plane() };
    let ground = Ground::start(options, "webhook", &[]);
    ground.simulate("f", 20, 8);
    Mutex::new(ground)
});

/// The cluster, for one test at a time. A webhook and the nodes' kubelets run; schedulers are each test's own.
fn alone() -> MutexGuard<'static, Ground> {
    GROUND.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scheduler(ground: &Ground, name: &str, flags: &[&str]) -> Divvy {
    Divvy::new(&ground.cluster, name, "scheduler", flags)
}

/// Creates many pods at once.
fn create_all(space: &Kubectl, pods: Vec<Value>) {
    space.create(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string()).unwrap();
}

fn bound(space: &Kubectl) -> anyhow::Result<usize> {
    Ok(space.list("pods")?.iter().filter(|p| p["spec"]["nodeName"].is_string()).count())
}

/// Promised times are those of a machine that has time for us; one that is shared may take so many times as long.
const STARVED: u32 = 3;

#[test]
fn a_scheduler_killed_at_random_points_during_500_binds_loses_and_doubles_nothing() {
    let ground = alone();
    let space = ground.cluster.namespace("killed").unwrap();
    let divvy = scheduler(&ground, "killed", &["--no-leader-election", "--binds-at-once", "4"]);
    let mix = [100, 200, 250, 300, 125];
    for chunk in 0..5 {
        create_all(&space, (0..100).map(|n| share(&format!("p{chunk}-{n}"), mix[n % mix.len()])).collect());
    }
    // Killed after so many binds of its own, with four more under way.
    let mut kills = 0;
    for binds in [7usize, 31, 1, 50, 18, 60, 3, 41, 11] {
        let left = 500 - bound(&space).unwrap();
        if left == 0 {
            break;
        }
        divvy.program.start().unwrap();
        eventually("it has bound some", 2 * SOON, || {
            divvy.program.must_run()?;
            let done = divvy.try_metric("divvy_decisions_total{outcome=\"bound\"}")?;
            anyhow::ensure!(done >= binds.min(left) as f64, "{done} bound");
            Ok(())
        })
        .unwrap();
        divvy.program.kill().unwrap();
        kills += 1;
        assert_within_capacity(&ground.cluster);
    }
    divvy.start();
    eventually("all pods are bound", 4 * SOON, || {
        let bound = bound(&space)?;
        anyhow::ensure!(bound == 500, "{bound} bound");
        Ok(())
    })
    .unwrap();
    assert_within_capacity(&ground.cluster);
    println!("{kills} kills");
    assert!(kills >= 5, "only {kills} kills before the end: the test says too little");
    let pods = space.list("pods").unwrap();
    assert!(pods.iter().all(|p| p["metadata"]["annotations"][keys::GRANT].is_string()));
}

#[test]
fn the_api_server_may_restart_in_the_middle() {
    let ground = alone();
    let space = ground.cluster.namespace("restart").unwrap();
    let divvy = scheduler(&ground, "restart", &["--no-leader-election", "--binds-at-once", "2"]);
    create_all(&space, (0..150).map(|n| share(&format!("p{n}"), 150)).collect());
    divvy.start();
    eventually("some are bound", SOON, || {
        anyhow::ensure!(bound(&space)? >= 10);
        Ok(())
    })
    .unwrap();
    ground.cluster.control_plane().api_server.kill().unwrap();
    // Decisions go on against a server that is not there.
    std::thread::sleep(Duration::from_secs(2));
    divvy.program.must_run().unwrap();
    ground.cluster.control_plane().api_server.start().unwrap();
    ground.cluster.wait_for_api_server().unwrap();
    eventually("all are bound", 4 * SOON, || {
        let bound = bound(&space)?;
        anyhow::ensure!(bound == 150, "{bound} bound");
        Ok(())
    })
    .unwrap();
    divvy.program.must_run().unwrap();
    assert_within_capacity(&ground.cluster);
}

#[test]
fn with_the_webhook_dead_a_plain_pod_is_admitted_and_a_gpu_pod_refused() {
    let ground = alone();
    let space = ground.cluster.namespace("dead").unwrap();
    ground.divvy.program.kill().unwrap();
    space.create(&pod("plain", json!({"cpu": "100m"})).to_string()).unwrap();
    for (name, limits) in [
        ("native", json!({(keys::GPU_SHARE): 300})),
        ("gpu-manager", json!({(keys::VCUDA_CORE): 50, (keys::VCUDA_MEMORY): 4})),
        ("gpushare", json!({(keys::GPUSHARE_MEMORY): 3})),
        ("hami", json!({(keys::VGPU_COUNT): 1})),
    ] {
        let error = space.create(&pod(name, limits).to_string()).unwrap_err().to_string();
        assert!(error.contains("failed calling webhook"), "{name}: {error}");
    }
    let mut kubeshare = pod("kubeshare", json!({}));
    kubeshare["metadata"]["labels"] = json!({(keys::KUBESHARE_REQUEST): "0.5", (keys::KUBESHARE_LIMIT): "1.0"});
    let mut kubegpu = pod("kubegpu", json!({}));
    kubegpu["metadata"]["annotations"] = json!({(keys::KUBEGPU_DEVICE_INFO): "{}"});
    for pod in [kubeshare, kubegpu] {
        let error = space.create(&pod.to_string()).unwrap_err().to_string();
        assert!(error.contains("failed calling webhook"), "{error}");
    }
    ground.divvy.start();
    space.create(&share("native", 300).to_string()).unwrap();
}

#[test]
fn a_pod_that_asks_for_nothing_sees_nothing_whatever_it_says_and_whoever_is_dead() {
    let options = Options { scheduler: Scheduler::Absent, ..Options::control_plane() };
    let ground = Ground::start(options, "webhook", &["--blind-plain-pods"]);
    let admin = ground.cluster.admin();
    admin.say(&["apply", "-f", &file("deploy/blind-plain-pods.yaml").display().to_string()]).unwrap();
    let space = ground.cluster.namespace("blind").unwrap();
    let plain = |name: &str| {
        let mut plain = pod(name, json!({"cpu": "100m"}));
        plain["spec"]["containers"][0]["env"] =
            json!([{"name": "MINE", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
        plain["spec"]["initContainers"] = json!([{"name": "first", "image": "none"}]);
        plain
    };
    // What the containers of a new pod say about devices, the main one first.
    let says = |space: &Kubectl, name: &str| -> anyhow::Result<Vec<Value>> {
        space.create(&plain(name).to_string())?;
        let made = space.get("pod", name)?;
        space.say(&["delete", "pod", name, "--force", "--grace-period=0"])?;
        let of = |container: &Value| {
            let env = container["env"].as_array().into_iter().flatten();
            env.into_iter().find(|e| e["name"] == "NVIDIA_VISIBLE_DEVICES").map_or(Value::Null, |e| e["value"].clone())
        };
        let spec = &made["spec"];
        assert_eq!(spec["containers"][0]["env"][0], json!({"name": "MINE", "value": "1"}));
        Ok(vec![of(&spec["containers"][0]), of(&spec["initContainers"][0])])
    };
    eventually("pods that ask for nothing are blinded", SOON, || {
        let found = says(&space, "plain")?;
        anyhow::ensure!(found == ["void", "void"], "{found:?}");
        Ok(())
    })
    .unwrap();
    // Who asks is the webhook's, and refused no variable that nobody wrote.
    space.create(&share("asks", 300).to_string()).unwrap();
    assert!(space.get("pod", "asks").unwrap()["metadata"]["annotations"][keys::ASK].is_string());
    // Those who watch the cards.
    let watchers = ground.cluster.namespace("watchers").unwrap();
    admin.say(&["label", "namespace", watchers.name(), "divvy.dev/sees-devices=true"]).unwrap();
    eventually("they are left alone", SOON, || {
        let found = says(&watchers, "watcher")?;
        anyhow::ensure!(found == [json!("all"), Value::Null], "{found:?}");
        Ok(())
    })
    .unwrap();
    ground.divvy.program.kill().unwrap();
    assert_eq!(says(&space, "later").unwrap(), ["void", "void"]);
}

#[test]
fn a_follower_takes_over_within_15_seconds() {
    let ground = alone();
    let space = ground.cluster.namespace("takeover").unwrap();
    let first = scheduler(&ground, "first", &[]);
    first.start();
    space.create(&share("before", 100).to_string()).unwrap();
    wait_bound(&space, "before");
    let second = scheduler(&ground, "second", &[]);
    second.start();
    assert_eq!((first.metric("divvy_leading"), second.metric("divvy_leading")), (1.0, 0.0));
    // Killed right after it renewed, in the worst case; no goodbye.
    first.program.kill().unwrap();
    let killed = Instant::now();
    space.create(&share("after", 100).to_string()).unwrap();
    wait_bound(&space, "after");
    let took = killed.elapsed();
    println!("taken over after {took:?}");
    assert!(took <= STARVED * Duration::from_secs(15), "took {took:?}");
    // A leader that ends in good order gives the lead back at once.
    let third = scheduler(&ground, "third", &[]);
    third.start();
    let stopped = Instant::now();
    second.program.stop().unwrap();
    space.create(&share("handed-over", 100).to_string()).unwrap();
    wait_bound(&space, "handed-over");
    assert!(stopped.elapsed() <= STARVED * Duration::from_secs(8), "took {:?}", stopped.elapsed());
    assert_within_capacity(&ground.cluster);
}

#[test]
fn two_leaders_may_both_bind_and_what_the_node_refuses_is_evicted_within_5_seconds() {
    let ground = alone();
    ground.simulate_as("two", 1, 2, &["--model", "Two-2"]);
    let space = ground.cluster.namespace("two").unwrap();
    let agent = Agent::start(&ground.cluster, "two-0");
    let leaders =
        ["left", "right"].map(|name| scheduler(&ground, name, &["--no-leader-election", "--binds-at-once", "1"]));
    leaders.iter().for_each(Divvy::start);
    let waves = 6;
    for wave in 0..waves {
        // Eight pods for four places, for both to fall upon at once.
        let pods = (0..8).map(|n| {
            let mut pod = share(&format!("w{wave}-{n}"), 500);
            pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Two-2"});
            pod
        });
        create_all(&space, pods.collect());
        eventually("the places are taken, and nobody is there who was refused", 2 * SOON, || {
            anyhow::ensure!(bound(&space)? >= 4, "{} bound", bound(&space)?);
            anyhow::ensure!(refused_left(&ground.cluster)? == 0);
            Ok(())
        })
        .unwrap();
        space.say(&["delete", "pods", "--all", "--wait=true"]).unwrap();
    }
    // The same on purpose: a bind that another leader decided on an older view arrives when the cards are full. It succeeds.
    let other = space.with_kubeconfig(&ground.cluster.kubeconfig_of(NAMESPACE, CONTROLLER, None).unwrap());
    for n in 0..3 {
        let of_model = |name: String| {
            let mut pod = share(&name, 500);
            pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Two-2"});
            pod
        };
        create_all(&space, (0..4).map(|i| of_model(format!("full{n}-{i}"))).collect());
        let held: Vec<Value> = (0..4).map(|i| wait_bound(&space, &format!("full{n}-{i}"))).collect();
        let late = format!("late{n}");
        space.create(&of_model(late.clone()).to_string()).unwrap();
        wait_unschedulable(&space, &late);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": late, "annotations": {(keys::GRANT): held[0]["metadata"]["annotations"][keys::GRANT]}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "two-0"},
        });
        let path = format!("/api/v1/namespaces/{}/pods/{late}/binding", space.name());
        other.feed(&["create", "--raw", &path, "-f", "-"], &binding.to_string()).unwrap();
        space.wait_gone("pod", &late, SOON).unwrap();
        let said =
            space.say(&["get", "events", "--output=jsonpath={.items[?(@.reason=='GrantRefused')].message}"]).unwrap();
        assert!(said.contains("node two-0 refused its grant: the card is full"), "{said}");
        space.say(&["delete", "pods", "--all", "--wait=true"]).unwrap();
    }
    let (most_started, slowest, refused) = agent.stop();
    println!("{refused} grants refused, the slowest gone after {slowest:?}");
    assert!(refused >= 3, "nothing was refused: the test says too little");
    assert!(most_started <= 1000, "containers started over capacity: {most_started}");
    assert!(slowest <= STARVED * Duration::from_secs(5), "a refused pod was there for {slowest:?}");
}

#[test]
fn what_is_deleted_by_force_or_fails_returns_its_grant_at_once() {
    let ground = alone();
    ground.simulate_as("one", 1, 1, &["--model", "One-1"]);
    let space = ground.cluster.namespace("force").unwrap();
    let divvy = scheduler(&ground, "force", &["--no-leader-election"]);
    divvy.start();
    let only = |mut pod: Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "One-1"});
        pod
    };
    space.create(&only(whole("first", 1)).to_string()).unwrap();
    wait_bound(&space, "first");
    space.create(&only(whole("second", 1)).to_string()).unwrap();
    space.say(&["delete", "pod", "first", "--force", "--grace-period=0"]).unwrap();
    wait_bound(&space, "second");
    // The kubelet fails it, as it does when another scheduler filled the node: the grant is free at once.
    space.create(&only(whole("third", 1)).to_string()).unwrap();
    let failed = json!({"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}});
    space
        .say(&["patch", "pod", "second", "--subresource=status", "--type=merge", "--patch", &failed.to_string()])
        .unwrap();
    wait_bound(&space, "third");
    // A node that vanishes and comes back with the same devices: whoever is bound there still holds them.
    let node = ground.cluster.admin().get("node", "one-0").unwrap();
    ground.cluster.admin().say(&["delete", "node", "one-0"]).unwrap();
    space.create(&only(whole("fourth", 1)).to_string()).unwrap();
    let mut again = node.clone();
    again["metadata"] =
        json!({"name": "one-0", "labels": node["metadata"]["labels"], "annotations": node["metadata"]["annotations"]});
    ground.cluster.simulate_nodes(&[again]).unwrap();
    eventually("the node is known again", SOON, || {
        let pods = space.list("pods")?;
        let held = pods.iter().any(|p| p["metadata"]["name"] == "third" && p["spec"]["nodeName"] == "one-0");
        let waits = pods.iter().any(|p| p["metadata"]["name"] == "fourth" && p["spec"]["nodeName"].is_null());
        // The node lifecycle of this cluster is off, so the pod of a node that went is still there.
        anyhow::ensure!(held && waits);
        Ok(())
    })
    .unwrap();
    assert_within_capacity(&ground.cluster);
}

/// An admission policy of the test's own that refuses every bind to one node.
fn closed(node: &str) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": format!("closed-{node}")},
         "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}]},
            "validations": [{"expression": format!("object.target.name != '{node}'"), "message": "the node is closed"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": format!("closed-{node}")},
         "spec": {"policyName": format!("closed-{node}"), "validationActions": ["Deny"]}},
    ]})
    .to_string()
}

/// Lets a scheduler bind half of a gang of four, and kills it there: two members are bound to `{model}-a`, two are not to `{model}-b`.
fn tear_a_gang<'a>(ground: &'a Ground, model: &str) -> divvy_e2e::Namespace<'a> {
    let (open, shut) = (format!("{model}-a"), format!("{model}-b"));
    ground.simulate_as(&open, 1, 2, &["--model", model]);
    ground.simulate_as(&shut, 1, 2, &["--model", model]);
    ground.cluster.admin().apply(&closed(&format!("{shut}-0"))).unwrap();
    let space = ground.cluster.namespace(model).unwrap();
    space.create(&pod("probe", json!({})).to_string()).unwrap();
    let path = format!("/api/v1/namespaces/{}/pods/probe/binding?dryRun=All", space.name());
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"},
                         "target": {"apiVersion": "v1", "kind": "Node", "name": format!("{shut}-0")}});
    eventually("the node is closed", SOON, || {
        let refused = space.feed(&["create", "--raw", &path, "-f", "-"], &binding.to_string()).err();
        anyhow::ensure!(refused.is_some_and(|error| error.to_string().contains("the node is closed")));
        Ok(())
    })
    .unwrap();
    let members = (0..4).map(|n| {
        let mut pod = whole(&format!("m{n}"), 1);
        pod["metadata"]["annotations"] =
            json!({(keys::GANG): "torn", (keys::GANG_SIZE): "4", (keys::GPU_MODEL): model});
        pod
    });
    create_all(&space, members.collect());
    let divvy = scheduler(ground, &format!("{model}-first"), &["--no-leader-election"]);
    divvy.start();
    eventually("half of the gang is bound", SOON, || {
        anyhow::ensure!(bound(&space)? == 2, "{} bound", bound(&space)?);
        Ok(())
    })
    .unwrap();
    divvy.program.kill().unwrap();
    space
}

#[test]
fn a_gang_whose_scheduler_was_killed_between_two_binds_is_completed() {
    let ground = alone();
    let space = tear_a_gang(&ground, "torn-whole");
    ground.cluster.admin().say(&["delete", "validatingadmissionpolicybinding", "closed-torn-whole-b-0"]).unwrap();
    let divvy = scheduler(&ground, "completes", &["--no-leader-election"]);
    divvy.start();
    eventually("the whole gang is bound", 2 * SOON, || {
        anyhow::ensure!(bound(&space)? == 4, "{} bound", bound(&space)?);
        Ok(())
    })
    .unwrap();
    assert_within_capacity(&ground.cluster);
}

#[test]
fn a_gang_whose_scheduler_was_killed_between_two_binds_and_has_no_room_left_leaves_as_a_whole() {
    let ground = alone();
    let space = tear_a_gang(&ground, "torn-lost");
    ground.cluster.admin().say(&["delete", "node", "torn-lost-b-0"]).unwrap();
    let divvy = scheduler(&ground, "returns", &["--no-leader-election"]);
    divvy.start();
    eventually("nobody holds a device for company that never comes", 2 * SOON, || {
        anyhow::ensure!(bound(&space)? == 0, "{} bound", bound(&space)?);
        Ok(())
    })
    .unwrap();
    let said = space.say(&["get", "events", "--output=jsonpath={.items[*].message}"]).unwrap();
    assert!(said.contains("its gang torn could not be completed: 2 of at least 4 members were bound"), "{said}");
}

#[test]
fn a_hundred_unrelated_events_cause_no_attempt_and_one_relevant_event_causes_one() {
    let ground = alone();
    ground.simulate_as("calm", 1, 1, &["--model", "Calm-1"]);
    let space = ground.cluster.namespace("calm").unwrap();
    let only = |mut pod: Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Calm-1"});
        pod
    };
    let divvy = scheduler(&ground, "calm", &["--no-leader-election"]);
    divvy.start();
    space.create(&only(whole("holds", 1)).to_string()).unwrap();
    wait_bound(&space, "holds");
    space.create(&only(whole("waits", 1)).to_string()).unwrap();
    wait_unschedulable(&space, "waits");
    let before = divvy.metric("divvy_attempts_total");
    // Fifty pods of somebody else come to another node, start, and go: three events each.
    let others = (0..50).map(|n| {
        let mut pod = pod(&format!("other-{n}"), json!({"cpu": "10m"}));
        pod["metadata"]["labels"] = json!({"whose": "others"});
        pod["spec"]["nodeName"] = json!("f-0");
        pod
    });
    create_all(&space, others.collect());
    space.say(&["delete", "pods", "--selector=whose=others", "--force", "--grace-period=0"]).unwrap();
    // Seen by the scheduler, too: a pod that comes after all of it is bound.
    space.create(&share("after", 100).to_string()).unwrap();
    wait_bound(&space, "after");
    assert_eq!(divvy.metric("divvy_attempts_total"), before + 1.0, "only the pod that came after was tried");
    space.say(&["delete", "pod", "holds"]).unwrap();
    wait_bound(&space, "waits");
    assert_eq!(divvy.metric("divvy_attempts_total"), before + 2.0);
}

#[test]
fn ks_02_to_07_a_pod_that_came_past_admission_waits_with_the_words_admission_would_have_used() {
    let ground = alone();
    let (admin, space) = (ground.cluster.admin(), ground.cluster.namespace("bypass").unwrap());
    ground.divvy.program.kill().unwrap();
    // Its own registration it fills in again when it is back; it may not make one.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        admin.say(&["patch", kind, "divvy", "--type=merge", "--patch", r#"{"webhooks":null}"#]).unwrap();
    }
    let cases = [
        ("ks-02", vec![(keys::KUBESHARE_REQUEST, "0.5"), (keys::KUBESHARE_LIMIT, "0.3")], keys::KUBESHARE_REQUEST),
        ("ks-03", vec![(keys::KUBESHARE_REQUEST, "2"), (keys::KUBESHARE_LIMIT, "2.5")], keys::KUBESHARE_LIMIT),
        ("ks-04", vec![(keys::KUBESHARE_REQUEST, "1.0"), (keys::KUBESHARE_LIMIT, "2.0")], keys::KUBESHARE_LIMIT),
        (
            "ks-06",
            vec![(keys::KUBESHARE_REQUEST, "0.5"), (keys::KUBESHARE_LIMIT, "1.0"), (keys::KUBESHARE_MEMORY, "1Gi")],
            keys::KUBESHARE_MEMORY,
        ),
        (
            "ks-07",
            vec![(keys::KUBESHARE_REQUEST, "0.5"), (keys::KUBESHARE_LIMIT, "1.0"), (keys::KUBESHARE_PRIORITY, "101")],
            keys::KUBESHARE_PRIORITY,
        ),
    ];
    let of = |name: &str, labels: &[(&str, &str)]| {
        let mut pod = pod(name, json!({}));
        pod["metadata"]["labels"] = labels.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        pod["spec"]["schedulerName"] = json!("kubeshare-scheduler");
        pod
    };
    create_all(&space, cases.iter().map(|(name, labels, _)| of(name, labels)).collect());
    let divvy = scheduler(&ground, "bypass", &["--no-leader-election"]);
    divvy.start();
    let told: Vec<String> = cases.iter().map(|(name, ..)| wait_unschedulable(&space, name)).collect();
    assert_eq!(bound(&space).unwrap(), 0);
    // The same pods through admission: refused with the same sentence.
    ground.divvy.start();
    for ((name, labels, label), told) in cases.iter().zip(told) {
        assert!(told.contains(label), "{name}: {told}");
        let error = space.create(&of(&format!("{name}-again"), labels).to_string()).unwrap_err().to_string();
        let sentence = error.split_once("denied the request: ").map_or(error.as_str(), |(_, sentence)| sentence).trim();
        assert!(told.contains(sentence), "{name}: the event says {told:?}, admission says {sentence:?}");
    }
}

#[test]
fn the_webhooks_authority_is_replaced_and_trusted_without_a_restart() {
    let ground = alone();
    let (admin, space) = (ground.cluster.admin(), ground.cluster.namespace("rotate").unwrap());
    let bundle = || -> anyhow::Result<String> {
        let object = admin.get("mutatingwebhookconfiguration", "divvy")?;
        Ok(object["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned())
    };
    let before = bundle().unwrap();
    let system = admin.in_namespace("divvy-system");
    system.say(&["delete", "secret", "divvy-webhook-authority"]).unwrap();
    eventually("another authority is trusted, and the webhook shows a certificate of its", SOON, || {
        anyhow::ensure!(bundle()? != before, "still the old one");
        space.say(&["delete", "pod", "rotated", "--ignore-not-found", "--force", "--grace-period=0"])?;
        space.create(&share("rotated", 100).to_string())?;
        Ok(())
    })
    .unwrap();
    // Somebody breaks the registration: it is put right.
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": before}]).to_string();
    admin.say(&["patch", "mutatingwebhookconfiguration", "divvy", "--type=json", "--patch", &patch]).unwrap();
    eventually("the registration is put right", SOON, || {
        anyhow::ensure!(bundle()? != before);
        space.create(&share("mended", 100).to_string())?;
        Ok(())
    })
    .unwrap();
    ground.divvy.program.must_run().unwrap();
}

#[test]
fn a_certificate_kept_by_somebody_else_is_shown_and_read_again_when_it_is_replaced() {
    let ground = alone();
    let (admin, space) = (ground.cluster.admin(), ground.cluster.namespace("files").unwrap());
    let folder = ground.cluster.folder().join("given");
    // Signs a new certificate with a new authority and has it trusted, as cert-manager and its injector do.
    let issue = |round: u32| {
        let authority = Authority::create(&folder.join(round.to_string())).unwrap();
        let pair = authority.sign("tls", "divvy-webhook", None, &["127.0.0.1".to_owned()]).unwrap();
        std::fs::copy(&pair.certificate, folder.join("tls.crt")).unwrap();
        std::fs::copy(&pair.key, folder.join("tls.key")).unwrap();
        authority.bundle()
    };
    let inject = |bundle: &str| {
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            let patch =
                json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]).to_string();
            admin.say(&["patch", kind, "divvy", "--type=json", "--patch", &patch]).unwrap();
        }
    };
    ground.divvy.program.stop().unwrap();
    let first = issue(1);
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let flags = ["--webhook-certificate", certificate.to_str().unwrap(), "--webhook-key", key.to_str().unwrap()];
    let divvy = Divvy::new(&ground.cluster, "given", "webhook", &flags);
    divvy.start();
    let mut made = 0;
    let mut admitted = |what: &str| {
        eventually(what, SOON, || {
            made += 1;
            space.create(&share(&format!("p{made}"), 100).to_string())
        })
        .unwrap();
    };
    inject(&first);
    admitted("the given certificate is shown");
    let second = issue(2);
    assert_ne!(first, second);
    inject(&second);
    admitted("the next one is shown without a restart");
    // Divvy keeps its registration current and leaves the trust to whoever keeps the certificate.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let object = admin.get(kind, "divvy").unwrap();
        assert_eq!(object["webhooks"][0]["clientConfig"]["caBundle"], json!(second));
    }
    divvy.program.must_run().unwrap();
    divvy.program.stop().unwrap();
    ground.divvy.start();
    admitted("its own certificate is trusted again");
}

//! An unmodified kube-scheduler that asks Divvy's extender, with the configuration that is delivered for it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/ground.rs"]
mod ground;
#[path = "control_plane/routes.rs"]
mod routes;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use divvy_core::keys;
use divvy_e2e::{Options, Scheduler};
use ground::{Divvy, Ground, SOON, devices, file, free_ports, grant, pod, share, wait_bound, whole};
use serde_json::{Value, json};

/// Two nodes of two GPUs called `x-*`; pods keep their scheduler's name, and kube-scheduler places them. It asks a replica that does
/// not lead: any answers, and a bind is handed on to the one that does.
static EXTENDED: LazyLock<Ground> = LazyLock::new(|| {
    let [leader, follower] = free_ports();
    let text = std::fs::read_to_string(file("deploy/kube-scheduler.yaml")).unwrap();
    let mut configuration: Value = serde_saphyr::from_str(&text).unwrap();
    configuration["extenders"][0]["urlPrefix"] = json!(format!("http://127.0.0.1:{follower}/divvy"));
    let options = Options { scheduler: Scheduler::Configured(configuration), ..Options::control_plane() };
    let listen = format!("127.0.0.1:{leader}");
    let mut ground =
        Ground::start(options, "controller", &["--extender-listen", &listen, "--kube-scheduler", "default-scheduler"]);
    divvy_e2e::eventually("it leads", SOON, || {
        anyhow::ensure!(ground.divvy.metric("divvy_leading") == 1.0);
        Ok(())
    })
    .unwrap();
    let listen = format!("127.0.0.1:{follower}");
    let second = Divvy::new(&ground.cluster, "follower", "scheduler", &["--extender-listen", &listen]);
    second.start();
    ground.more.push(second);
    ground.simulate("x", 2, 2);
    ground
});

#[test]
fn a_pod_is_bound_by_the_extender_with_its_grant() {
    let space = EXTENDED.cluster.namespace("extended").unwrap();
    space.create(&share("half", 500).to_string()).unwrap();
    let bound = wait_bound(&space, "half");
    assert_eq!(bound["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(grant(&bound).containers[0].slices[0].share.0, 500);
    let [follower] = &EXTENDED.more[..] else { panic!("one replica follows") };
    assert_eq!((EXTENDED.divvy.metric("divvy_leading"), follower.metric("divvy_leading")), (1.0, 0.0));
    assert_eq!(follower.metric("divvy_decisions_total{outcome=\"bound\"}"), 0.0);
    // A pod without devices is none of the extender's business.
    space.create(&pod("plain", json!({"cpu": "100m"})).to_string()).unwrap();
    let plain = wait_bound(&space, "plain");
    assert!(plain["metadata"].get("annotations").is_none());
}

#[test]
fn many_pods_through_kube_scheduler_over_commit_no_device() {
    let space = EXTENDED.cluster.namespace("many").unwrap();
    for n in 0..12 {
        space.create(&share(&format!("p{n}"), 300).to_string()).unwrap();
    }
    let bound = divvy_e2e::eventually("as many pods are bound as fit", SOON, || {
        let pods = space.list("pods")?;
        let bound: Vec<Value> = pods.into_iter().filter(|p| p["spec"]["nodeName"].is_string()).collect();
        // Others of this cluster's tests may hold a card.
        anyhow::ensure!(bound.len() >= 6, "{} bound", bound.len());
        Ok(bound)
    })
    .unwrap();
    let mut held: BTreeMap<String, u32> = BTreeMap::new();
    for pod in &bound {
        for slice in grant(pod).containers.iter().flat_map(|c| &c.slices) {
            *held.entry(slice.device.to_string()).or_default() += slice.share.0;
        }
    }
    assert!(held.values().all(|share| *share <= 1000), "{held:?}");
}

#[test]
fn a_gang_waits_behind_its_gate_until_all_of_it_fits() {
    let space = EXTENDED.cluster.namespace("gang").unwrap();
    EXTENDED.simulate_as("gang", 1, 4, &["--model", "Gang-4"]);
    let member = |name: &str, gang: &str, size: u32| {
        let mut pod = whole(name, 1);
        pod["metadata"]["annotations"] = json!({
            (keys::GANG): gang, (keys::GANG_SIZE): size.to_string(), (keys::GPU_MODEL): "Gang-4"});
        pod
    };
    // Five members for four cards: none starts.
    for n in 0..5 {
        space.create(&member(&format!("five-{n}"), "five", 5).to_string()).unwrap();
    }
    // Three for four: all start, though the five came first.
    for n in 0..3 {
        space.create(&member(&format!("three-{n}"), "three", 3).to_string()).unwrap();
    }
    let mut taken = Vec::new();
    for n in 0..3 {
        taken.extend(devices(&grant(&wait_bound(&space, &format!("three-{n}")))));
    }
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 3);
    for pod in space.list("pods").unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if name.starts_with("five-") {
            assert!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": keys::GANG_GATE}]), "{name}");
        }
    }
}

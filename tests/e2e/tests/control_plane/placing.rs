//! Pods that are placed, wait, make room, and go.

use divvy_core::keys;
use divvy_e2e::eventually;
use serde_json::json;

use crate::ground::{SHARED, SOON, devices, grant, share, wait_bound, wait_unschedulable, whole};

#[test]
fn a_pod_is_bound_with_its_grant_in_one_write() {
    let space = SHARED.cluster.namespace("bound").unwrap();
    space.create(&share("half", 500).to_string()).unwrap();
    // The first version of the pod that has a node has the grant as well.
    let bound = wait_bound(&space, "half");
    let granted = grant(&bound);
    assert_eq!(granted.containers[0].slices[0].share.0, 500);
    let node = bound["spec"]["nodeName"].as_str().unwrap();
    assert!(devices(&granted)[0].starts_with(&format!("GPU-{node}-")));
    let event = eventually("the event is there", SOON, || {
        let said = space.say(&["get", "events", "--output=jsonpath={.items[*].message}"])?;
        anyhow::ensure!(said.contains("Successfully assigned"));
        Ok(said)
    });
    assert!(event.unwrap().contains(node));
}

#[test]
fn a_pod_that_fits_nowhere_says_why_in_event_and_condition_and_runs_when_there_is_room() {
    SHARED.simulate_as("tiny", 1, 1, &["--model", "Tiny-1"]);
    let space = SHARED.cluster.namespace("waits").unwrap();
    let only_tiny = |mut pod: serde_json::Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Tiny-1"});
        pod
    };
    space.create(&only_tiny(whole("first", 1)).to_string()).unwrap();
    wait_bound(&space, "first");
    space.create(&only_tiny(share("second", 100)).to_string()).unwrap();
    let message = wait_unschedulable(&space, "second");
    assert!(message.contains("nodes fit"), "{message}");
    eventually("the event says the same", SOON, || {
        let said = space.say(&["get", "events", "--output=jsonpath={.items[*].message}"])?;
        anyhow::ensure!(said.contains(&message), "{said}");
        Ok(())
    })
    .unwrap();
    space.say(&["delete", "pod", "first", "--wait=false"]).unwrap();
    let bound = wait_bound(&space, "second");
    assert_eq!(devices(&grant(&bound)), ["GPU-tiny-0-0"]);
}

#[test]
fn a_gang_starts_when_all_of_it_fits_and_not_before() {
    SHARED.simulate_as("all", 1, 4, &["--model", "All-4"]);
    let space = SHARED.cluster.namespace("all").unwrap();
    let member = |name: &str| {
        let mut pod = whole(name, 1);
        pod["metadata"]["annotations"] =
            json!({(keys::GANG): "all", (keys::GANG_SIZE): "4", (keys::GPU_MODEL): "All-4"});
        pod
    };
    let mut blocker = share("blocker", 100);
    blocker["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "All-4"});
    space.create(&blocker.to_string()).unwrap();
    wait_bound(&space, "blocker");
    for n in 0..4 {
        space.create(&member(&format!("m{n}")).to_string()).unwrap();
    }
    for n in 0..4 {
        wait_unschedulable(&space, &format!("m{n}"));
    }
    assert_eq!(space.list("pods").unwrap().iter().filter(|p| p["spec"]["nodeName"].is_string()).count(), 1);
    space.say(&["delete", "pod", "blocker", "--wait=false"]).unwrap();
    let mut held: Vec<String> = (0..4).flat_map(|n| devices(&grant(&wait_bound(&space, &format!("m{n}"))))).collect();
    held.sort();
    assert_eq!(held, ["GPU-all-0-0", "GPU-all-0-1", "GPU-all-0-2", "GPU-all-0-3"]);
}

#[test]
fn ks_17_a_successor_in_a_gang_does_not_wait_for_members_that_ended_well() {
    SHARED.simulate_as("again", 1, 2, &["--model", "Again-2"]);
    let space = SHARED.cluster.namespace("again").unwrap();
    let member = |name: &str| {
        let mut pod = whole(name, 1);
        pod["metadata"]["annotations"] =
            json!({(keys::GANG): "again", (keys::GANG_SIZE): "2", (keys::GPU_MODEL): "Again-2"});
        pod
    };
    let ends = |name: &str, phase: &str| {
        let status = json!({"status": {"phase": phase}}).to_string();
        space.say(&["patch", "pod", name, "--subresource=status", "--type=merge", "--patch", &status]).unwrap();
    };
    for name in ["m0", "m1"] {
        space.create(&member(name).to_string()).unwrap();
    }
    ["m0", "m1"].iter().for_each(|name| drop(wait_bound(&space, name)));
    ends("m1", "Failed");
    space.create(&member("m1-again").to_string()).unwrap();
    wait_bound(&space, "m1-again");
    ends("m1-again", "Failed");
    ends("m0", "Succeeded");
    space.create(&member("m1-once-more").to_string()).unwrap();
    wait_bound(&space, "m1-once-more");
    // Those that failed have done nothing.
    ends("m1-once-more", "Failed");
    space.say(&["delete", "pod", "m0", "--wait=false"]).unwrap();
    space.create(&member("m1-alone").to_string()).unwrap();
    let message = wait_unschedulable(&space, "m1-alone");
    assert!(message.contains("has 1 of 2 members"), "{message}");
}

#[test]
fn a_terminating_pod_holds_its_device_until_its_containers_are_gone() {
    SHARED.simulate_as("slow", 1, 1, &["--model", "Slow-1"]);
    let space = SHARED.cluster.namespace("slow").unwrap();
    let only = |mut pod: serde_json::Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Slow-1"});
        pod
    };
    // A finalizer keeps the object, as containers that take their time do.
    let mut leaving = only(whole("leaving", 1));
    leaving["metadata"]["finalizers"] = json!(["divvy.test/wait"]);
    space.create(&leaving.to_string()).unwrap();
    wait_bound(&space, "leaving");
    space.say(&["delete", "pod", "leaving", "--wait=false"]).unwrap();
    space.create(&only(whole("next", 1)).to_string()).unwrap();
    wait_unschedulable(&space, "next");
    let free = json!({"metadata": {"finalizers": null}}).to_string();
    space.say(&["patch", "pod", "leaving", "--type=merge", "--patch", &free]).unwrap();
    wait_bound(&space, "next");
}

#[test]
fn a_pod_with_a_guarantee_has_an_opportunistic_one_evicted_as_soon_as_no_disruption_budget_keeps_it() {
    SHARED.simulate_as("pre", 1, 1, &["--model", "Pre-1"]);
    let space = SHARED.cluster.namespace("preempt").unwrap();
    let of_class = |class: &str, mut pod: serde_json::Value| {
        pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Pre-1", (keys::CLASS): class});
        pod["metadata"]["labels"] = json!({"app": class});
        pod
    };
    space.create(&of_class("opportunistic", whole("lesser", 1)).to_string()).unwrap();
    wait_bound(&space, "lesser");
    // A pod that does not run yet may be evicted whatever its budget says.
    space.wait("pod", "lesser", SOON, |pod| pod["status"]["phase"] == "Running").unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "opportunistic"}}},
    });
    space.create(&budget.to_string()).unwrap();
    space.wait("poddisruptionbudget", "keep", SOON, |b| b["status"]["observedGeneration"].is_number()).unwrap();
    space.create(&of_class("guarantee", whole("greater", 1)).to_string()).unwrap();
    wait_unschedulable(&space, "greater");
    assert!(space.get("pod", "lesser").unwrap()["metadata"]["deletionTimestamp"].is_null());
    space.say(&["delete", "poddisruptionbudget", "keep"]).unwrap();
    let bound = wait_bound(&space, "greater");
    assert_eq!(devices(&grant(&bound)), ["GPU-pre-0-0"]);
    space.wait_gone("pod", "lesser", SOON).unwrap();
    eventually("the event says why", SOON, || {
        let only = "--output=jsonpath={.items[?(@.reason=='Preempted')].message}";
        let said = space.say(&["get", "events", only])?;
        anyhow::ensure!(said.contains("making room for") && said.contains("greater"), "{said}");
        Ok(())
    })
    .unwrap();
}

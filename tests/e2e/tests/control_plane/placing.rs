//! Pods that are placed, wait, make room, and go.

use divvy_core::keys;
use divvy_e2e::eventually;
use serde_json::json;

use crate::ground::{SHARED, SOON, devices, grant, share, wait_bound, whole};

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
    let waiting = space
        .wait("pod", "second", SOON, |pod| {
            pod["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "PodScheduled" && c["status"] == "False")
        })
        .unwrap();
    let condition = &waiting["status"]["conditions"][0];
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("nodes fit"), "{message}");
    assert_eq!(condition["reason"], "Unschedulable");
    space.say(&["delete", "pod", "first", "--wait=false"]).unwrap();
    let bound = wait_bound(&space, "second");
    assert_eq!(devices(&grant(&bound)), ["GPU-tiny-0-0"]);
}

//! The harness itself: what every other end-to-end test builds on.

use std::time::Duration;

use divvy_e2e::{BUSYBOX, Cluster, Options};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_plain_pod_runs_on_the_real_kubelet() {
    let cluster = Cluster::start(Options::with_node()).unwrap();
    let kubectl = cluster.admin().in_namespace("default");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "echo hello; sleep 3600"]}]},
    });
    kubectl.apply(&pod.to_string()).unwrap();
    kubectl.wait_phase("plain", "Running", SOON).unwrap();
    assert_eq!(kubectl.say(&["logs", "plain"]).unwrap().trim(), "hello");
    assert_eq!(kubectl.say(&["exec", "plain", "--", "cat", "/proc/1/comm"]).unwrap().trim(), "sleep");
}

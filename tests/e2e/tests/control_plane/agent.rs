//! As much of a node's agent as two leaders need to be kept in check: it takes grants first come first served, starts containers
//! only where there is room, and says whom it refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use divvy_core::grant::Grant;
use divvy_core::keys;
use divvy_e2e::{Cluster, Kubectl};
use serde_json::{Value, json};

/// The agent of one node.
pub(crate) struct Agent {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Kept>,
}

/// What it saw.
#[derive(Default)]
struct Kept {
    /// The most that ever ran on one device, in thousandths.
    most: u32,
    /// The longest a refused pod was there after the node said so.
    slowest: Duration,
    refused: usize,
}

impl Agent {
    pub(crate) fn start(cluster: &Cluster, node: &str) -> Agent {
        let stop = Arc::new(AtomicBool::new(false));
        let (kubectl, node, flag) = (cluster.admin().clone(), node.to_owned(), stop.clone());
        Agent { stop, thread: std::thread::spawn(move || work(&kubectl, &node, &flag)) }
    }

    /// The most that ran on one device, the longest a refused pod was there, and how many were refused.
    pub(crate) fn stop(self) -> (u32, Duration, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let kept = self.thread.join().unwrap();
        (kept.most, kept.slowest, kept.refused)
    }
}

fn work(kubectl: &Kubectl, node: &str, stop: &AtomicBool) -> Kept {
    let mut running: BTreeMap<String, Vec<(String, u32)>> = BTreeMap::new();
    let mut refused: BTreeMap<String, Instant> = BTreeMap::new();
    let mut kept = Kept::default();
    let mut generation = 1;
    while !stop.load(Ordering::Relaxed) {
        let selector = format!("--field-selector=spec.nodeName={node}");
        let Ok(text) = kubectl.say(&["get", "pods", "--all-namespaces", &selector, "--output=json"]) else { continue };
        let list: Value = serde_json::from_str(&text).unwrap();
        let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let there: BTreeSet<String> = pods.iter().map(|p| uid(p)).collect();
        running.retain(|pod, _| there.contains(pod));
        let gone: Vec<String> = refused.keys().filter(|pod| !there.contains(*pod)).cloned().collect();
        let mut changed = !gone.is_empty();
        for pod in gone {
            kept.slowest = kept.slowest.max(refused.remove(&pod).map(|at| at.elapsed()).unwrap_or_default());
        }
        for pod in pods {
            let uid = uid(pod);
            if running.contains_key(&uid)
                || refused.contains_key(&uid)
                || pod["metadata"]["deletionTimestamp"].is_string()
            {
                continue;
            }
            let Some(grant) = pod["metadata"]["annotations"][keys::GRANT].as_str() else { continue };
            let grant: Grant = serde_json::from_str(grant).unwrap();
            let wanted: Vec<(String, u32)> =
                grant.containers.iter().flat_map(|c| &c.slices).map(|s| (s.device.to_string(), s.share.0)).collect();
            let held = |device: &str| -> u32 {
                running.values().flatten().filter(|(d, _)| d == device).map(|(_, share)| share).sum()
            };
            if wanted.iter().all(|(device, share)| held(device) + share <= 1000) {
                kept.most = kept.most.max(wanted.iter().map(|(device, share)| held(device) + share).max().unwrap_or(0));
                running.insert(uid, wanted);
            } else {
                refused.insert(uid, Instant::now());
                kept.refused += 1;
                changed = true;
            }
        }
        if changed {
            generation += 1;
            publish(kubectl, node, generation, &refused);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    kept
}

/// Writes whom the node refused into its inventory.
fn publish(kubectl: &Kubectl, node: &str, generation: u64, refused: &BTreeMap<String, Instant>) {
    let object = kubectl.get("node", node).unwrap();
    let mut inventory: Value =
        serde_json::from_str(object["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap()).unwrap();
    let reasons: BTreeMap<&String, &str> = refused.keys().map(|uid| (uid, "the card is full")).collect();
    inventory["refused"] = json!(reasons);
    inventory["generation"] = json!(generation);
    let patch = json!({"metadata": {"annotations": {(keys::INVENTORY): inventory.to_string()}}});
    kubectl.say(&["patch", "node", node, "--type=merge", "--patch", &patch.to_string()]).unwrap();
}

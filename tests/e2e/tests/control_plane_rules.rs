//! The ordinary Kubernetes rules, compared with the real kube-scheduler: for random nodes and pods, the nodes our filter allows are
//! exactly those that kube-scheduler hands to an extender.
//!
//! kube-scheduler runs with an extender (in this program) that is asked about every pod, writes down the nodes it was offered and
//! accepts none, so that nothing ever changes. `percentageOfNodesToScore: 100` makes it look at every node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/cases.rs"]
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use divvy_api::{convert, wire};
use divvy_core::id;
use divvy_core::rules::{Rules, standing};
use divvy_core::snapshot::Snapshot;
use divvy_e2e::{Cluster, Namespace, Options, Scheduler, eventually};
use serde_json::{Value, json};

const ROUNDS: u64 = 6;
const PODS: usize = 90;
/// How often kube-scheduler is asked again about pods on which it and we differ.
const AGAIN: usize = 3;

/// Pod to the nodes kube-scheduler offered.
type Offers = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// An extender that writes down what it is offered and accepts nothing.
fn extender() -> (u16, Offers) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let offers = Offers::default();
    let shared = offers.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let offers = shared.clone();
            std::thread::spawn(move || serve(stream, &offers));
        }
    });
    (port, offers)
}

fn serve(stream: TcpStream, offers: &Offers) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut length = 0usize;
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let args: Value = serde_json::from_slice(&body).unwrap();
        let pod = args["Pod"]["metadata"]["name"].as_str().unwrap().to_owned();
        let nodes: BTreeSet<String> =
            args["NodeNames"].as_array().into_iter().flatten().map(|n| n.as_str().unwrap().to_owned()).collect();
        let failed: BTreeMap<&String, &str> = nodes.iter().map(|node| (node, "only asking")).collect();
        let reply = json!({"NodeNames": [], "FailedAndUnresolvableNodes": failed}).to_string();
        offers.lock().unwrap().entry(pod).or_insert(nodes);
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", reply.len());
        if writer.write_all((head + &reply).as_bytes()).is_err() {
            return;
        }
    }
}

/// What our rules allow each waiting pod, from the same objects.
fn allowed(cluster: &Cluster) -> BTreeMap<String, Result<BTreeSet<String>, String>> {
    let list = |kind: &str| -> Vec<Value> {
        let text = cluster.admin().say(&["get", kind, "--all-namespaces", "--output=json"]).unwrap();
        let mut list: Value = serde_json::from_str(&text).unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    };
    let mut snapshot = Snapshot::new();
    let limits: BTreeMap<String, _> = list("csinodes")
        .into_iter()
        .map(|v| serde_json::from_value::<wire::CsiNode>(v).unwrap())
        .map(|node| (node.metadata.name.clone(), convert::volume_limits(&node)))
        .collect();
    for node in list("nodes") {
        let (mut node, _) = convert::node(serde_json::from_value(node).unwrap());
        node.volume_limits = limits.get(node.name.as_str()).cloned().unwrap_or_default();
        snapshot.put_node(node);
    }
    let surroundings = snapshot.surroundings_mut();
    for namespace in list("namespaces") {
        let meta: wire::NamespaceObject = serde_json::from_value(namespace).unwrap();
        let labels = meta.metadata.labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        surroundings.namespaces.insert(id::Namespace::from(meta.metadata.name), labels);
    }
    for claim in list("persistentvolumeclaims") {
        let claim = convert::claim(serde_json::from_value(claim).unwrap());
        surroundings.claims.insert(claim.key.clone(), claim);
    }
    for volume in list("persistentvolumes") {
        let volume = convert::volume(serde_json::from_value(volume).unwrap());
        surroundings.volumes.insert(volume.name.clone(), volume);
    }
    for class in list("storageclasses") {
        let class = convert::storage_class(serde_json::from_value(class).unwrap(), false);
        surroundings.classes.insert(class.name.clone(), class);
    }
    let mut waiting = Vec::new();
    for pod in list("pods") {
        let pod: wire::Pod = serde_json::from_value(pod).unwrap();
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            continue;
        }
        let pod = convert::pod(pod, |_| false).pod;
        if pod.bound().is_none() {
            waiting.push(pod.uid.clone());
        }
        snapshot.put_pod(pod);
    }
    waiting
        .into_iter()
        .map(|uid| {
            let ix = snapshot.find_pod(&uid).unwrap();
            let pod = snapshot.pod_at(ix).unwrap().pod();
            let name = pod.key.name.to_string();
            if let Some(reason) = standing(pod) {
                return (name, Err(reason.to_string()));
            }
            let rules = Rules::of(&snapshot, ix, pod);
            let fit = snapshot.nodes().filter(|(_, state)| rules.check(state).is_ok());
            (name, Ok(fit.map(|(_, state)| state.node().name.to_string()).collect()))
        })
        .collect()
}

/// A pod about which we and kube-scheduler disagree.
struct Difference {
    pod: String,
    theirs: BTreeSet<String>,
    ours: Result<BTreeSet<String>, String>,
}

/// Waits until each pod was offered some nodes, or was told that there is none.
fn looked_at(space: &Namespace, names: &[String]) {
    eventually("every pod was looked at", Duration::from_secs(120), || {
        let told: BTreeSet<String> = space
            .list("pods")?
            .iter()
            .filter(|p| p["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "PodScheduled"))
            .map(|p| p["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        let missing: Vec<&String> = names.iter().filter(|n| !told.contains(*n)).collect();
        anyhow::ensure!(missing.is_empty(), "{} pods were not looked at yet", missing.len());
        Ok(())
    })
    .unwrap();
}

fn differences(cluster: &Cluster, offers: &Offers, names: Vec<String>) -> Vec<Difference> {
    let mut ours = allowed(cluster);
    let offers = offers.lock().unwrap();
    names
        .into_iter()
        .filter_map(|pod| {
            let theirs = offers.get(&pod).cloned().unwrap_or_default();
            match ours.remove(&pod).unwrap() {
                Ok(fit) if fit == theirs => None,
                // What is not done is refused by name, never ignored.
                Err(reason) if reason.contains("not supported") => None,
                ours => Some(Difference { pod, theirs, ours }),
            }
        })
        .collect()
}

#[test]
fn our_filter_allows_exactly_the_nodes_that_kube_scheduler_allows() {
    let (port, offers) = extender();
    let configuration = json!({
        "percentageOfNodesToScore": 100,
        "clientConnection": {"qps": 1000, "burst": 1000},
        "extenders": [{"urlPrefix": format!("http://127.0.0.1:{port}"), "filterVerb": "filter", "nodeCacheCapable": true}],
    });
    let options = Options { scheduler: Scheduler::Configured(configuration), ..Options::control_plane() };
    let cluster = Cluster::start(options).unwrap();
    let mut compared = 0;
    let mut mixed = 0;
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        let space = cluster.namespace(&format!("rules-{round}")).unwrap();
        let case = cases::Case::make(round, space.name(), PODS);
        cluster
            .admin()
            .create(&json!({"apiVersion": "v1", "kind": "List", "items": case.surroundings}).to_string())
            .unwrap();
        for n in 0..4 {
            // Bound by the volume controller, a moment later.
            let bound = |claim: &Value| claim["status"]["phase"] == "Bound";
            space
                .wait("persistentvolumeclaim", &format!("r{round}-bound-{n}"), Duration::from_secs(60), bound)
                .unwrap();
        }
        space.create(&json!({"apiVersion": "v1", "kind": "List", "items": case.pods}).to_string()).unwrap();
        let names: Vec<String> = case
            .pods
            .iter()
            .filter(|p| p["spec"]["nodeName"].is_null())
            .map(|p| p["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        looked_at(&space, &names);
        let nodes = case.surroundings.iter().filter(|o| o["kind"] == "Node").count();
        compared += names.len();
        mixed += names.iter().filter(|n| offers.lock().unwrap().get(*n).is_some_and(|o| o.len() < nodes)).count();
        let mut differ = differences(&cluster, &offers, names);
        for _ in 0..AGAIN {
            // Objects of different kinds reach kube-scheduler in any order, and what it said before it knew them all says nothing: it is
            // asked again.
            let again: Vec<String> = differ.iter().map(|d| d.pod.clone()).collect();
            if again.is_empty() {
                break;
            }
            for name in &again {
                space.say(&["delete", "pod", name, "--grace-period=0", "--force", "--wait=true"]).unwrap();
                offers.lock().unwrap().remove(name);
                let pod = case.pods.iter().find(|p| p["metadata"]["name"] == name.as_str()).unwrap();
                space.create(&pod.to_string()).unwrap();
            }
            looked_at(&space, &again);
            differ = differences(&cluster, &offers, again);
        }
        for Difference { pod, theirs, ours } in differ {
            let spec = &case.pods.iter().find(|p| p["metadata"]["name"] == pod.as_str()).unwrap()["spec"];
            wrong.push(format!("{pod}: kube-scheduler allows {theirs:?}, we allow {ours:?}: {spec}"));
        }
        println!("round {round}: {compared} compared, {} differ", wrong.len());
        offers.lock().unwrap().clear();
        space.say(&["delete", "pods", "--all", "--grace-period=0", "--force", "--wait=true"]).unwrap();
        cluster.admin().say(&["delete", "nodes", "--all"]).unwrap();
        cluster.admin().say(&["delete", "csinodes", "--all"]).unwrap();
    }
    println!("{compared} pods compared, {mixed} of them with some nodes allowed and some not");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
    assert!(compared >= 500 && mixed >= compared / 3, "{compared} compared, {mixed} mixed: the cases say too little");
}

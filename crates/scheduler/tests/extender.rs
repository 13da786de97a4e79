//! Requests as other schedulers send them and the answers they get, replayed from files: one file per route's owner.
//!
//! A file has the cluster's nodes and a list of steps. A pod in a request is written as its user writes it; what the webhook adds is
//! added here. `"*"` in an expected answer stands for anything.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "extender/same.rs"]
mod same;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use divvy_api::reader::PodReader;
use divvy_api::{convert, wire};
use divvy_cluster::effect::{Effect, Effects, Failure, Target};
use divvy_cluster::lease::Standing;
use divvy_cluster::{Change, Kind};
use divvy_core::keys;
use divvy_dialects::{DialectConfig, PodManifest, Reading, parse};
use divvy_scheduler::extender::{self, Manner};
use divvy_scheduler::metrics::Metrics;
use divvy_scheduler::run::{Options, Scheduler, always_leading, channel};
use divvy_service::{Health, Tasks};
use prometheus_client::registry::Registry;
use same::same;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

/// Does everything at once and remembers it.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Effect>>>);

impl Effects for Recorder {
    async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        self.0.lock().unwrap().push(effect.clone());
        Ok(())
    }

    async fn look(&self, _: &Target) -> Result<Option<wire::Pod>, Failure> {
        Ok(None)
    }
}

/// A scheduler behind routes, on nodes from a file.
struct Bench {
    routes: Router,
    /// What the API server shows.
    watch: mpsc::Sender<Change>,
    recorder: Recorder,
    tasks: Tasks,
}

async fn start(nodes: &[Value], standing: watch::Receiver<Standing>) -> Bench {
    let (to, changes, relist) = channel();
    let watch = to.clone();
    let (ask, questions) = mpsc::channel(8);
    let recorder = Recorder::default();
    let reader = PodReader::default();
    let manner = Manner { inspect: true, ..Manner::default() };
    let routes = extender::routes(ask, reader.clone(), standing.clone(), manner);
    let scheduler = Scheduler {
        options: Options::default(),
        effects: recorder.clone(),
        changes,
        relist,
        reader,
        questions,
        memory: divvy_scheduler::memory::Memory::none(),
        standing,
        metrics: Metrics::register(&mut Registry::default()),
        health: Health::new(),
    };
    // Named before the loop starts, which names it, too: from here on it is not ready until it is.
    let ready = scheduler.health.clone();
    ready.condition("caches filled");
    let nodes: Vec<Value> = nodes.to_vec();
    let mut tasks = Tasks::new();
    let stop = tasks.stop();
    tasks.add("scheduler", scheduler.run(stop.clone()));
    tasks.add("nodes", async move {
        for node in nodes {
            let (node, problem) = convert::node(serde_json::from_value::<wire::Node>(object(&node))?);
            assert_eq!(problem, None);
            to.send(Change::Node(Box::new(node), None)).await?;
        }
        for kind in Kind::ALL {
            to.send(Change::Complete(kind, 1)).await?;
        }
        stop.requested().await;
        Ok(())
    });
    tokio::time::timeout(Duration::from_secs(10), async {
        while !ready.unready().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    Bench { routes, watch, recorder, tasks }
}

/// `{"name": "n1", "unit": "MiB", "gpus": [memory in units, ...]}` as an agent's node.
fn object(node: &Value) -> Value {
    let name = node["name"].as_str().unwrap();
    let unit = if node["unit"] == "MiB" { 1u64 << 20 } else { 1 << 30 };
    let gpus = node["gpus"].as_array().cloned().unwrap_or_default();
    let devices: Vec<Value> = gpus
        .iter()
        .enumerate()
        .map(|(i, size)| {
            json!({"id": format!("GPU-{name}-{i}"), "index": i, "model": "NVIDIA-Tesla-V100", "isolation": ["intercept"],
                   "memory": size.as_u64().unwrap() * unit})
        })
        .collect();
    let inventory =
        json!({"v": 1, "generation": 1, "devices": devices, "memoryUnit": node["unit"].as_str().unwrap_or("GiB")});
    let annotations = if gpus.is_empty() { json!({}) } else { json!({(keys::INVENTORY): inventory.to_string()}) };
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", (keys::SLOT): "64"}},
    })
}

/// What the webhook adds to a pod, as far as the extender sees it.
fn admitted(mut pod: Value) -> Value {
    if let Reading::Ask(ask, hints) = parse(&PodManifest::new(&pod), &DialectConfig::default()) {
        pod["metadata"]["annotations"][keys::ASK] = json!(serde_json::to_string(&ask).unwrap());
        for (key, value) in hints.annotations {
            pod["metadata"]["annotations"][key] = json!(value);
        }
    }
    pod
}

impl Bench {
    /// The API server shows a pod.
    async fn show(&self, pod: &Value) {
        let seen = PodReader::default().read(serde_json::from_value(pod.clone()).unwrap());
        self.watch.send(Change::Pod(Box::new(seen))).await.unwrap();
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path).body(body).unwrap();
        let reply = self.routes.clone().oneshot(request).await.unwrap();
        let status = reply.status();
        let bytes = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
    }
}

async fn replay(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extender").join(name);
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let bench = start(file["nodes"].as_array().unwrap(), always_leading()).await;
    let steps = file["steps"].as_array().unwrap();
    assert!(!steps.is_empty());
    for step in steps {
        let title = step["step"].as_str().unwrap();
        let (method, path) = step["request"].as_str().unwrap().split_once(' ').unwrap();
        let mut body = step["body"].clone();
        for pod in ["Pod", "pod"] {
            if body[pod].is_object() {
                body[pod] = admitted(body[pod].take());
            }
        }
        for pod in ["Pod", "pod"] {
            if body[pod].is_object() {
                bench.show(&body[pod]).await;
            }
        }
        let (status, reply) = bench.ask(method, path, &body).await;
        let expected = step.get("status").map_or(200, |s| s.as_u64().unwrap());
        assert_eq!(u64::from(status.as_u16()), expected, "{title}: {reply}");
        assert!(same(&step["reply"], &reply), "{title}\nexpected {}\nfound    {reply}", step["reply"]);
        if let Some(bound) = step.get("bound") {
            let effects = bench.recorder.0.lock().unwrap().clone();
            let bind =
                effects.iter().rev().find_map(|e| if let Effect::Bind(bind) = e { Some(bind) } else { None }).unwrap();
            assert_eq!(bound["node"], json!(bind.node), "{title}");
            assert!(bind.annotations.contains_key(keys::GRANT), "{title}: the grant is in the same write");
            for (key, value) in bound["annotations"].as_object().unwrap() {
                let found = bind.annotations.get(key).map_or(Value::Null, |text| json!(text));
                assert!(same(value, &found), "{title}: {key} is {found}, not {value}");
            }
        }
    }
    bench.tasks.run_until(async { "the test is over" }).await.unwrap();
}

#[tokio::test]
async fn kube_scheduler_is_answered_as_its_protocol_says() {
    replay("kube-scheduler.json").await;
}

#[tokio::test]
async fn al_02_al_06_al_17_gpushares_routes_answer_in_its_words() {
    replay("gpushare.json").await;
    replay("gpushare-names.json").await;
}

#[tokio::test]
async fn tk_07_tk_08_tk_09_gpu_admissions_route_chooses_one_node() {
    replay("gpu-admission.json").await;
}

#[tokio::test]
async fn the_vgpu_schedulers_routes_choose_one_node_and_bind_it() {
    replay("vgpu.json").await;
}

/// An autoscaler offers nodes that it might make, whole, beside those that are there.
#[tokio::test]
async fn a_filter_with_nodes_that_do_not_exist_is_answered_with_the_best_of_them() {
    let there = json!({"name": "n1", "gpus": [16]});
    let bench = start(std::slice::from_ref(&there), always_leading()).await;
    let pod = admitted(json!({
        "metadata": {"name": "dry", "namespace": "d", "uid": "dry", "annotations": {}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {(keys::GPU): "2"}}}]},
    }));
    let templates = [json!({"name": "one", "gpus": [16]}), json!({"name": "two", "gpus": [16, 16]})];
    let offered: Vec<Value> = std::iter::once(&there).chain(&templates).map(object).collect();
    for _ in 0..2 {
        let (_, reply) = bench.ask("POST", "/divvy/filter", &json!({"Pod": pod, "Nodes": {"items": offered}})).await;
        assert_eq!(reply["Nodes"]["items"], json!([offered[2]]), "as it came: {reply}");
    }
    let (_, reply) = bench.ask("POST", "/divvy/filter", &json!({"Pod": pod, "Nodes": {"items": offered[..2]}})).await;
    assert_eq!(reply["Nodes"]["items"], json!([]));
    assert!(reply.to_string().contains("with fewer than 2 GPUs"), "{reply}");
    bench.tasks.run_until(async { "the test is over" }).await.unwrap();
}

#[tokio::test]
async fn a_follower_answers_filter_and_does_not_bind() {
    let nodes = [json!({"name": "n1", "gpus": [16]})];
    let bench = start(&nodes, watch::Sender::new(Standing::Following(None)).subscribe()).await;
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u", "annotations": {}},
                     "spec": {"containers": [{"name": "c", "resources": {"limits": {(keys::GPU_SHARE): "300"}}}]}});
    let pod = admitted(pod);
    bench.show(&pod).await;
    let (_, reply) = bench.ask("POST", "/divvy/filter", &json!({"Pod": pod, "NodeNames": ["n1"]})).await;
    assert_eq!(reply["NodeNames"], json!(["n1"]));
    let bind = json!({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"});
    let (_, reply) = bench.ask("POST", "/divvy/bind", &bind).await;
    assert_eq!(reply["Error"], "nobody leads at the moment; try again");
    assert!(bench.recorder.0.lock().unwrap().is_empty());
    bench.tasks.run_until(async { "the test is over" }).await.unwrap();
}

/// A pod that only the caller knows, of the highest priority.
fn made_up(uid: &str) -> Value {
    admitted(json!({
        "metadata": {"name": "p", "namespace": "d", "uid": uid, "resourceVersion": "1", "annotations": {}},
        "spec": {"schedulerName": keys::SCHEDULER, "priority": 2_000_000_000,
                 "containers": [{"name": "c", "resources": {"limits": {(keys::GPU): "1"}}}]},
    }))
}

#[tokio::test]
async fn a_made_up_pod_is_answered_with_an_error_and_no_pod_leaves_for_it() {
    let bench = start(&[json!({"name": "n1", "gpus": [16]})], always_leading()).await;
    let holder = admitted(json!({
        "metadata": {"name": "holder", "namespace": "d", "uid": "h", "resourceVersion": "1",
                     "annotations": {(keys::CLASS): "opportunistic"}},
        "spec": {"schedulerName": keys::SCHEDULER, "containers": [{"name": "c", "resources": {"limits": {(keys::GPU): "1"}}}]},
    }));
    bench.show(&holder).await;
    tokio::time::timeout(Duration::from_secs(10), async {
        while !bench.recorder.0.lock().unwrap().iter().any(|effect| matches!(effect, Effect::Bind(_))) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    let mut bound = made_up("bound");
    bound["spec"]["nodeName"] = json!("n1");
    for pod in [made_up("waiting"), bound] {
        let filter = json!({"Pod": pod, "NodeNames": ["n1"]});
        let victims = json!({"n1": {"Pods": [{"UID": "h"}], "NumPDBViolations": 0}});
        let preempt = json!({"Pod": pod, "NodeNameToMetaVictims": victims});
        let bind = json!({"PodName": "p", "PodNamespace": "d", "PodUID": pod["metadata"]["uid"], "Node": "n1"});
        let ((_, filtered), (_, preempted), (_, bound)) = tokio::join!(
            bench.ask("POST", "/divvy/filter", &filter),
            bench.ask("POST", "/divvy/preempt", &preempt),
            bench.ask("POST", "/divvy/bind", &bind),
        );
        let error = filtered["Error"].as_str().unwrap();
        assert!(error.starts_with("the API server has not told this replica of pod d/p with uid"), "{filtered}");
        assert_eq!(preempted["NodeNameToMetaVictims"], json!({}), "{preempted}");
        assert_eq!(bound["Error"], "the pod is not known here, or is bound already");
    }
    let effects = bench.recorder.0.lock().unwrap().clone();
    let binds = effects.iter().filter(|effect| matches!(effect, Effect::Bind(_))).count();
    assert_eq!((binds, effects.iter().any(|effect| matches!(effect, Effect::Evict(_)))), (1, false), "{effects:?}");
    bench.tasks.run_until(async { "the test is over" }).await.unwrap();
}

#[tokio::test]
async fn a_question_that_comes_before_its_pod_waits_for_it() {
    let bench = start(&[json!({"name": "n1", "gpus": [16]})], always_leading()).await;
    let mut pod = made_up("u");
    pod["spec"]["schedulerName"] = json!("default-scheduler");
    let body = json!({"Pod": pod, "NodeNames": ["n1"]});
    let (answer, ()) = tokio::join!(bench.ask("POST", "/divvy/filter", &body), async {
        // The question is under way when the pod comes.
        tokio::task::yield_now().await;
        bench.show(&pod).await;
    });
    assert_eq!(answer.1["NodeNames"], json!(["n1"]));
    bench.tasks.run_until(async { "the test is over" }).await.unwrap();
}

#[tokio::test]
async fn holders_of_devices_are_named_only_where_that_is_wanted() {
    let (ask, _questions) = mpsc::channel(1);
    let routes = extender::routes(ask, PodReader::default(), always_leading(), Manner::default());
    for path in ["/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/n1"] {
        let reply = routes.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn the_ready_configuration_names_every_resource_that_stands_for_devices() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kube-scheduler.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let names = divvy_api::managed::names(&DialectConfig::default());
    let native = [keys::GPU, keys::GPU_MEMORY, keys::GPU_SHARE].map(str::to_owned);
    for name in names.iter().chain(&native) {
        assert!(text.contains(&format!("{{name: {name}, ignoredByScheduler: true}}")), "{name} is missing");
    }
    assert!(text.contains(&format!("{{name: {}, ignoredByScheduler: false}}", keys::SLOT)));
}

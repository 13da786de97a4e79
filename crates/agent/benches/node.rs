//! What the agent costs a node: resident memory with 8 cards and 80 containers, CPU while nothing happens, and how fast it answers
//! the kubelet. API server, kubelet and container runtime are played by this program; cards are the fake driver's; the agent is the
//! real program with everything it does. As on a node, what the agent keeps of containers and the CDI specs lie in memory, the journal
//! on a disk.
//!
//! Answers are timed beside an echo, a call that the agent answers without doing anything, made just before: what that takes is the
//! machine's, not the agent's.
//!
//! `cargo xtask bench agent`

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use divvy_core::keys;
use divvy_proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use divvy_proto::cri::{self, ContainerState};
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use divvy_proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use divvy_proto::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, Empty, PreStartContainerRequest, RegisterRequest,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response as Reply, Status};

const CARDS: usize = 8;
const CONTAINERS: usize = 80;
/// Starts of every container.
const ROUNDS: usize = 10;
const IDLE: Duration = Duration::from_secs(20);

struct Kubelet;

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, _: Request<RegisterRequest>) -> Result<Reply<Empty>, Status> {
        Ok(Reply::new(Empty {}))
    }
}

struct Runtime;

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Result<Reply<cri::VersionResponse>, Status> {
        Ok(Reply::new(cri::VersionResponse::default()))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<cri::ListPodSandboxRequest>,
    ) -> Result<Reply<cri::ListPodSandboxResponse>, Status> {
        Ok(Reply::new(cri::ListPodSandboxResponse::default()))
    }

    async fn list_containers(
        &self,
        _: Request<cri::ListContainersRequest>,
    ) -> Result<Reply<cri::ListContainersResponse>, Status> {
        let container = |n| cri::Container {
            id: format!("{n:064}"),
            state: ContainerState::ContainerRunning.into(),
            labels: HashMap::from([
                (keys::CRI_POD_UID.to_owned(), uid(n)),
                (keys::CRI_CONTAINER_NAME.to_owned(), "main".to_owned()),
            ]),
            ..cri::Container::default()
        };
        Ok(Reply::new(cri::ListContainersResponse { containers: (0..CONTAINERS).map(container).collect() }))
    }

    async fn container_status(
        &self,
        _: Request<cri::ContainerStatusRequest>,
    ) -> Result<Reply<cri::ContainerStatusResponse>, Status> {
        Err(Status::not_found("none"))
    }
}

fn uid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// A card as the fake driver calls it.
fn card(n: usize) -> String {
    format!("GPU-00000000-0000-4000-8000-{n:012}")
}

fn pod(n: usize) -> Value {
    let slice = json!({"device": card(n % CARDS), "memory": 4u64 << 30, "memoryLimit": 4u64 << 30, "share": 100,
        "shareLimit": 1000, "isolation": "intercept"});
    let grant = json!({"v": 1, "at": 1, "policy": "bench", "containers": [{"name": "main", "slices": [slice]}]});
    json!({
        "metadata": {"name": format!("pod-{n}"), "namespace": "bench", "uid": uid(n), "resourceVersion": "1",
            "annotations": {keys::GRANT: grant.to_string()}},
        "spec": {"nodeName": "n", "containers": [
            {"name": "main", "image": "i", "resources": {"limits": {keys::SLOT: "1"}}}]},
        "status": {"phase": "Running"},
    })
}

/// An API server with one node and its pods, in which nothing happens.
async fn api(
    State(pods): State<Arc<Value>>,
    Query(query): Query<HashMap<String, String>>,
    request: axum::extract::Request,
) -> Response {
    let path = request.uri().path().to_owned();
    if query.get("watch").is_some_and(|w| w == "true" || w == "1") {
        return Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>()).into_response();
    }
    let list = |kind: &str, items: &Value| {
        axum::Json(json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}))
    };
    let node = json!({"metadata": {"name": "n", "resourceVersion": "1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    match (request.method().as_str(), path.as_str()) {
        ("GET", "/api/v1/pods") => list("PodList", &pods).into_response(),
        ("GET", "/api/v1/nodes") => list("NodeList", &json!([node])).into_response(),
        ("GET", _) => list("List", &json!([])).into_response(),
        // What the agent writes is taken and forgotten.
        _ => axum::Json(node).into_response(),
    }
}

/// Everything around the agent, in `dir`.
async fn surroundings(dir: &Path) -> anyhow::Result<PathBuf> {
    let plugins = dir.join("plugins");
    fs::create_dir_all(&plugins)?;
    let kubelet = UnixListenerStream::new(UnixListener::bind(plugins.join("kubelet.sock"))?);
    let runtime = UnixListenerStream::new(UnixListener::bind(dir.join("cri.sock"))?);
    let mut server = tonic::transport::Server::builder();
    tokio::spawn(server.add_service(RegistrationServer::new(Kubelet)).serve_with_incoming(kubelet));
    let mut server = tonic::transport::Server::builder();
    tokio::spawn(server.add_service(RuntimeServiceServer::new(Runtime)).serve_with_incoming(runtime));
    let pods = Arc::new(Value::Array((0..CONTAINERS).map(pod).collect()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let routes = Router::new().fallback(api).with_state(pods);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let kubeconfig = dir.join("kubeconfig");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    fs::write(&kubeconfig, text.to_string())?;
    Ok(kubeconfig)
}

fn agent(dir: &Path, tmpfs: &Path, kubeconfig: &Path) -> anyhow::Result<Child> {
    let driver = dir.join("driver");
    divvy_fakedriver::install::install(&driver)?;
    let machine: Vec<String> = (0..CARDS).map(|n| format!("H200 uuid={}", card(n))).collect();
    let library = dir.join("libdivvy.so");
    fs::write(&library, "the agent only copies it")?;
    let path = |name: &str| dir.join(name).display().to_string();
    let flag = |name: &str, value: String| format!("--{name}={value}");
    let log = fs::File::create(dir.join("agent.log"))?;
    Ok(Command::new(env!("CARGO_BIN_EXE_divvy-agent"))
        .arg("run")
        .args(["--node=n", "--listen=127.0.0.1:0"])
        .args([
            flag("run", tmpfs.join("run").display().to_string()),
            flag("cdi", tmpfs.join("cdi").display().to_string()),
        ])
        .args([flag("state", path("state"))])
        .args([
            flag("plugins", path("plugins")),
            flag("pod-resources", path("none.sock")),
            flag("cri", path("cri.sock")),
        ])
        .args([flag("library", library.display().to_string()), flag("fake-driver", driver.display().to_string())])
        .env("KUBECONFIG", kubeconfig)
        .env("FAKE_GPU_STATE", path("state-of-cards"))
        .env("FAKE_GPU_CONFIG", machine.join("; "))
        .stderr(Stdio::from(log))
        .spawn()?)
}

/// Writes down, as the kubelet does, who has which id.
fn write_checkpoint(dir: &Path, ids: &[String]) -> anyhow::Result<()> {
    let line = |(n, id): (usize, &String)| json!({"PodUID": uid(n), "ContainerName": "main", "ResourceName": keys::SLOT, "DeviceIDs": {"-1": [id]}});
    let lines: Vec<Value> = ids.iter().enumerate().map(line).collect();
    let text = json!({"Data": {"PodDeviceEntries": lines, "RegisteredDevices": {}}, "Checksum": 0});
    Ok(fs::write(dir.join("plugins/kubelet_internal_checkpoint"), text.to_string())?)
}

/// How often threads of a process went to sleep.
fn sleeps(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let counted = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        sum += counted.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Resident memory of a process, in KiB, and CPU time it has used.
fn used(pid: u32) -> anyhow::Result<(u64, Duration)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss =
        status.lines().find_map(|l| l.strip_prefix("VmRSS:")).and_then(|l| l.split_whitespace().next()?.parse().ok());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Ok((rss.unwrap_or(0), Duration::from_millis(ticks * 10)))
}

fn keeper(dir: &Path) -> Option<u32> {
    let is_ours = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains("keeper") && words.contains(&dir.display().to_string())
    };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.into_iter().find(is_ours)
}

fn percentile(times: &mut [Duration], part: f64) -> f64 {
    times.sort();
    let at = ((times.len() - 1) as f64 * part).round() as usize;
    times[at].as_secs_f64() * 1000.0
}

async fn measure(dir: &Path, tmpfs: &Path) -> anyhow::Result<()> {
    let kubeconfig = surroundings(dir).await?;
    let mut agent = agent(dir, tmpfs, &kubeconfig)?;
    let measured = measure_agent(dir, tmpfs, agent.id()).await;
    agent.kill()?;
    agent.wait()?;
    if let Some(pid) = keeper(tmpfs).and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    }
    if measured.is_err() {
        eprintln!("{}", fs::read_to_string(dir.join("agent.log"))?);
    }
    measured
}

async fn measure_agent(dir: &Path, tmpfs: &Path, pid: u32) -> anyhow::Result<()> {
    let own = dir.join("plugins/divvy.sock");
    let began = Instant::now();
    let mut plugin = loop {
        let channel = divvy_agent::socket::channel(own.clone(), Duration::from_secs(5));
        let mut plugin = DevicePluginClient::new(channel);
        if plugin.get_device_plugin_options(Empty {}).await.is_ok() {
            break plugin;
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "the agent does not answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mut stream = plugin.list_and_watch(Empty {}).await?.into_inner();
    let ids = loop {
        let Some(reply) = stream.message().await? else { anyhow::bail!("no more news of slots") };
        if reply.devices.len() >= CONTAINERS {
            break reply.devices.into_iter().map(|d| d.id).take(CONTAINERS).collect::<Vec<_>>();
        }
    };
    write_checkpoint(dir, &ids)?;
    let (mut echo, mut allocate, mut start) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for id in &ids {
            let began = Instant::now();
            plugin.get_device_plugin_options(Empty {}).await?;
            echo.push(began.elapsed());
            let began = Instant::now();
            let request = ContainerAllocateRequest { devices_ids: vec![id.clone()] };
            plugin.allocate(AllocateRequest { container_requests: vec![request] }).await?;
            allocate.push(began.elapsed());
            let began = Instant::now();
            plugin.pre_start_container(PreStartContainerRequest { devices_ids: vec![id.clone()] }).await?;
            start.push(began.elapsed());
        }
    }
    // The first looks after the start of so many are not idleness.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let keeper = keeper(tmpfs);
    let before = (used(pid)?, keeper.map(used).transpose()?, sleeps(pid)?);
    tokio::time::sleep(IDLE).await;
    let after = (used(pid)?, keeper.map(used).transpose()?, sleeps(pid)?);
    let idle = |before: Duration, after: Duration| 100.0 * (after - before).as_secs_f64() / IDLE.as_secs_f64();
    println!("\n| {CARDS} cards, {CONTAINERS} containers | measured | allowed |\n|---|---|---|");
    println!("| agent, resident | {:.1} MiB | 64 MiB |", after.0.0 as f64 / 1024.0);
    println!("| agent, CPU while idle | {:.2} % of a core | 1 % |", idle(before.0.1, after.0.1));
    println!("| agent, wakeups while idle | {} a second | |", after.2.saturating_sub(before.2) / IDLE.as_secs());
    if let (Some(before), Some(after)) = (before.1, after.1) {
        println!("| keeper, resident | {:.1} MiB | |", after.0 as f64 / 1024.0);
        println!("| keeper, CPU while idle | {:.2} % of a core | |", idle(before.1, after.1));
    }
    let calls = [
        ("an echo", "", &mut echo),
        ("Allocate", "p99 20 ms", &mut allocate),
        ("PreStartContainer", "p99 20 ms", &mut start),
    ];
    for (name, allowed, times) in calls {
        let [half, most] = [0.5, 0.99].map(|part| percentile(times, part));
        println!("| {name}, p50 / p99 of {} | {half:.2} / {most:.2} ms | {allowed} |", ROUNDS * CONTAINERS);
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let tmpfs = tempfile::tempdir_in("/dev/shm")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(dir.path(), tmpfs.path()))
}

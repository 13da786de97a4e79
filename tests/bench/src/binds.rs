//! Pods bound per second, from the first bind seen to the last: Divvy alone, kube-scheduler with Divvy as extender, kube-scheduler
//! alone on plain pods, and binds with nothing to decide. All pods exist before the scheduler starts.

use std::time::{Duration, Instant};

use anyhow::Context;
use divvy_cluster::{get, post};
use divvy_core::keys;
use divvy_e2e::eventually;
use futures::StreamExt;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::ground::{Binds, Ground, cpu_seconds, root, scheduler};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Nodes of eight GPUs
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Pods per round
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only contenders whose name contains this
    #[arg(long)]
    only: Option<String>,
}

/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Binds under way at once where there is nothing to decide: as many as Divvy has.
const AT_ONCE: usize = 64;
const EXTENDER: &str = "127.0.0.1:18090";
const OPS: &str = "127.0.0.1:18080";
const WEBHOOK: &str = "127.0.0.1:18443";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    Bare,
    Plain,
    Extender,
    Divvy,
}

impl Contender {
    const ALL: [Contender; 4] = [Contender::Bare, Contender::Plain, Contender::Extender, Contender::Divvy];

    fn name(self) -> &'static str {
        match self {
            Contender::Bare => "bare binds, nothing to decide",
            Contender::Plain => "kube-scheduler alone, plain pods",
            Contender::Extender => "kube-scheduler with Divvy as extender, GPU pods",
            Contender::Divvy => "Divvy standalone, GPU pods",
        }
    }
}

/// One round of one contender.
struct Round {
    binds: Binds,
    /// Seconds of processor time of the scheduler and of Divvy.
    cpu: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let ground = Ground::start(args.nodes).await?;
    let chosen: Vec<Contender> = Contender::ALL
        .into_iter()
        .filter(|c| args.only.as_ref().is_none_or(|only| c.name().contains(only.as_str())))
        .collect();
    let mut rounds: Vec<Vec<Round>> = chosen.iter().map(|_| Vec::new()).collect();
    for n in 0..args.rounds {
        // Each round begins with another one: nobody always has the warm cache.
        for i in 0..chosen.len() {
            let i = (i + n) % chosen.len();
            let round = measure(&ground, chosen[i], args.pods).await.with_context(|| chosen[i].name())?;
            eprintln!("round {n}: {:<50} {:>6.0} pods/s", chosen[i].name(), round.binds.per_second());
            rounds[i].push(round);
            ground.clear().await?;
        }
    }
    print(&args, &chosen, &rounds);
    Ok(())
}

fn print(args: &Args, chosen: &[Contender], rounds: &[Vec<Round>]) {
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let rate = |i: usize| median(&mut rounds[i].iter().map(|r| r.binds.per_second()).collect());
    let plain = chosen.iter().position(|c| *c == Contender::Plain).map(rate);
    println!("{} pods on {} nodes of 8 GPUs, {} rounds, median (least to most)\n", args.pods, args.nodes, args.rounds);
    println!("| contender | pods bound per second | of kube-scheduler alone | processor seconds per 1,000 pods |");
    println!("|---|---|---|---|");
    for (i, contender) in chosen.iter().enumerate() {
        let rates: Vec<f64> = rounds[i].iter().map(|r| r.binds.per_second()).collect();
        let (least, most) = rates.iter().fold((f64::MAX, 0f64), |(l, m), r| (l.min(*r), m.max(*r)));
        let ratio = plain.map_or_else(String::new, |plain| format!("{:.2}", rate(i) / plain));
        let cpu = median(&mut rounds[i].iter().map(|r| r.cpu * 1000.0 / args.pods as f64).collect());
        println!("| {} | {:.0} ({least:.0} to {most:.0}) | {ratio} | {cpu:.2} |", contender.name(), rate(i));
    }
}

async fn measure(ground: &Ground, contender: Contender, pods: usize) -> anyhow::Result<Round> {
    match contender {
        Contender::Bare => bare(ground, pods).await,
        Contender::Plain => plain(ground, pods).await,
        Contender::Extender => extender(ground, pods).await,
        Contender::Divvy => divvy(ground, pods).await,
    }
}

fn plain_pod(n: usize) -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "128Mi"}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("plain-{n}")},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "none", "resources": resources}]},
    })
}

/// A mix of slices as people ask for them.
fn gpu_pod(n: usize) -> Value {
    const MIX: [(u32, u32); 6] = [(100, 10), (200, 20), (250, 35), (300, 24), (500, 60), (125, 12)];
    let (share, gib) = MIX[n % MIX.len()];
    let mut pod = plain_pod(n);
    pod["metadata"]["name"] = json!(format!("gpu-{n}"));
    pod["spec"]["containers"][0]["resources"]["limits"] =
        json!({(keys::GPU_SHARE): share.to_string(), (keys::GPU_MEMORY): format!("{gib}Gi")});
    pod
}

async fn bare(ground: &Ground, pods: usize) -> anyhow::Result<Round> {
    ground.create((0..pods).map(plain_pod).collect()).await?;
    let nodes: Value = get(&ground.client, "/api/v1/nodes?limit=5000").await?;
    let nodes: Vec<String> = nodes["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|n| Some(n["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    let began = Instant::now();
    let mut binding = futures::stream::iter(0..pods)
        .map(|n| {
            let (client, node) = (&ground.client, &nodes[n % nodes.len()]);
            async move {
                let path = format!("/api/v1/namespaces/default/pods/plain-{n}/binding");
                let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": format!("plain-{n}")},
                                  "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
                post::<IgnoredAny>(client, &path, &body).await
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(outcome) = binding.next().await {
        outcome?;
    }
    Ok(Round { binds: Binds { pods, took: began.elapsed() }, cpu: 0.0 })
}

async fn plain(ground: &Ground, pods: usize) -> anyhow::Result<Round> {
    ground.create((0..pods).map(plain_pod).collect()).await?;
    configure(ground, &json!({"extenders": []}))?;
    let program = scheduler(&ground.cluster)?;
    program.start()?;
    let binds = ground.watch_binds(pods, PATIENCE).await?;
    let cpu = cpu_seconds(program);
    program.stop()?;
    Ok(Round { binds, cpu })
}

/// Creates GPU pods through Divvy's webhook.
async fn create_gpu_pods(ground: &Ground, pods: usize, flags: &[&str]) -> anyhow::Result<()> {
    let url = format!("https://{WEBHOOK}");
    let mut words = vec!["webhook", "--webhook-listen", WEBHOOK, "--webhook-url", &url, "--ops-listen", OPS];
    words.extend(flags);
    let webhook = ground.divvy("webhook", &words);
    webhook.start()?;
    ready()?;
    ground.create((0..pods).map(gpu_pod).collect()).await?;
    webhook.stop()
}

fn ready() -> anyhow::Result<()> {
    eventually("Divvy is ready", Duration::from_secs(60), || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(OPS)?;
        write!(stream, "GET /readyz HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        anyhow::ensure!(reply.starts_with("HTTP/1.0 200"), "{reply}");
        Ok(())
    })
}

async fn divvy(ground: &Ground, pods: usize) -> anyhow::Result<Round> {
    create_gpu_pods(ground, pods, &[]).await?;
    let program = ground.divvy("divvy", &["scheduler", "--no-leader-election", "--ops-listen", OPS]);
    program.start()?;
    let binds = ground.watch_binds(pods, PATIENCE).await?;
    let cpu = cpu_seconds(&program);
    program.stop()?;
    Ok(Round { binds, cpu })
}

async fn extender(ground: &Ground, pods: usize) -> anyhow::Result<Round> {
    create_gpu_pods(ground, pods, &["--kube-scheduler", "default-scheduler"]).await?;
    let divvy = ground
        .divvy("divvy", &["scheduler", "--no-leader-election", "--ops-listen", OPS, "--extender-listen", EXTENDER]);
    divvy.start()?;
    ready()?;
    let text = std::fs::read_to_string(root().join("deploy/kube-scheduler.yaml"))?;
    let mut configuration: Value = serde_saphyr::from_str(&text).context("deploy/kube-scheduler.yaml")?;
    let extender =
        configuration["extenders"][0].as_object_mut().context("deploy/kube-scheduler.yaml has no extender")?;
    // On one machine, without certificates.
    extender.retain(|field, _| !["enableHTTPS", "tlsConfig"].contains(&field.as_str()));
    extender["urlPrefix"] = json!(format!("http://{EXTENDER}/divvy"));
    configure(ground, &configuration)?;
    let program = scheduler(&ground.cluster)?;
    program.start()?;
    let binds = ground.watch_binds(pods, PATIENCE).await?;
    let cpu = cpu_seconds(program) + cpu_seconds(&divvy);
    program.stop()?;
    divvy.stop()?;
    Ok(Round { binds, cpu })
}

/// Gives kube-scheduler the extenders of this configuration at its next start, and as many nodes to look at as it says.
fn configure(ground: &Ground, delivered: &Value) -> anyhow::Result<()> {
    let path = ground.cluster.folder().join("scheduler.json");
    let mut configuration: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    for field in ["extenders", "percentageOfNodesToScore"] {
        configuration[field] = delivered[field].clone();
    }
    std::fs::write(&path, serde_json::to_vec(&configuration)?)?;
    Ok(())
}

//! Resident memory of the scheduler with a large cluster in it.

use std::time::Duration;

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk};
use divvy_core::device::{DeviceKind, Isolation};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use divvy_e2e::eventually;
use serde_json::{Value, json};

use crate::ground::{Ground, cpu_seconds, peak_mib};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Nodes of eight GPUs
    #[arg(long, default_value_t = 5000)]
    nodes: u32,
    /// Pods that run on them
    #[arg(long, default_value_t = 50_000)]
    pods: u32,
}

const OPS: &str = "127.0.0.1:18080";

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let ground = Ground::start(args.nodes).await?;
    eprintln!("{} nodes are there", args.nodes);
    let pods: Vec<Value> = (0..args.pods).map(|n| running(n, args.nodes)).collect();
    for chunk in pods.chunks(5000) {
        ground.create(chunk.to_vec()).await?;
        eprintln!("{} more pods are there", chunk.len());
    }
    let program = ground.divvy("divvy", &["scheduler", "--no-leader-election", "--ops-listen", OPS]);
    program.start()?;
    eventually("Divvy is ready", Duration::from_secs(300), || {
        use std::io::{Read, Write};
        program.must_run()?;
        let mut stream = std::net::TcpStream::connect(OPS)?;
        write!(stream, "GET /readyz HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        anyhow::ensure!(reply.starts_with("HTTP/1.0 200"), "{reply}");
        Ok(())
    })?;
    println!("| nodes | pods | peak resident MiB | processor seconds until ready |\n|---|---|---|---|");
    println!("| {} | {} | {:.0} | {:.1} |", args.nodes, args.pods, peak_mib(&program), cpu_seconds(&program));
    program.stop()
}

/// A pod that runs, as Divvy would have bound it: eight to a node's GPU at most, with labels and an owner as workloads have them.
fn running(n: u32, nodes: u32) -> Value {
    let node = format!("sim-{}", n % nodes);
    let device = format!("GPU-{node}-{}", (n / nodes) % 8);
    let share = Share([100, 150, 200][n as usize % 3]);
    let wants = vec![DeviceAsk { count: 1, share, memory: MemoryAsk::Bytes(Bytes::gib(8)), ..DeviceAsk::default() }];
    let ask = GpuAsk::of(Dialect::Native, vec![ContainerAsk { name: "main".into(), role: Default::default(), wants }]);
    let slice = Slice {
        device: device.into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::gib(8),
        memory_limit: Bytes::gib(8),
        share,
        share_limit: Share::WHOLE,
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    };
    let grant = Grant {
        v: Grant::VERSION,
        at: 1,
        policy: "frag".into(),
        containers: vec![ContainerGrant { name: "main".into(), role: Default::default(), slices: vec![slice] }],
        claim: None,
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("run-{n}"),
            "labels": {"app": format!("app-{}", n % 500), "pod-template-hash": format!("{:x}", n % 500), "team": format!("team-{}", n % 40)},
            "annotations": {
                (keys::ASK): serde_json::to_string(&ask).unwrap_or_default(),
                (keys::GRANT): serde_json::to_string(&grant).unwrap_or_default(),
                (keys::CLASS_NOW): "guarantee",
            },
        },
        "spec": {
            "nodeName": node, "schedulerName": keys::SCHEDULER, "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none",
                "resources": {"limits": {(keys::SLOT): "1"}, "requests": {"cpu": "500m", "memory": "1Gi", (keys::SLOT): "1"}}}],
        },
    })
}

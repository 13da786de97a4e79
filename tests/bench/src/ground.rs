//! A cluster for measuring: nothing runs in it but what is measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use divvy_api::wire;
use divvy_cluster::watch::{Seen, follow};
use divvy_cluster::{Failure, delete, get, post};
use divvy_e2e::{Cluster, Options, Program, Scheduler, own};
use futures::StreamExt;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

/// Requests under way at once, for whatever is not measured.
const AT_ONCE: usize = 8;

/// The cluster, and the way to it.
pub(crate) struct Ground {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) divvy: PathBuf,
}

impl Ground {
    /// Starts a cluster with Divvy's objects and this many nodes of eight GPUs. No controller manager: it would taint nodes without
    /// heartbeats, and it would take part of the machine.
    pub(crate) async fn start(nodes: u32) -> anyhow::Result<Ground> {
        let options = Options {
            controller_manager: None,
            // Client rates raised for everybody; its defaults bind 53 pods a second, whatever the machine.
            scheduler: Scheduler::Configured(json!({"clientConnection": {"qps": 5000, "burst": 5000}})),
            ..Options::control_plane()
        };
        let cluster = Cluster::start(options)?;
        scheduler(&cluster)?.stop()?;
        let divvy = release()?;
        for path in ["deploy/crds", "deploy/rbac.yaml"] {
            cluster.admin().say(&["apply", "-f", &root().join(path).display().to_string()])?;
        }
        let made = Command::new(&divvy)
            .args(["simnode", "create", "--nodes", &nodes.to_string(), "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let client = divvy_cluster::client::connect(Some(cluster.kubeconfig())).await?;
        Ok(Ground { cluster, client, divvy })
    }

    /// A service of Divvy, not started yet.
    pub(crate) fn divvy(&self, name: &str, words: &[&str]) -> Program {
        let mut argv = vec![self.divvy.display().to_string()];
        argv.extend(words.iter().map(ToString::to_string));
        argv.extend(["--kubeconfig".to_owned(), self.cluster.kubeconfig().display().to_string()]);
        Program::new(name, self.cluster.folder(), argv)
    }

    /// Creates pods, several at once.
    pub(crate) async fn create(&self, pods: Vec<Value>) -> anyhow::Result<()> {
        let path = "/api/v1/namespaces/default/pods";
        let mut made = futures::stream::iter(pods)
            .map(|pod| async move { post::<IgnoredAny>(&self.client, path, &pod).await })
            .buffer_unordered(AT_ONCE);
        while let Some(outcome) = made.next().await {
            outcome.map_err(anyhow::Error::new).context("a pod was refused")?;
        }
        Ok(())
    }

    /// Removes all pods, and waits until they are gone.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let path = "/api/v1/namespaces/default/pods";
        delete(&self.client, &format!("{path}?gracePeriodSeconds=0")).await?;
        delete(&self.client, "/api/v1/namespaces/default/events").await?;
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let left: Value = get(&self.client, &format!("{path}?limit=1")).await?;
            if left["items"].as_array().is_none_or(Vec::is_empty) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "pods do not go away");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until `pods` pods are bound; the time from the first bind seen to the last.
    pub(crate) async fn watch_binds(&self, pods: usize, patience: Duration) -> anyhow::Result<Binds> {
        let (to, mut seen) = mpsc::channel(4096);
        let (_never, relist) = watch::channel(0);
        let turn = |seen: Seen<wire::Pod>| match seen {
            Seen::Applied(pod) if !pod.spec.node_name.is_empty() => Some(pod.metadata.uid),
            _ => None,
        };
        let count = async {
            let mut bound = std::collections::HashSet::new();
            let mut first: Option<Instant> = None;
            let mut last = Instant::now();
            while bound.len() < pods {
                let Some(uid) = seen.recv().await else { break };
                if bound.insert(uid) {
                    last = Instant::now();
                    first.get_or_insert(last);
                }
            }
            Binds { pods: bound.len(), took: first.map_or(Duration::ZERO, |first| last - first) }
        };
        let counted = tokio::time::timeout(patience, async {
            tokio::select! {
                () = follow(self.client.clone(), to, relist, turn) => Err(Failure::Gone),
                binds = count => Ok(binds),
            }
        });
        Ok(counted.await.context("not all pods were bound in time")??)
    }
}

/// Pods that were bound, and in what time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binds {
    pub(crate) pods: usize,
    pub(crate) took: Duration,
}

impl Binds {
    pub(crate) fn per_second(&self) -> f64 {
        self.pods as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// kube-scheduler.
pub(crate) fn scheduler(cluster: &Cluster) -> anyhow::Result<&Program> {
    cluster.control_plane().scheduler.as_ref().context("there is no kube-scheduler")
}

/// Seconds of processor time a program has used.
pub(crate) fn cpu_seconds(program: &Program) -> f64 {
    let Some(pid) = program.pid() else { return 0.0 };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name in brackets may have spaces; user and system time are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The most memory a program has had resident, in MiB.
pub(crate) fn peak_mib(program: &Program) -> f64 {
    let Some(pid) = program.pid() else { return 0.0 };
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The optimized program, built if need be.
fn release() -> anyhow::Result<PathBuf> {
    own::cargo_build("divvy", &["--release"])?;
    // target/release/divvy-bench is this very program.
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).context("a program that lies nowhere")?;
    Ok(folder.join("release/divvy"))
}

//! How fast pods are placed: `cargo xtask bench placement`.
//!
//! Every time is CPU time of one core (so that a busy machine does not spoil it), for one engine on one snapshot of nodes with eight devices each, filled to 80 % by the trace's own mix; then pods
//! of the mix come, are placed, and leave again, so that the cluster stays as full as it is. Reckoning what leftovers are worth,
//! and asking all nodes again under a new worth, happens off the path of decisions and is shown beside it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a program that measures, and stops where something is wrong")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use divvy_core::id::PodUid;
use divvy_core::pod::Pod;
use divvy_core::policy::Placement;
use divvy_core::time::Time;
use divvy_core::{Engine, Policy, Snapshot};
use divvy_sim::rows::{NodeRow, Request};
use divvy_sim::workload::Random;
use divvy_sim::{cluster, trace};

/// For an instruction count no clock matters, and under valgrind there is none to be read.
static UNTIMED: AtomicBool = AtomicBool::new(false);

/// CPU time this thread has used so far.
fn used() -> Duration {
    if UNTIMED.load(Ordering::Relaxed) {
        return Duration::ZERO;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

struct Cluster {
    snapshot: Snapshot,
    engine: Engine,
    policy: Policy,
    pods: cluster::Pods,
    list: Vec<Request>,
    random: Random,
    running: VecDeque<(PodUid, u64)>,
    held: u64,
    whole: u64,
    number: u64,
    deciding: Duration,
    decisions: u64,
    reckoning: Duration,
    reckonings: u64,
}

impl Cluster {
    fn new(nodes: usize, list: &str) -> Cluster {
        let models = ["G2", "T4", "P100", "V100M16", "V100M32", "G3", "A10"];
        let rows: Vec<NodeRow> = (0..nodes)
            .map(|i| NodeRow {
                name: format!("node-{i}").into(),
                cpu: 96_000,
                memory: 393_216,
                gpus: 8,
                model: models[i % models.len()].into(),
            })
            .collect();
        Cluster {
            snapshot: cluster::snapshot(&rows),
            engine: Engine::default(),
            policy: Policy::only(Placement::Frag),
            pods: cluster::Pods::on(&rows),
            list: trace::list(list).unwrap(),
            random: Random::new(1),
            running: VecDeque::new(),
            held: 0,
            whole: nodes as u64 * 8000,
            number: 0,
            deciding: Duration::ZERO,
            decisions: 0,
            reckoning: Duration::ZERO,
            reckonings: 0,
        }
    }

    /// One pod comes: the decision and its booking are timed.
    fn come(&mut self, filling: bool) {
        let request = self.list[self.random.below(self.list.len())].clone();
        self.number += 1;
        let pod = self.pods.pod(&format!("p{}", self.number), &request);
        // While the cluster is filled nothing is measured, and a worth now and then is enough.
        if self.snapshot.is_worth_stale() && (!filling || self.number % 5000 == 1) {
            let begin = used();
            self.snapshot.reckon_worth();
            self.engine.prepare(&self.snapshot, &self.policy);
            self.reckoning += used() - begin;
            self.reckonings += 1;
        }
        let begin = used();
        if filling {
            self.decide(pod, &request)
        } else {
            measured(self, pod, &request)
        }
        self.deciding += used() - begin;
        self.decisions += 1;
    }

    /// The decision and its booking.
    fn decide(&mut self, pod: Pod, request: &Request) {
        let uid = pod.uid.clone();
        self.snapshot.put_pod(pod);
        let ix = self.snapshot.find_pod(&uid).unwrap();
        let spot = self.engine.find(&self.snapshot, &self.policy, ix, Time(0));
        if let Some(spot) = spot {
            let node = self.snapshot.node_at(spot.node).unwrap().node().name.clone();
            self.snapshot.place(&uid, &node, spot.grant.map(Arc::new), Time(0)).unwrap();
            self.held += request.gpu();
            self.running.push_back((uid, request.gpu()));
        } else {
            self.snapshot.remove_pod(&uid);
        }
    }

    /// Pods leave, at random, until it is as full as it was.
    fn settle(&mut self) {
        while self.held * 10 > self.whole * 8 {
            let at = self.random.below(self.running.len());
            let (uid, gpu) = self.running.swap_remove_back(at).unwrap();
            self.snapshot.remove_pod(&uid);
            self.held -= gpu;
        }
    }

    /// So many decisions on a cluster that is and stays full.
    fn run(&mut self, count: u64) {
        self.fill();
        while self.decisions < count {
            self.come(false);
            self.settle();
        }
    }

    fn fill(&mut self) {
        while self.held * 10 < self.whole * 8 {
            self.come(true);
        }
        (self.deciding, self.decisions, self.reckoning, self.reckonings) = (Duration::ZERO, 0, Duration::ZERO, 0);
    }
}

/// The decisions that count. Its name is what the instruction count goes by.
#[inline(never)]
fn measured(cluster: &mut Cluster, pod: Pod, request: &Request) {
    cluster.decide(pod, request);
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1))
        .and_then(|kb| kb.parse::<u64>().ok())
        .map_or_else(|| "unknown".into(), |kb| format!("{} MiB", kb / 1024))
}

fn decisions(nodes: usize, list: &str, count: u64) -> f64 {
    let mut cluster = Cluster::new(nodes, list);
    cluster.run(count);
    let each = cluster.deciding.as_secs_f64() / cluster.decisions as f64;
    let planning = cluster.reckoning.as_secs_f64() * 1000.0 / cluster.reckonings.max(1) as f64;
    println!("| {list} | {nodes} | {:.0} | {:.1} | {planning:.0} | {} |", 1.0 / each, each * 1e6, resident());
    each
}

/// "Cannot run, because" for a gang of 64 on a full cluster.
fn why() {
    let mut cluster = Cluster::new(5000, "default");
    cluster.fill();
    let request = Request { cpu: 8000, memory: 32_768, gpus: 8, milli: 1000, models: vec![] };
    for i in 0..64 {
        let mut pod = cluster.pods.pod(&format!("gang-{i}"), &request);
        let ask = Arc::make_mut(pod.ask.as_mut().unwrap());
        ask.gang = Some(divvy_core::ask::Gang { name: "gang".into(), size: 64, min: 64 });
        cluster.snapshot.put_pod(pod);
    }
    let ix = cluster.snapshot.find_pod(&"trace/gang-0".into()).unwrap();
    let begin = used();
    let why = divvy_core::why(&cluster.snapshot, &cluster.policy, ix, Time(0));
    println!(
        "\nwhy, for a gang of 64 of 8 devices on 5000 nodes: {:.0} ms\n{why}",
        (used() - begin).as_secs_f64() * 1000.0
    );
}

fn main() {
    // `cargo bench` passes flags of its own; a number is how many decisions to count.
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(20_000);
    if std::env::args().any(|arg| arg == "--untimed") {
        UNTIMED.store(true, Ordering::Relaxed);
        let mut cluster = Cluster::new(1000, "default");
        cluster.run(count);
        return;
    }
    println!("| mix | nodes | decisions/s | µs each | a new worth, ms | peak resident |\n|---|---|---|---|---|---|");
    let small = decisions(1000, "default", count);
    let large = decisions(10_000, "default", count);
    decisions(10_000, "gpuspec33", count);
    println!("\nper decision, 10000 nodes take {:.2} times as long as 1000", large / small);
    why();
}

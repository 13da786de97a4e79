//! `cargo xtask bench budget`: passes over 1,000 budgets and 10,000 running pods, with 50 pods a second that end and 50 that begin,
//! through an hour's turn, and a controller that starts anew on what was stored.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::budget::BudgetObject;
use divvy_budget::Treasury;
use divvy_budget::facts::PodFacts;
use divvy_budget::news::{Kind, News, NodeSeen};
use divvy_budget::treasury::{Settings, StoredCharges, Written};
use divvy_budget::write::Write;
use divvy_core::ask::{Class, Role};
use divvy_core::device::{Device, DeviceKind, Inventory, Isolation};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::id::PodKey;
use divvy_core::time::Time;
use divvy_core::units::{Bytes, Share};
use serde_json::json;

const BUDGETS: usize = 1_000;
const PODS: usize = 10_000;
const NODES: usize = 1_250;
const CHURN: usize = 50;
const SECONDS: u64 = 600;
/// Five minutes before a full hour, so that one turns in the middle.
const BEGIN: u64 = 1_794_787_200_000 - 300_000;

fn at(second: u64) -> Time {
    Time(BEGIN + second * 1000)
}

fn node(index: usize) -> NodeSeen {
    let device = |i: u32| Device::gpu(format!("GPU-{index}-{i}"), i, "NVIDIA-H200", Bytes::gib(141));
    NodeSeen {
        name: format!("n{index}").into(),
        inventory: Inventory { devices: (0..8).map(device).collect(), ..Inventory::default() },
        agent: None,
        cut: None,
    }
}

fn pod(index: usize, from: Time) -> PodFacts {
    let slice = Slice {
        device: format!("GPU-{}-{}", index % NODES, index / NODES % 8).into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::gib(16),
        memory_limit: Bytes::gib(16),
        share: Share(250),
        share_limit: Share(1000),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    };
    let containers = vec![ContainerGrant { name: "main".into(), role: Role::Main, slices: vec![slice] }];
    PodFacts {
        uid: format!("uid-{index}").into(),
        key: PodKey::new(format!("team-{}", index % BUDGETS), format!("pod-{index}")),
        node: Some(format!("n{}", index % NODES).into()),
        asks: true,
        wants: None,
        class: Some(Class::Guarantee),
        grants: vec![Arc::new(Grant { v: 1, at: from.0, policy: "frag".into(), containers, claim: None })],
        init_done: Some(Time(0)),
        finished: None,
        over: false,
        evicted: false,
    }
}

fn budget(index: usize) -> BudgetObject {
    // Some run out while we watch.
    let amount = if index.is_multiple_of(10) { "5m" } else { "500h" };
    serde_json::from_value(json!({
        "metadata": {"name": "gpu", "namespace": format!("team-{index}"), "uid": format!("b{index}"), "resourceVersion": "1",
            "creationTimestamp": "2026-11-15T00:00:00Z"},
        "spec": {"gpuTime": amount, "period": {"every": "month", "timeZone": "Europe/Berlin"}},
    }))
    .unwrap()
}

struct Stored {
    budgets: BTreeMap<String, BudgetObject>,
    charges: BTreeMap<String, StoredCharges>,
    pods: BTreeMap<usize, PodFacts>,
}

impl Stored {
    fn start(&self, now: Time) -> (Treasury, Duration) {
        let mut treasury = Treasury::new(Settings::default());
        for i in 0..BUDGETS {
            treasury.hear(News::Namespace(format!("team-{i}").into(), BTreeMap::new()), now);
        }
        (0..NODES).for_each(|i| treasury.hear(News::Node(Box::new(node(i))), now));
        self.budgets.values().for_each(|b| treasury.hear(News::Budget(Box::new(b.clone())), now));
        self.pods.values().for_each(|p| treasury.hear(News::Pod(Box::new(p.clone())), now));
        Kind::ALL.into_iter().for_each(|kind| treasury.hear(News::Complete(kind), now));
        let stored = self.charges.values().cloned().collect();
        let began = Instant::now();
        treasury.open_books(stored, now);
        (treasury, began.elapsed())
    }

    fn carry_out(&mut self, treasury: &mut Treasury, writes: &[Write], now: Time) {
        for write in writes {
            let mut written = Written::default();
            written.metadata.resource_version = "2".into();
            match write {
                Write::Budget { key, status, .. } => {
                    let object = self.budgets.get_mut(&key.to_string()).unwrap();
                    object.status = (**status).clone();
                }
                Write::Charges { name, spec, .. } => {
                    let stored = StoredCharges { name: name.clone(), version: "2".into(), spec: (**spec).clone() };
                    self.charges.insert(name.clone(), stored);
                }
                Write::Class { target, class, .. } => {
                    let index: usize = target.uid.as_str()[4..].parse().unwrap();
                    let facts = self.pods.get_mut(&index).unwrap();
                    facts.class = Some(*class);
                    let facts = facts.clone();
                    treasury.hear(News::Pod(Box::new(facts)), now);
                }
                _ => {}
            }
            treasury.done(write, &Ok(written), now);
        }
    }
}

fn main() {
    let mut stored = Stored {
        budgets: (0..BUDGETS).map(budget).map(|b| (format!("{}/gpu", b.metadata.namespace), b)).collect(),
        charges: BTreeMap::new(),
        pods: (0..PODS).map(|i| (i, pod(i, at(0)))).collect(),
    };
    let (mut treasury, opened) = stored.start(at(0));
    println!("{BUDGETS} budgets, {PODS} running pods: books opened in {opened:?}");
    let (mut passes, mut writes, mut classes) = (Vec::new(), Vec::new(), 0);
    let mut next = PODS;
    for second in 1..=SECONDS {
        for oldest in stored.pods.keys().copied().take(CHURN).collect::<Vec<_>>() {
            let mut facts = stored.pods.remove(&oldest).unwrap();
            (facts.finished, facts.over) = (Some(at(second)), true);
            treasury.hear(News::Pod(Box::new(facts)), at(second));
            treasury.hear(News::PodGone(format!("uid-{oldest}").into()), at(second));
        }
        for _ in 0..CHURN {
            let facts = pod(next, at(second));
            treasury.hear(News::Pod(Box::new(facts.clone())), at(second));
            stored.pods.insert(next, facts);
            next += 1;
        }
        let began = Instant::now();
        let pass = treasury.pass(at(second));
        passes.push(began.elapsed());
        writes.push(pass.writes.iter().filter(|w| w.is_paced()).count());
        classes += pass.writes.iter().filter(|w| !w.is_paced()).count();
        stored.carry_out(&mut treasury, &pass.writes, at(second));
    }
    passes.sort_unstable();
    let most = writes.iter().max().copied().unwrap_or(0);
    let mean = writes.iter().sum::<usize>() as f64 / writes.len() as f64;
    println!(
        "{SECONDS} passes, one a second, {CHURN} pods ending and {CHURN} beginning in each: median {:?}, longest {:?}",
        passes[passes.len() / 2],
        passes[passes.len() - 1]
    );
    println!(
        "writes of statuses and charges per second: at most {most}, {mean:.1} on average; {classes} pods changed class"
    );
    let (mut again, opened) = stored.start(at(SECONDS + 60));
    let began = Instant::now();
    again.pass(at(SECONDS + 60));
    println!(
        "started anew on {} stored charges: books opened in {opened:?}, first pass {:?}",
        stored.charges.len(),
        began.elapsed()
    );
    assert!(passes[passes.len() - 1] <= Duration::from_secs(1), "a pass takes at most a second");
    assert!(most <= 20, "at most 20 writes a second");
}

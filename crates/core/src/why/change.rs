//! Single changes to a request, and the smallest of them that helps.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Bench, Group};
use crate::model::ask::{DeviceAsk, DeviceRule, GpuAsk, MemoryAsk, ModelRule, Topology};
use crate::model::node::Effect;
use crate::model::pod::{Pod, PodSpec, Toleration, TolerationValue};
use crate::model::units::{Bytes, Share};

/// A change to what a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "camelCase")]
pub enum Change {
    /// So much memory per device.
    DeviceMemory {
        /// Instead of.
        from: Bytes,
        /// The most that fits.
        most: Bytes,
    },
    /// So much time per device.
    DeviceShare {
        /// Instead of.
        from: Share,
        /// The most that fits.
        most: Share,
    },
    /// So many devices.
    Devices {
        /// Instead of.
        from: u32,
        /// The most that fit.
        most: u32,
    },
    /// So much CPU, in thousandths of a core.
    Cpu {
        /// Instead of.
        from: u64,
        /// The most that fits.
        most: u64,
    },
    /// So much main memory.
    Memory {
        /// Instead of.
        from: Bytes,
        /// The most that fits.
        most: Bytes,
    },
    /// So many members of the gang at once.
    GangMin {
        /// Instead of.
        from: u32,
        /// As many as fit together.
        most: u32,
    },
    /// Any model.
    AnyModel,
    /// Any device, not only those named.
    AnyDevice,
    /// Devices however they are connected.
    AnyTopology,
    /// Any isolation.
    AnyIsolation,
    /// Nodes whatever their labels.
    AnyNode,
    /// A toleration.
    Tolerate {
        /// Of this taint.
        taint: Arc<str>,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::DeviceMemory { from, most } => write!(f, "with {most} of device memory instead of {from}"),
            Change::DeviceShare { from, most } => write!(f, "with a share of {most} instead of {from}"),
            Change::Devices { from, most } => write!(f, "with {most} devices instead of {from}"),
            Change::Cpu { from, most } => {
                write!(f, "with {} CPUs instead of {}", *most as f64 / 1000.0, *from as f64 / 1000.0)
            }
            Change::Memory { from, most } => write!(f, "with {most} of memory instead of {from}"),
            Change::GangMin { from, most } => {
                write!(f, "if {most} members of the gang could start without the other {}", from - most)
            }
            Change::AnyModel => f.write_str("on any model"),
            Change::AnyDevice => f.write_str("on devices it does not name"),
            Change::AnyTopology => f.write_str("however its devices are connected"),
            Change::AnyIsolation => f.write_str("with any isolation"),
            Change::AnyNode => f.write_str("without its node selector and affinity"),
            Change::Tolerate { taint } => write!(f, "if it tolerated {taint}"),
        }
    }
}

/// The first request for devices, which is the one that is changed.
fn want(ask: &mut GpuAsk) -> Option<&mut DeviceAsk> {
    ask.containers.iter_mut().flat_map(|c| &mut c.wants).next()
}

/// The pod with another ask or spec.
fn with_ask(pod: &Pod, change: impl Fn(&mut GpuAsk)) -> Pod {
    let mut pod = pod.clone();
    if let Some(ask) = &mut pod.ask {
        change(Arc::make_mut(ask));
    }
    pod
}

fn with_spec(pod: &Pod, change: impl Fn(&mut PodSpec)) -> Pod {
    let mut pod = pod.clone();
    change(Arc::make_mut(&mut pod.spec));
    pod
}

/// The smallest change: the amount that has to shrink least, if it keeps half of what was asked for; else a rule to give up; else any
/// amount.
pub(super) fn smallest(bench: &mut Bench<'_>, group: &Group) -> Option<Change> {
    let pod = group.waiting.first().and_then(|ix| bench.snapshot.pod_at(*ix))?.pod().clone();
    let mut amounts: Vec<(f64, Change)> = Vec::new();
    let mut add = |from: u64, most: Option<u64>, change: &dyn Fn(u64) -> Change| {
        if let Some(most) = most {
            amounts.push(((from - most) as f64 / from.max(1) as f64, change(most)));
        }
    };
    if let Some(ask) = pod.ask.as_deref() {
        let mut ask = ask.clone();
        let want = want(&mut ask)?.clone();
        if let MemoryAsk::Bytes(from) = want.memory {
            let mib = from.0 >> 20;
            let most = most(bench, group, mib, |pod, mib| {
                with_ask(pod, |ask| set(ask, |w| w.memory = MemoryAsk::Bytes(Bytes::mib(mib))))
            });
            add(mib, most, &|mib| Change::DeviceMemory { from, most: Bytes::mib(mib) });
        }
        if !want.exclusive && want.share.0 > 0 {
            let from = want.share;
            let shrink = |pod: &Pod, share: u64| {
                with_ask(pod, |ask| {
                    set(ask, |w| {
                        w.share = Share(share as u32);
                        // A part of the memory that went with the share shrinks with it.
                        if w.memory == MemoryAsk::Part(from) {
                            w.memory = MemoryAsk::Part(Share(share as u32));
                        }
                    })
                })
            };
            let most = most(bench, group, u64::from(from.0), shrink);
            add(u64::from(from.0), most, &|share| Change::DeviceShare { from, most: Share(share as u32) });
        }
        if want.count > 1 {
            let most = most(bench, group, u64::from(want.count), |pod, count| {
                with_ask(pod, |ask| set(ask, |w| w.count = count as u32))
            });
            add(u64::from(want.count), most, &|count| Change::Devices { from: want.count, most: count as u32 });
        }
    }
    let (cpu, memory) = (pod.spec.requests.cpu, pod.spec.requests.memory);
    if cpu > 0 {
        let most = most(bench, group, cpu / 100, |pod, cpu| with_spec(pod, |spec| spec.requests.cpu = cpu * 100));
        add(cpu / 100, most, &|most| Change::Cpu { from: cpu, most: most * 100 });
    }
    if memory.0 > 0 {
        let most = most(bench, group, memory.0 >> 20, |pod, mib| {
            with_spec(pod, |spec| spec.requests.memory = Bytes::mib(mib))
        });
        add(memory.0 >> 20, most, &|mib| Change::Memory { from: memory, most: Bytes::mib(mib) });
    }
    let fit = bench.fit(group);
    if group.waiting.len() > 1 && fit > 0 {
        add(u64::from(group.min), Some(u64::from(fit)), &|most| Change::GangMin { from: group.min, most: most as u32 });
    }
    amounts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let amount = amounts.into_iter().next();
    match amount {
        Some((part, change)) if part <= 0.5 => Some(change),
        amount => rule(bench, group, &pod).or(amount.map(|(_, change)| change)),
    }
}

fn set(ask: &mut GpuAsk, change: impl Fn(&mut DeviceAsk)) {
    if let Some(want) = want(ask) {
        change(want);
        want.share_limit = want.share_limit.max(want.share);
        want.memory_limit = None;
    }
}

/// The largest amount below `from` with which the group runs, if there is one above nothing.
fn most(bench: &mut Bench<'_>, group: &Group, from: u64, shrink: impl Fn(&Pod, u64) -> Pod) -> Option<u64> {
    if from <= 1 || !runs_with(bench, group, |pod| shrink(pod, 1)) {
        return None;
    }
    let (mut fits, mut too_much) = (1, from);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if runs_with(bench, group, |pod| shrink(pod, middle)) { fits = middle } else { too_much = middle }
    }
    Some(fits)
}

/// A rule given up, and the pod without it.
type Relaxed<'a> = (Change, &'a dyn Fn(&Pod) -> Pod);

/// The first rule without which the group runs.
fn rule(bench: &mut Bench<'_>, group: &Group, pod: &Pod) -> Option<Change> {
    let rules: [Relaxed<'_>; 5] = [
        (Change::AnyTopology, &|pod| with_ask(pod, |ask| ask.topology = Topology::Best)),
        (Change::AnyIsolation, &|pod| with_ask(pod, |ask| ask.isolation.clear())),
        (Change::AnyDevice, &|pod| with_ask(pod, |ask| ask.devices = DeviceRule::default())),
        (Change::AnyModel, &|pod| with_ask(pod, |ask| ask.models = ModelRule::default())),
        (Change::AnyNode, &|pod| {
            with_spec(pod, |spec| {
                spec.node_selector.clear();
                spec.node_affinity = None;
            })
        }),
    ];
    for (change, relax) in rules {
        if relax(pod) != *pod && runs_with(bench, group, relax) {
            return Some(change);
        }
    }
    let mut taints: Vec<Arc<str>> = bench
        .snapshot
        .nodes()
        .flat_map(|(_, state)| state.node().taints.iter().filter(|t| t.effect != Effect::PreferNoSchedule))
        .map(|taint| taint.key.clone())
        .collect();
    taints.sort();
    taints.dedup();
    taints.into_iter().find_map(|taint| {
        let toleration = Toleration { key: Some(taint.clone()), value: TolerationValue::Any, effect: None };
        runs_with(bench, group, |pod| with_spec(pod, |spec| spec.tolerations.push(toleration.clone())))
            .then_some(Change::Tolerate { taint })
    })
}

/// Would the group run if all its waiting members were changed so?
fn runs_with(bench: &mut Bench<'_>, group: &Group, change: impl Fn(&Pod) -> Pod) -> bool {
    let pods: Vec<Pod> =
        group.waiting.iter().filter_map(|ix| bench.snapshot.pod_at(*ix)).map(|state| state.pod().clone()).collect();
    pods.iter().for_each(|pod| bench.snapshot.put_pod(change(pod)));
    let runs = bench.runs(group);
    pods.into_iter().for_each(|pod| bench.snapshot.put_pod(pod));
    runs
}

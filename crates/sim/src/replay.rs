//! One contestant, one workload: who was placed where, and how full the cluster was when demand reached what it has.

use std::fmt;
use std::sync::Arc;

use divvy_core::policy::Placement;
use divvy_core::time::Time;
use divvy_core::worth::Mix;
use divvy_core::{Engine, Policy, Snapshot};

use crate::cluster::{self, Pods};
use crate::rivals::{Rival, Yard};
use crate::rows::{PodRow, Request, capacity};
use crate::workload::Workload;

/// Who places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// A policy of the product.
    Ours(Placement),
    /// The default policy, told the mix of requests in advance.
    Told,
    /// A published way, to compare with.
    Rival(Rival),
}

impl Contestant {
    /// The one of a name.
    pub fn named(name: &str) -> Result<Contestant, String> {
        if name == "frag-told" {
            return Ok(Contestant::Told);
        }
        if let Some(rival) = Rival::ALL.into_iter().find(|rival| rival.name() == name) {
            return Ok(Contestant::Rival(rival));
        }
        match name {
            "hami-binpack" | "hami-spread" => Ok(Contestant::Ours(hami(name))),
            _ => Placement::named(name).map(Contestant::Ours).map_err(|_| {
                let known: Vec<String> = Contestant::all().iter().map(ToString::to_string).collect();
                format!("there is no policy `{name}`; there are {}", known.join(", "))
            }),
        }
    }

    /// All there are, as they stand in the table.
    pub fn all() -> Vec<Contestant> {
        let ours = [
            "hami-spread",
            "hami",
            "hami-binpack",
            "vgpu",
            "gpushare",
            "gpu-manager",
            "kubeshare",
            "kubegpu",
            "spread",
            "binpack",
        ];
        let mut all: Vec<Contestant> = ours.iter().filter_map(|name| Contestant::named(name).ok()).collect();
        all.extend(Rival::ALL.map(Contestant::Rival));
        all.extend([Contestant::Ours(Placement::Frag), Contestant::Told]);
        all
    }
}

fn hami(name: &str) -> Placement {
    let policy = if name == "hami-binpack" { "binpack" } else { "spread" };
    let settings = [("node".to_owned(), policy.to_owned()), ("gpu".to_owned(), policy.to_owned())].into();
    let choice = divvy_core::ask::PolicyChoice { name: Some("hami".into()), settings };
    Placement::read(&choice, &Placement::Frag).unwrap_or(Placement::Frag)
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Told => f.write_str("frag-told"),
            Contestant::Rival(rival) => f.write_str(rival.name()),
            Contestant::Ours(placement) if *placement == hami("hami-binpack") => f.write_str("hami-binpack"),
            Contestant::Ours(placement) if *placement == hami("hami-spread") => f.write_str("hami-spread"),
            Contestant::Ours(placement) => f.write_str(placement.name()),
        }
    }
}

/// A pod's place: the node and the numbers of its GPUs.
pub type Place = Option<(Arc<str>, Vec<u32>)>;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Where each pod that came went.
    pub placed: Vec<Place>,
    /// GPU capacity not allocated, in percent, averaged over the arrivals at which demand rounds to 100 % of capacity.
    pub unallocated: f64,
    /// The same at 130 %.
    pub unallocated_at_130: f64,
    /// Demand and allocation in percent of capacity, at every percent of demand.
    pub curve: Vec<(f64, f64)>,
}

/// Whatever can place pods one by one.
pub(crate) trait Placing {
    /// Places a pod, or not.
    fn place(&mut self, name: &str, request: &Request) -> Place;
    /// A pod leaves.
    fn leave(&mut self, name: &str);
}

/// Replays a workload. `target` is the mix the contestant is told, if it listens; `seen` is called after every arrival.
pub fn replay(contestant: &Contestant, work: &Workload, target: &[Request], mut seen: impl FnMut()) -> Outcome {
    let mut placing = placing(contestant, work, target);
    let whole = capacity(&work.nodes) as f64;
    let (mut demand, mut allocated) = (0u64, 0u64);
    let mut sums = [(0.0, 0u32); 2];
    let mut outcome = Outcome::default();
    let mut held = std::collections::HashMap::new();
    for PodRow { name, request, leaves } in &work.pods {
        if *leaves {
            if let Some(gpu) = held.remove(name) {
                placing.leave(name);
                allocated -= gpu;
            }
            continue;
        }
        demand += request.gpu();
        let place = placing.place(name, request);
        if place.is_some() {
            allocated += request.gpu();
            held.insert(name.clone(), request.gpu());
        }
        outcome.placed.push(place);
        let (asked, given) = (100.0 * demand as f64 / whole, 100.0 * allocated as f64 / whole);
        for (sum, at) in sums.iter_mut().zip([100.0, 130.0]) {
            if asked.round() == at {
                *sum = (sum.0 + given, sum.1 + 1);
            }
        }
        if outcome.curve.last().is_none_or(|(last, _)| asked.floor() > last.floor()) {
            outcome.curve.push((asked, given));
        }
        seen();
    }
    let mean = |(sum, n): (f64, u32)| if n == 0 { f64::NAN } else { 100.0 - sum / f64::from(n) };
    (outcome.unallocated, outcome.unallocated_at_130) = (mean(sums[0]), mean(sums[1]));
    outcome
}

pub(crate) fn placing(contestant: &Contestant, work: &Workload, target: &[Request]) -> Box<dyn Placing> {
    match contestant {
        Contestant::Rival(rival) => Box::new(Yard::of(*rival, &work.nodes, target)),
        Contestant::Told => Box::new(Ours::new(Placement::Frag, work, Some(target))),
        Contestant::Ours(placement) => Box::new(Ours::new(placement.clone(), work, None)),
    }
}

/// The product: a snapshot, an engine, and a policy.
pub(crate) struct Ours {
    snapshot: Snapshot,
    engine: Engine,
    policy: Policy,
    pods: Pods,
}

impl Ours {
    pub(crate) fn new(placement: Placement, work: &Workload, target: Option<&[Request]>) -> Ours {
        let mut pods = Pods::on(&work.nodes);
        let mut snapshot = cluster::snapshot(&work.nodes);
        if let Some(target) = target {
            let pods: Vec<_> = target.iter().map(|request| pods.pod("target", request)).collect();
            snapshot.expect(Mix::told(&pods));
        }
        Ours { snapshot, engine: Engine::default(), policy: Policy::only(placement), pods }
    }
}

impl Placing for Ours {
    fn place(&mut self, name: &str, request: &Request) -> Place {
        let pod = self.pods.pod(name, request);
        let uid = pod.uid.clone();
        self.snapshot.put_pod(pod);
        if self.policy.placement == Placement::Frag && self.snapshot.is_worth_stale() {
            self.snapshot.reckon_worth();
        }
        let ix = self.snapshot.find_pod(&uid)?;
        let Some(spot) = self.engine.find(&self.snapshot, &self.policy, ix, Time(0)) else {
            self.snapshot.remove_pod(&uid);
            return None;
        };
        let node = self.snapshot.node_at(spot.node)?.node();
        let (gpus, node) = (cluster::gpus(node, spot.grant.as_ref()), node.name.clone());
        let placed = self.snapshot.place(&uid, &node, spot.grant.map(Arc::new), Time(0));
        debug_assert_eq!(placed, Ok(()));
        placed.ok()?;
        Some((node.as_str().into(), gpus))
    }

    fn leave(&mut self, name: &str) {
        self.snapshot.remove_pod(&divvy_core::id::PodUid::from(format!("trace/{name}")));
    }
}

#[cfg(test)]
mod tests;

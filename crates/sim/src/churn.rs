//! Pods that come and go: exponential lifetimes at an offered load, and how much of the demand is refused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::replay::{Contestant, placing};
use crate::rows::{NodeRow, Request, capacity};
use crate::workload::{Random, Workload};

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Churn<'a> {
    /// The nodes.
    pub nodes: &'a [NodeRow],
    /// The mix of requests.
    pub list: &'a [Request],
    /// Another mix, which takes over after three mean lifetimes; what is refused is then counted from there on.
    pub then: Option<&'a [Request]>,
    /// GPU demand offered, as a part of capacity.
    pub load: f64,
    /// The seed.
    pub seed: u64,
}

/// Mean lifetimes until counting begins, and until the end.
const SPAN: (f64, f64) = (2.0, 6.0);
/// When another mix takes over.
const CHANGE: f64 = 3.0;

/// GPU demand refused, in percent.
pub fn refused(contestant: &Contestant, churn: &Churn<'_>) -> f64 {
    let mut random = Random::new(churn.seed ^ 0x5eed);
    let mut nodes = churn.nodes.to_vec();
    random.shuffle(&mut nodes);
    let mut placing = placing(contestant, &Workload { nodes, pods: Vec::new() }, churn.list);
    let whole = capacity(churn.nodes) as f64;
    let rate = |list: &[Request]| {
        let mean = list.iter().map(|r| r.gpu() as f64).sum::<f64>() / list.len().max(1) as f64;
        churn.load * whole / mean.max(1.0)
    };
    let wait = |random: &mut Random| -(1.0 - random.fraction()).ln();
    let mut list = churn.list;
    let counted = if churn.then.is_some() { CHANGE } else { SPAN.0 };
    // Moments are whole numbers, so that they can be ordered.
    let moment = |time: f64| (time * 1e12) as u64;
    let mut leaving: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut time, mut number) = (0.0, 0u64);
    let (mut offered, mut lost) = (0u64, 0u64);
    while time < SPAN.1 {
        time += wait(&mut random) / rate(list);
        if time > CHANGE {
            list = churn.then.unwrap_or(list);
        }
        while let Some(Reverse((_, pod))) = leaving.peek().copied().filter(|Reverse((at, _))| *at <= moment(time)) {
            leaving.pop();
            placing.leave(&format!("pod-{pod}"));
        }
        let request = &list[random.below(list.len())];
        let life = wait(&mut random);
        number += 1;
        let placed = placing.place(&format!("pod-{number}"), request).is_some();
        if placed {
            leaving.push(Reverse((moment(time + life), number)));
        }
        if time > counted {
            offered += request.gpu();
            lost += if placed { 0 } else { request.gpu() };
        }
    }
    100.0 * lost as f64 / offered.max(1) as f64
}

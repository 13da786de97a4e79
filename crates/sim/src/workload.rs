//! The arrivals of a seed: the list shuffled, then drawn from until demand is 130 % of capacity; and one order of the nodes, in which ties break.

use std::sync::Arc;

use crate::rows::{NodeRow, PodRow, Request, capacity};

/// A small random generator (splitmix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// A number in `0..1`.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts items in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// What comes, and where to.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The nodes, in the order in which ties break.
    pub nodes: Vec<NodeRow>,
    /// The pods, in the order in which they come.
    pub pods: Vec<PodRow>,
}

/// The workload of a seed.
pub fn workload(nodes: &[NodeRow], list: &[Request], seed: u64) -> Workload {
    let mut random = Random::new(seed);
    let goal = capacity(nodes) * 13 / 10;
    let mut pods = list.to_vec();
    random.shuffle(&mut pods);
    let mut demand: u64 = pods.iter().map(Request::gpu).sum();
    while demand < goal && !list.is_empty() && list.iter().any(|r| r.gpu() > 0) {
        let drawn = list[random.below(list.len())].clone();
        demand += drawn.gpu();
        pods.push(drawn);
    }
    while demand > goal {
        demand -= pods.remove(random.below(pods.len())).gpu();
    }
    let mut nodes = nodes.to_vec();
    random.shuffle(&mut nodes);
    let named =
        |(i, request): (usize, Request)| PodRow { name: Arc::from(format!("pod-{i:05}")), request, leaves: false };
    Workload { nodes, pods: pods.into_iter().enumerate().map(named).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace;

    #[test]
    fn a_seed_gives_the_same_arrivals_every_time() {
        let (nodes, list) = (trace::nodes(), trace::list("default").unwrap());
        let (a, b) = (workload(&nodes, &list, 7), workload(&nodes, &list, 7));
        assert_eq!((&a.pods, &a.nodes), (&b.pods, &b.nodes));
        assert_ne!(a.pods, workload(&nodes, &list, 8).pods);
        let demand: u64 = a.pods.iter().map(|p| p.request.gpu()).sum();
        let aim = capacity(&nodes) * 13 / 10;
        assert!(demand.abs_diff(aim) <= 8000, "{demand} {aim}");
    }
}

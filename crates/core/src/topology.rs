//! Which devices of a node belong together: the best set of k by the worst link in it.

use crate::ask::Topology;
use crate::device::Link;
use crate::snapshot::NodeState;

/// Link levels, best first.
const LEVELS: [Link; 8] = [
    Link::NvLink,
    Link::SameBoard,
    Link::SingleSwitch,
    Link::MultiSwitch,
    Link::HostBridge,
    Link::SameCpu,
    Link::CrossCpu,
    Link::Unknown,
];

/// The worst link between any two of these devices; one device alone has the best there is.
pub fn worst_link(node: &NodeState, devices: &[usize]) -> Link {
    let pairs = devices.iter().enumerate().flat_map(|(i, a)| devices[i + 1..].iter().map(move |b| node.link(*a, *b)));
    pairs.min().unwrap_or(Link::NvLink)
}

/// The best set of `k` of `candidates` (given best first): that whose worst link is best, and among those the one whose members come
/// first. Absent where no set does what `topology` demands.
pub fn best_set(node: &NodeState, candidates: &[usize], k: usize, topology: Topology) -> Option<Vec<usize>> {
    if candidates.len() < k {
        return None;
    }
    if k <= 1 {
        return Some(candidates[..k].to_vec());
    }
    match topology {
        Topology::Best | Topology::SameDevice => LEVELS.iter().find_map(|level| clique(node, candidates, k, *level)),
        Topology::AtLeast(least) => {
            LEVELS.iter().take_while(|level| **level >= least).find_map(|level| clique(node, candidates, k, *level))
        }
        Topology::SameNuma => {
            let numa = |device: usize| node.node().inventory.devices.get(device).and_then(|d| d.numa);
            let mut seen = Vec::new();
            for at in candidates.iter().filter_map(|c| numa(*c)) {
                if !seen.contains(&at) {
                    seen.push(at);
                }
            }
            let within = |at: &u32| candidates.iter().copied().filter(|c| numa(*c) == Some(*at)).collect::<Vec<_>>();
            let sets = seen.iter().map(within).filter_map(|own| best_set(node, &own, k, Topology::Best));
            // Of equally close sets the first: `max_by_key` would take the last.
            sets.fold(None, |best: Option<(Link, Vec<usize>)>, set| {
                let worst = worst_link(node, &set);
                if best.as_ref().is_some_and(|(link, _)| *link >= worst) { best } else { Some((worst, set)) }
            })
            .map(|(_, set)| set)
        }
        Topology::Spread => Some(apart(node, candidates, k)),
    }
}

/// The first set of `k` candidates, in their order, every two of which are at least this close.
fn clique(node: &NodeState, candidates: &[usize], k: usize, level: Link) -> Option<Vec<usize>> {
    fn grow(node: &NodeState, rest: &[usize], k: usize, level: Link, set: &mut Vec<usize>) -> bool {
        if set.len() == k {
            return true;
        }
        for (i, next) in rest.iter().enumerate() {
            if set.len() + rest.len() - i < k {
                return false;
            }
            if set.iter().all(|member| node.link(*member, *next) >= level) {
                set.push(*next);
                if grow(node, &rest[i + 1..], k, level, set) {
                    return true;
                }
                set.pop();
            }
        }
        false
    }
    let mut set = Vec::with_capacity(k);
    grow(node, candidates, k, level, &mut set).then_some(set)
}

/// Devices as far apart as possible: each next one is the worst connected to those taken.
fn apart(node: &NodeState, candidates: &[usize], k: usize) -> Vec<usize> {
    let mut set = vec![candidates[0]];
    while set.len() < k {
        let closeness = |c: &usize| set.iter().map(|member| node.link(*member, *c)).max();
        let rest = candidates.iter().filter(|c| !set.contains(c));
        match rest.min_by_key(|c| closeness(c)) {
            Some(next) => set.push(*next),
            None => break,
        }
    }
    set
}

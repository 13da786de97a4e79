//! Which devices of a node belong together: the best set of k by the worst link in it.

use crate::ledger::snapshot::NodeState;
use crate::model::ask::Topology;
use crate::model::device::Link;

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

/// Link levels down to the worst that will do, best first.
pub(crate) fn levels(least: Link) -> impl Iterator<Item = Link> {
    LEVELS.into_iter().take_while(move |level| *level >= least)
}

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
        Topology::Best | Topology::SameDevice => {
            levels(Link::Unknown).find_map(|level| clique(node, candidates, k, level))
        }
        Topology::AtLeast(least) => levels(least).find_map(|level| clique(node, candidates, k, level)),
        Topology::SameNuma => {
            let groups = numa_groups(node, candidates);
            let sets = groups.iter().filter_map(|own| best_set(node, own, k, Topology::Best));
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

/// The candidates by NUMA node, in the order in which the nodes first occur. A card that does not know its own belongs nowhere, unless
/// no card of the machine knows: a virtual machine has one node and says so of no device.
pub fn numa_groups(node: &NodeState, candidates: &[usize]) -> Vec<Vec<usize>> {
    let devices = &node.node().inventory.devices;
    let kind = candidates.first().and_then(|c| devices.get(*c)).map(|d| d.kind);
    let known = devices.iter().any(|d| Some(d.kind) == kind && d.numa.is_some());
    let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
    for candidate in candidates.iter().copied() {
        let own = devices.get(candidate).and_then(|d| d.numa);
        let Some(at) = own.or((!known).then_some(0)) else { continue };
        match groups.iter_mut().find(|(numa, _)| *numa == at) {
            Some((_, group)) => group.push(candidate),
            None => groups.push((at, vec![candidate])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::snapshot::Snapshot;

    /// Machines as they are built: eight cards on one NVSwitch; two sockets of four cards behind a switch each; pairs by
    /// NVLink on two sockets; and one where cards of two generations hang on what was free.
    const MACHINES: [&str; 4] = [
        "node dgx gpu=8:80Gi:H100 links=0..7:nv-link numa=0,0,0,0,1,1,1,1",
        "node pcie gpu=8 links=0..7:cross-cpu,0..3:single-switch,4..7:single-switch numa=0,0,0,0,1,1,1,1",
        "node pairs gpu=8 links=0..7:cross-cpu,0..3:host-bridge,4..7:same-cpu,0-1:nv-link,2-3:nv-link,4-5:nv-link,6-7:nv-link numa=0,0,0,0,1,1,1,1",
        "node mixed gpu=4:16Gi:T4+3:40Gi:A100 links=0-1:single-switch,1-2:single-switch,2-3:multi-switch,0-3:cross-cpu,4-5:nv-link,5-6:nv-link,4-6:same-cpu,3-4:host-bridge numa=0,0,1,1,1,0,0",
    ];

    fn subsets(items: &[usize], k: usize) -> Vec<Vec<usize>> {
        if k == 0 {
            return vec![Vec::new()];
        }
        let with =
            |i: usize| subsets(&items[i + 1..], k - 1).into_iter().map(move |rest| [vec![items[i]], rest].concat());
        (0..items.len()).flat_map(with).collect()
    }

    fn each_choice(mut check: impl FnMut(&NodeState, &[usize], usize)) {
        for machine in MACHINES {
            let mut snapshot = Snapshot::new();
            snapshot.put_node(crate::testing::node(machine));
            let (_, node) = snapshot.nodes().next().unwrap();
            let cards = node.books().len();
            // Every set of free cards, best first or last first.
            for free in 1u32..1 << cards {
                let mut free: Vec<usize> = (0..cards).filter(|d| free >> d & 1 == 1).collect();
                (1..=free.len()).for_each(|k| check(node, &free, k));
                free.reverse();
                (1..=free.len()).for_each(|k| check(node, &free, k));
            }
        }
    }

    #[test]
    fn the_best_set_is_the_best_of_all_sets() {
        each_choice(|node, free, k| {
            let best = subsets(free, k).iter().map(|set| worst_link(node, set)).max().unwrap();
            let chosen = best_set(node, free, k, Topology::Best).unwrap();
            assert_eq!(chosen.len(), k);
            assert_eq!(worst_link(node, &chosen), best, "{} {free:?} {k}: {chosen:?}", node.node().name);
            // Of equally good sets the one whose members come first.
            let first = subsets(free, k).into_iter().find(|set| worst_link(node, set) == best).unwrap();
            assert_eq!(chosen, first);
        });
    }

    #[test]
    fn a_machine_whose_cards_know_no_numa_node_is_one() {
        let set = |numa: &str| {
            let mut snapshot = Snapshot::new();
            snapshot.put_node(crate::testing::node(&format!("node vm gpu=2 nic=1 {numa}")));
            let (_, node) = snapshot.nodes().next().unwrap();
            best_set(node, &[0, 1], 2, Topology::SameNuma)
        };
        assert_eq!(set(""), Some(vec![0, 1]));
        assert_eq!(set("numa=0"), None, "where one card knows its own, the other may be on any");
    }

    #[test]
    fn a_demand_is_met_exactly_where_any_set_meets_it() {
        each_choice(|node, free, k| {
            let any = |least: Link| subsets(free, k).iter().any(|set| worst_link(node, set) >= least);
            for least in [Link::NvLink, Link::SingleSwitch, Link::HostBridge] {
                let found = best_set(node, free, k, Topology::AtLeast(least));
                assert_eq!(found.is_some(), any(least), "{} {free:?} {k} {least:?}", node.node().name);
            }
            let numa = |set: &[usize]| {
                set.windows(2)
                    .all(|p| node.node().inventory.devices[p[0]].numa == node.node().inventory.devices[p[1]].numa)
            };
            let found = best_set(node, free, k, Topology::SameNuma);
            assert_eq!(found.is_some(), k == 1 || subsets(free, k).iter().any(|set| numa(set)));
            assert!(found.is_none_or(|set| k == 1 || numa(&set)));
        });
    }
}

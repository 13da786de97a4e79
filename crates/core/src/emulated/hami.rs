//! HAMi's way: one policy among nodes, a chain of policies among the cards of a node, and weights for what counts as busy.

use crate::emulated::vgpu;
use crate::fit::topology::{best_set, numa_groups};
use crate::fit::{Choose, Placer, Trial, take_best};
use crate::ledger::Book;
use crate::model::ask::{ContainerAsk, DeviceAsk, Topology};
use crate::model::device::Link;
use crate::model::policy::{CardPolicy, Hami, NodePolicy, Weights};
use crate::model::reason::Obstacle;

pub(crate) struct HamiPlacer {
    settings: Hami,
    /// Most containers on a card, where the policy says so for all.
    most: Option<u32>,
}

impl HamiPlacer {
    pub(crate) fn of(settings: &Hami, most: Option<u32>) -> HamiPlacer {
        HamiPlacer { settings: settings.clone(), most }
    }

    fn chain(&self) -> &[CardPolicy] {
        if self.settings.card.is_empty() { &[CardPolicy::Spread] } else { &self.settings.card }
    }
}

/// How busy a card is, ten for each measure that is full.
fn busy(book: &Book, weights: Weights) -> f64 {
    let part = |used: f64, whole: f64| if whole > 0.0 { used / whole } else { 0.0 };
    let slots = part(f64::from(book.tasks), f64::from(vgpu::split(book)));
    let cores = part(f64::from(book.used_share.0), f64::from(book.share.0));
    let memory = part(book.used_memory.0 as f64, book.memory.0 as f64);
    10.0 * (f64::from(weights.slot) * slots + f64::from(weights.core) * cores + f64::from(weights.memory) * memory)
}

/// What a connection is worth where all pairs of a set are added up.
fn pair_score(link: Link) -> u32 {
    match link {
        Link::NvLink => 100,
        Link::SameBoard => 60,
        Link::SingleSwitch => 50,
        Link::MultiSwitch => 40,
        Link::HostBridge => 30,
        Link::SameCpu => 20,
        Link::CrossCpu => 10,
        Link::Unknown => 0,
    }
}

impl Choose for HamiPlacer {
    fn refuses(&self, trial: &Trial<'_>, container: &ContainerAsk, device: usize) -> Option<Obstacle> {
        if !self.chain().contains(&CardPolicy::Mutex) {
            return vgpu::full(trial, container, device, self.most);
        }
        let book = trial.beside(container, device);
        (!book.is_idle()).then_some(Obstacle::InUse { tasks: book.tasks })
    }

    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let count = want.count as usize;
        let mut order = fits.to_vec();
        // The last of the chain is the least important: sort by it first, the sorts are stable.
        let numa = |d: &usize| std::cmp::Reverse(trial.devices()[*d].numa.unwrap_or(0));
        order.sort_by_key(numa);
        for policy in self.chain().iter().rev() {
            match policy {
                CardPolicy::Spread => order.sort_by(|a, b| self.busy(trial, *a).total_cmp(&self.busy(trial, *b))),
                CardPolicy::Binpack => order.sort_by(|a, b| self.busy(trial, *b).total_cmp(&self.busy(trial, *a))),
                CardPolicy::Mutex | CardPolicy::Numa | CardPolicy::TopologyAware => {}
            }
        }
        if order.len() < count {
            return None;
        }
        if self.chain().contains(&CardPolicy::TopologyAware) {
            match trial.ask.topology {
                Topology::SameNuma if count > 1 => return connected(trial, &numa_groups(trial.node, &order), count),
                Topology::AtLeast(_) | Topology::Spread => return take_best(trial, want, &order),
                _ => return connected(trial, &[order], count),
            }
        }
        if self.chain().contains(&CardPolicy::Numa)
            && let Some(set) = best_set(trial.node, &order, count, Topology::SameNuma)
        {
            return Some(set);
        }
        match trial.ask.topology {
            // HAMi takes the first cards in order; only a demand of the pod itself changes that.
            Topology::Best => Some(order[..count].to_vec()),
            _ => take_best(trial, want, &order),
        }
    }
}

impl HamiPlacer {
    fn busy(&self, trial: &Trial<'_>, device: usize) -> f64 {
        busy(&trial.book_with(device), self.settings.weights)
    }
}

/// The set within one of these groups whose pairs add up to most; a single card is the one that connects worst. Absent where no group
/// is large enough.
fn connected(trial: &Trial<'_>, groups: &[Vec<usize>], count: usize) -> Option<Vec<usize>> {
    let pair = |a: usize, b: usize| pair_score(trial.node.link(a, b));
    if count == 1 {
        let kind = |d: usize| trial.devices()[d].kind;
        let others = |d: usize| (0..trial.devices().len()).filter(move |o| *o != d && kind(*o) == kind(d));
        let sum = |d: usize| others(d).map(|o| pair(d, o)).sum::<u32>();
        return groups.iter().flatten().copied().min_by_key(|d| sum(*d)).map(|d| vec![d]);
    }
    let mut best: Option<(u32, Vec<usize>)> = None;
    for group in groups {
        each_set(group, count, &mut Vec::new(), &mut |set| {
            let sum = set.iter().enumerate().flat_map(|(i, a)| set[i + 1..].iter().map(move |b| pair(*a, *b))).sum();
            if best.as_ref().is_none_or(|(most, _)| sum > *most) {
                best = Some((sum, set.to_vec()));
            }
        });
    }
    best.map(|(_, set)| set)
}

fn each_set(rest: &[usize], count: usize, set: &mut Vec<usize>, found: &mut dyn FnMut(&[usize])) {
    if set.len() == count {
        return found(set);
    }
    for (i, next) in rest.iter().enumerate() {
        if set.len() + rest.len() - i < count {
            return;
        }
        set.push(*next);
        each_set(&rest[i + 1..], count, set, found);
        set.pop();
    }
}

impl Placer for HamiPlacer {
    /// Of the node as it is before the pod comes.
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let mut sums = [0.0; 6];
        for book in trial.cards().map(|d| trial.book(d)) {
            let parts = [
                f64::from(book.tasks),
                f64::from(vgpu::split(book)),
                f64::from(book.used_share.0),
                f64::from(book.share.0),
                book.used_memory.0 as f64,
                book.memory.0 as f64,
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += part;
            }
        }
        let part = |used: f64, whole: f64| if whole > 0.0 { used / whole } else { 0.0 };
        let busy = 10.0 * (part(sums[0], sums[1]) + part(sums[2], sums[3]) + part(sums[4], sums[5]));
        if self.settings.node == NodePolicy::Binpack { busy } else { -busy }
    }

    fn time_for_all(&self) -> bool {
        true
    }
}

//! gpu-manager's way: the fullest node; on it the fullest card for a share, the smallest remainder of the PCIe tree for one whole card
//! ("fragment"), the closest group for several ("link").

use crate::fit::{Choose, Placer, Trial, take_best};
use crate::model::ask::{ContainerAsk, DeviceAsk};
use crate::model::device::{Device, Link};
use crate::model::units::Share;

pub(crate) struct GpuManager;

impl Choose for GpuManager {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let count = want.count as usize;
        let whole = want.exclusive || want.share >= Share::WHOLE;
        let chosen = match (whole, count) {
            (true, 1) => fragment(trial, fits, count),
            (true, _) => link(trial, fits, count),
            (false, _) => {
                let mut order = fits.to_vec();
                order.sort_by_key(|d| {
                    let book = trial.book_with(*d);
                    (book.free_share(), book.free_memory(), book.tasks, trial.devices()[*d].index)
                });
                return take_best(trial, want, &order);
            }
        };
        (chosen.len() == count).then_some(chosen)
    }
}

impl Placer for GpuManager {
    /// Fewest free cores first, then least free memory.
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let books = || trial.cards().map(|d| trial.book(d));
        let cores: u64 = books().map(|b| u64::from(b.free_share().0)).sum();
        let memory: u64 = books().map(|b| b.free_memory().0 >> 20).sum();
        -(cores as f64) * 1e9 - memory as f64
    }
}

/// The levels of the PCIe tree, widest first.
const LEVELS: [Link; 6] =
    [Link::CrossCpu, Link::SameCpu, Link::HostBridge, Link::MultiSwitch, Link::SingleSwitch, Link::NvLink];

/// How two cards lie in the PCIe tree, on which gpu-manager worked: that NVLink joins them says nothing about it.
fn on_the_bus(trial: &Trial<'_>, a: usize, b: usize) -> Link {
    let told = |a: &Device, b: &Device| a.pcie.get(&b.id).copied();
    let (one, other) = (&trial.devices()[a], &trial.devices()[b]);
    told(one, other).or_else(|| told(other, one)).unwrap_or_else(|| trial.node.link(a, b))
}

/// The groups into which `devices` fall where only links of at least `level` hold them together.
fn groups(trial: &Trial<'_>, devices: &[usize], level: Link) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut rest: Vec<usize> = devices.to_vec();
    while !rest.is_empty() {
        let mut group = vec![rest.remove(0)];
        let mut at = 0;
        while at < group.len() {
            let (near, far): (Vec<usize>, Vec<usize>) =
                rest.iter().partition(|d| on_the_bus(trial, group[at], **d) >= level);
            group.extend(near);
            rest = far;
            at += 1;
        }
        group.sort_unstable();
        groups.push(group);
    }
    groups
}

/// The leaves of the tree: all devices of the kind that is wanted, free or not.
fn alike(trial: &Trial<'_>, free: &[usize]) -> Vec<usize> {
    let kind = |d: usize| trial.devices()[d].kind;
    let same = |d: &usize| free.first().is_some_and(|first| kind(*first) == kind(*d));
    (0..trial.devices().len()).filter(same).collect()
}

/// Down the tree, always into the branch with the fewest free cards that still has enough; then the first cards there.
pub(crate) fn fragment(trial: &Trial<'_>, free: &[usize], count: usize) -> Vec<usize> {
    let all = alike(trial, free);
    let free_in = |group: &[usize]| group.iter().filter(|d| free.contains(d)).count();
    let mut branch = all;
    for level in LEVELS {
        // A branch of one card is a leaf: there is nothing to go down into.
        let parts = groups(trial, &branch, level).into_iter().filter(|g| g.len() > 1 && free_in(g) >= count);
        if let Some(next) = parts.min_by_key(|g| free_in(g)) {
            branch = next;
        }
    }
    branch.into_iter().filter(|d| free.contains(d)).take(count).collect()
}

/// The lowest branch below the root with enough free cards; of equally low ones the fullest, then the first.
pub(crate) fn link(trial: &Trial<'_>, free: &[usize], count: usize) -> Vec<usize> {
    let all = alike(trial, free);
    for level in LEVELS.iter().rev() {
        let parts = groups(trial, &all, *level).into_iter().filter(|g| g.len() < all.len());
        let own = |g: Vec<usize>| g.into_iter().filter(|d| free.contains(d)).collect::<Vec<_>>();
        let enough = parts.map(own).filter(|g| g.len() >= count);
        if let Some(best) = enough.min_by_key(|g| (g.len(), g[0])) {
            return best.into_iter().take(count).collect();
        }
    }
    free.iter().copied().take(count).collect()
}

//! KubeShare's way: opportunistic pods pack (and leave idle GPUs alone), guaranteed ones go to idle GPUs near their group.

use std::collections::BTreeMap;

use crate::ask::{Class, ContainerAsk, DeviceAsk};
use crate::cells::{Leaf, distance};
use crate::fit::{Choose, Trial, preference};
use crate::id::{NodeName, same_model};
use crate::place::Placer;
use crate::pod::Pod;
use crate::policy::Policy;
use crate::snapshot::{NodeState, Snapshot};

pub(crate) struct Kubeshare<'a> {
    policy: &'a Policy,
    class: Class,
    /// Leaves of the cell tree by node, where there is a file.
    leaves: BTreeMap<NodeName, Vec<Leaf>>,
    /// Ids of the GPUs that members of the pod's group hold.
    group: Vec<String>,
}

impl<'a> Kubeshare<'a> {
    pub(crate) fn of(snapshot: &Snapshot, policy: &'a Policy, pod: &Pod) -> Kubeshare<'a> {
        let mut leaves: BTreeMap<NodeName, Vec<Leaf>> = BTreeMap::new();
        for leaf in policy.cells.iter().flat_map(|file| file.leaves()) {
            if let Some(node) = &leaf.node {
                leaves.entry(node.clone()).or_default().push(leaf);
            }
        }
        let mut placer = Kubeshare { policy, class: policy.class_of(pod), leaves, group: Vec::new() };
        // Only a named group is near to itself: pods without one are strangers to each other, and so are other namespaces.
        if let Some(gang) = pod.gang() {
            for (_, member) in snapshot.gang(&gang) {
                let Some(state) = member.on().and_then(|ix| snapshot.node_at(ix)) else { continue };
                let held: Vec<String> =
                    member.charges().iter().map(|(d, _)| placer.cell_id(state, *d as usize)).collect();
                placer.group.extend(held);
            }
        }
        placer
    }

    /// The leaf a device stands on: the file's, counted from the end as KubeShare fills them, or its place on the node.
    fn leaf(&self, state: &NodeState, device: usize) -> Option<&Leaf> {
        let model = &state.node().inventory.devices.get(device)?.model;
        let same = |d: &&crate::device::Device| d.model == *model;
        let rank = state.node().inventory.devices[..device].iter().filter(same).count();
        let own: Vec<&Leaf> = self
            .leaves
            .get(&state.node().name)?
            .iter()
            .filter(|leaf| same_model(leaf.model.as_str(), model.as_str()))
            .collect();
        own.len().checked_sub(rank + 1).map(|at| own[at])
    }

    fn cell_id(&self, state: &NodeState, device: usize) -> String {
        self.leaf(state, device).map_or_else(|| format!("{}/{}", state.node().name, device + 1), |leaf| leaf.id.clone())
    }

    fn priority(&self, state: &NodeState, device: usize) -> f64 {
        let model = state.node().inventory.devices.get(device).map_or("", |d| d.model.as_str());
        let stated =
            self.policy.model_priority.iter().find(|(name, _)| same_model(name, model)).map(|(_, value)| *value);
        f64::from(stated.or_else(|| self.leaf(state, device).map(|leaf| leaf.priority)).unwrap_or(0))
    }

    /// Percent of a GPU that is in use.
    fn used(trial: &Trial<'_>, device: usize) -> f64 {
        let book = trial.book_with(device);
        let whole = f64::from(book.share.0.max(1));
        if book.exclusive > 0 { 100.0 } else { 100.0 - 100.0 * f64::from(book.free_share().0) / whole }
    }

    fn locality(&self, state: &NodeState, device: usize) -> f64 {
        if self.group.is_empty() {
            return 0.0;
        }
        let id = self.cell_id(state, device);
        let sum: u64 = self.group.iter().map(|other| distance(&id, other)).sum();
        100.0 * sum as f64 / self.group.len() as f64
    }

    /// How good one GPU is for this pod.
    pub(crate) fn leaf_score(&self, trial: &Trial<'_>, device: usize) -> f64 {
        let priority = self.priority(trial.node, device);
        match self.class {
            Class::Opportunistic => priority + Self::used(trial, device),
            Class::Guarantee => priority - Self::used(trial, device) - self.locality(trial.node, device),
        }
    }

    /// How good a node is for this pod, as it stands before.
    pub(crate) fn node_score(&self, trial: &Trial<'_>) -> f64 {
        let counts = |d: &usize| {
            let info = &trial.devices()[*d];
            info.is_open() && crate::fit::suitable(trial.ask, info).is_ok()
        };
        let own: Vec<usize> = (0..trial.devices().len()).filter(counts).collect();
        if own.is_empty() {
            return 0.0;
        }
        let n = own.len() as f64;
        let before = Trial::new(trial.node, trial.ask, crate::kind::Kinds::default(), crate::fit::Terms::default());
        let sum: f64 = match self.class {
            Class::Opportunistic => {
                let idle = own.iter().filter(|d| trial.book(**d).is_idle()).count() as f64;
                let leaf = |d: &usize| self.priority(trial.node, *d) + Self::used(&before, *d);
                own.iter().map(leaf).sum::<f64>() - 100.0 * idle / n
            }
            Class::Guarantee => own.iter().map(|d| self.leaf_score(&before, *d)).sum(),
        };
        (sum / n).trunc()
    }
}

impl Choose for Kubeshare<'_> {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.sort_by(|a, b| {
            let wish = |d: usize| preference(trial.ask, &trial.devices()[d]);
            let score = self.leaf_score(trial, *b).total_cmp(&self.leaf_score(trial, *a));
            wish(*a).cmp(&wish(*b)).then(score).then(b.cmp(a))
        });
        (order.len() >= want.count as usize).then(|| order[..want.count as usize].to_vec())
    }
}

impl Placer for Kubeshare<'_> {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        self.node_score(trial)
    }

    fn settle(&self, scores: &mut [f64]) {
        settle(scores);
    }
}

/// Shifts scores up to zero; where they then pass 100, spreads them over 0..100.
pub(crate) fn settle(scores: &mut [f64]) {
    let (min, max) = scores.iter().fold((f64::MAX, f64::MIN), |(lo, hi), s| (lo.min(*s), hi.max(*s)));
    if min < 0.0 {
        scores.iter_mut().for_each(|s| *s -= min);
    }
    let (min, max) = if min < 0.0 { (0.0, max - min) } else { (min, max) };
    if max > 100.0 {
        let span = max - min;
        scores.iter_mut().for_each(|s| *s = if span == 0.0 { 0.0 } else { ((*s - min) * 100.0 / span).trunc() });
    }
}

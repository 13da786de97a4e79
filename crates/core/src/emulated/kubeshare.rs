//! KubeShare's way: opportunistic pods pack (and leave idle GPUs alone), guaranteed ones go to idle GPUs near their group. Pods of
//! KubeShare 1.0 go where the least is left beside them.

use std::collections::BTreeMap;

use crate::fit::{Choose, Placer, Trial};
use crate::ledger::snapshot::{NodeState, Snapshot};
use crate::model::ask::{Class, ContainerAsk, DeviceAsk, Dialect};
use crate::model::id::{NodeName, same_model};
use crate::model::pod::Pod;
use crate::model::policy::Policy;
use crate::model::policy::cells::{self, Leaf, distance};

pub(crate) struct Kubeshare<'a> {
    policy: &'a Policy,
    way: Way,
    /// Leaves of the cell tree by node, where there is a file.
    leaves: BTreeMap<NodeName, Vec<Leaf>>,
    /// Ids of the GPUs that members of the pod's group hold.
    group: Vec<String>,
}

/// What a pod looks for.
#[derive(Clone, Copy)]
enum Way {
    Opportunistic,
    Guarantee,
    BestFit,
}

impl Way {
    /// Labels of KubeShare 2.0 always say a class; annotations of 1.0, which knew none, never do.
    fn of(policy: &Policy, pod: &Pod) -> Way {
        if pod.ask.as_ref().is_some_and(|ask| ask.dialect == Dialect::Kubeshare && ask.class.is_none()) {
            return Way::BestFit;
        }
        match policy.class_of(pod) {
            Class::Opportunistic => Way::Opportunistic,
            Class::Guarantee => Way::Guarantee,
        }
    }
}

impl<'a> Kubeshare<'a> {
    pub(crate) fn of(snapshot: &Snapshot, policy: &'a Policy, pod: &Pod) -> Kubeshare<'a> {
        let mut leaves: BTreeMap<NodeName, Vec<Leaf>> = BTreeMap::new();
        for leaf in policy.cells.iter().flat_map(|file| file.leaves()) {
            if let Some(node) = &leaf.node {
                leaves.entry(node.clone()).or_default().push(leaf);
            }
        }
        let mut placer = Kubeshare { policy, way: Way::of(policy, pod), leaves, group: Vec::new() };
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

    /// Which of its node's leaves a device stands on, where there is a file.
    fn position(&self, state: &NodeState, device: usize) -> Option<usize> {
        let own: Vec<&Leaf> = self.leaves.get(&state.node().name)?.iter().collect();
        cells::position(&own, &state.node().inventory, device)
    }

    fn leaf(&self, state: &NodeState, device: usize) -> Option<&Leaf> {
        self.leaves.get(&state.node().name)?.get(self.position(state, device)?)
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
        match self.way {
            Way::BestFit => Self::used(trial, device),
            Way::Opportunistic => priority + Self::used(trial, device),
            Way::Guarantee => priority - Self::used(trial, device) - self.locality(trial.node, device),
        }
    }

    /// How good a node is for this pod, as it stands before.
    pub(crate) fn node_score(&self, trial: &Trial<'_>) -> f64 {
        let counts = |d: &usize| trial.devices()[*d].is_open() && trial.suits(*d);
        let own: Vec<usize> = (0..trial.devices().len()).filter(counts).collect();
        if own.is_empty() {
            return 0.0;
        }
        let n = own.len() as f64;
        let before =
            Trial::new(trial.node, trial.ask, crate::ledger::kind::Kinds::default(), crate::fit::TrialTerms::default());
        let sum: f64 = match self.way {
            // Everybody would leave as much beside the same request: the fullest GPU that takes it leaves least.
            Way::BestFit => {
                return trial.given().iter().map(|given| Self::used(&before, given.device)).fold(0.0, f64::max);
            }
            Way::Opportunistic => {
                let idle = own.iter().filter(|d| trial.book(**d).is_idle()).count() as f64;
                let leaf = |d: &usize| self.priority(trial.node, *d) + Self::used(&before, *d);
                own.iter().map(leaf).sum::<f64>() - 100.0 * idle / n
            }
            Way::Guarantee => own.iter().map(|d| self.leaf_score(&before, *d)).sum(),
        };
        (sum / n).trunc()
    }
}

impl Choose for Kubeshare<'_> {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.sort_by(|a, b| {
            let wish = |d: usize| trial.preference(d);
            let score = self.leaf_score(trial, *b).total_cmp(&self.leaf_score(trial, *a));
            // Equals from the last leaf on, as KubeShare has it; without a file a GPU's number is its leaf's.
            let place = |d: usize| (self.position(trial.node, d), d);
            wish(*a).cmp(&wish(*b)).then(score).then(place(*b).cmp(&place(*a)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Placement;
    use crate::model::policy::cells::{Cell, CellFile, CellType};
    use crate::model::time::Time;
    use crate::testing::{cluster, describe};

    /// What is planned for this cluster begins so.
    fn check(policy: &Policy, text: &str, expected: &str) {
        let said = describe(&crate::schedule(&cluster(text), policy, Time(1000)));
        assert!(said.starts_with(expected), "{text}\n{said}");
    }

    #[test]
    fn a_pod_of_kubeshare_1_goes_where_the_least_is_left_and_to_an_idle_gpu_only_where_none_fits() {
        let nodes = "node a gpu=2\nnode b gpu=2\npod x on a dev=0 share=300\npod y on b dev=1 share=400\n";
        let policy = Policy::default();
        check(&policy, &format!("{nodes}wait p share=500 dialect=kubeshare"), "bind p to b (b-1)");
        check(&policy, &format!("{nodes}wait p share=700 dialect=kubeshare"), "bind p to a (a-0)");
        check(&policy, &format!("{nodes}wait p share=800 dialect=kubeshare"), "bind p to a (a-1)");
    }

    #[test]
    fn ks_28_equal_gpus_are_taken_from_the_last_leaf_on() {
        let mut policy = Policy::only(Placement::Kubeshare);
        check(&policy, "node a gpu=3\nwait p share=500 class=guarantee", "bind p to a (a-2)");
        let kind = CellType {
            child_cell_type: "A100".into(),
            child_cell_number: 3,
            is_node_level: true,
            ..CellType::default()
        };
        let root = Cell { cell_type: "N".into(), cell_id: "a".into(), ..Cell::default() };
        policy.cells = Some(CellFile { cell_types: [("N".into(), kind)].into(), cells: vec![root] });
        check(&policy, "node a gpu=3\nwait p share=500 class=guarantee", "bind p to a (a-0)");
    }
}

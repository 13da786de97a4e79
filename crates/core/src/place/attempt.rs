//! One pod, tried on nodes: what each of them answers, and the best of those that can take it.

use std::cell::OnceCell;

use crate::emulated::{gpu_manager, gpushare, hami, kubegpu, kubeshare, vgpu};
use crate::fit::rules::Rules;
use crate::fit::{Placer, Trial, TrialTerms};
use crate::ledger::snapshot::{NodeIx, NodeState, PodIx, Snapshot};
use crate::model::grant::Grant;
use crate::model::id::{Model, PodKey};
use crate::model::pod::Pod;
use crate::model::policy::{Placement, Policy, PolicyMistake};
use crate::model::reason::{Fold, Folded, NodeReason};
use crate::model::time::Time;
use crate::model::volume::VolumeStep;
use crate::place::{classic, frag, quota};

/// A pod's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// The node.
    pub node: NodeIx,
    /// What it is granted there; absent for an ordinary pod.
    pub grant: Option<Grant>,
    /// What must be done about its claims.
    pub volumes: Vec<VolumeStep>,
}

/// Devices and nodes that are kept for pods that have waited long.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub(crate) nodes: std::collections::BTreeMap<NodeIx, KeptNode>,
}

/// What is kept of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptNode {
    /// For whom the node as a whole is kept.
    pub(crate) whole: Option<PodKey>,
    /// Devices, and for whom.
    pub(crate) devices: Vec<(usize, PodKey)>,
}

/// What a node says to a pod.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How good it is: more is better. Only comparable within one policy.
    pub score: f64,
    /// What the pod would be granted.
    pub grant: Option<Grant>,
}

/// One pod, ready to be tried on nodes.
pub(crate) struct Attempt<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) pod: &'a Pod,
    pub(crate) rules: Rules<'a>,
    /// The pod's own or its dialect's policy; absent leaves it to the node's pool.
    pub(super) placement: Option<Placement>,
    pub(crate) kept: &'a Kept,
    pub(super) now: Time,
    /// Quotas are asked too.
    limited: bool,
    /// What the pod says to each model, found out when the first node is asked.
    models: OnceCell<Vec<Option<usize>>>,
}

/// The nodes that place by one policy, and what they said.
struct Line<'a> {
    placement: &'a Placement,
    placer: Box<dyn Placer + 'a>,
    answers: Vec<(NodeIx, Answer)>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        ix: PodIx,
        pod: &'a Pod,
        kept: &'a Kept,
        now: Time,
    ) -> Result<Attempt<'a>, PolicyMistake> {
        let placement = policy.placement_of(pod)?;
        let rules = Rules::of(snapshot, ix, pod);
        Ok(Attempt { snapshot, policy, pod, rules, placement, kept, now, limited: true, models: OnceCell::new() })
    }

    /// The same, as if there were no quotas.
    pub(crate) fn unlimited(self) -> Attempt<'a> {
        Attempt { limited: false, ..self }
    }

    /// The policy by which this pod is placed on this node.
    pub(crate) fn placement(&self, state: &NodeState) -> &Placement {
        let pool = || state.node().labels.get(&self.policy.pool_label).map(|pool| &**pool);
        self.placement.as_ref().unwrap_or_else(|| self.policy.placement_in(pool()))
    }

    /// Tries the pod on one node.
    pub(crate) fn ask(&self, ix: NodeIx, state: &NodeState) -> Result<Answer, NodeReason> {
        let placer = placer(self.placement(state), self);
        self.ask_with(&*placer, self.placement(state).name(), ix, state)
    }

    pub(super) fn ask_with(
        &self,
        placer: &dyn Placer,
        name: &str,
        ix: NodeIx,
        state: &NodeState,
    ) -> Result<Answer, NodeReason> {
        self.rules.check(state)?;
        let kept = self.kept.nodes.get(&ix);
        if let Some(holder) = kept.and_then(|k| k.whole.as_ref()) {
            return Err(NodeReason::Reserved { holder: holder.clone() });
        }
        let wishes = self.rules.wishes(state) as f64;
        let Some(ask) = &self.pod.ask else {
            return Ok(Answer { score: placer.score_ordinary(self.pod, state) + wishes, grant: None });
        };
        let terms = self.terms(kept, placer.time_for_all());
        let mut trial = Trial::new(state, ask, self.snapshot.kinds(), terms);
        trial.run(placer)?;
        let (score, grant) = (placer.score(&trial) + wishes, trial.grant(name, self.now));
        if self.limited {
            quota::check(self.snapshot, self.policy, self.pod, state, &grant)?;
        }
        Ok(Answer { score, grant: Some(grant) })
    }

    pub(super) fn terms(&self, kept: Option<&'a KeptNode>, time_for_all: bool) -> TrialTerms<'_> {
        // Models that are barred are not to be had by taking back what was lent, either.
        let quotas = self.snapshot.surroundings().quotas.of(&self.pod.key.namespace);
        let known = self.snapshot.models().iter();
        let preference = |model: &Model| self.pod.ask.as_ref()?.models.preference(model.as_str());
        let models = self.models.get_or_init(|| known.map(preference).collect());
        let kept = kept.map_or(&[][..], |kept| &kept.devices);
        TrialTerms { max_tasks: self.policy.max_tasks, time_for_all, quotas, kept, models }
    }

    /// The best node, by asking all of them; or what they said.
    pub(crate) fn best(&self) -> Result<Spot, Folded> {
        self.best_of(self.snapshot.nodes())
    }

    /// The best of these nodes, by asking each; or what they said.
    pub(crate) fn best_of<'n>(&self, nodes: impl Iterator<Item = (NodeIx, &'n NodeState)>) -> Result<Spot, Folded>
    where
        'a: 'n,
    {
        let mut fold = Fold::default();
        // One list per policy: their scores mean nothing to each other.
        let mut lists: Vec<Line<'_>> = Vec::new();
        for (ix, state) in nodes {
            let placement = self.placement(state);
            let at = match lists.iter().position(|line| line.placement == placement) {
                Some(at) => at,
                None => {
                    lists.push(Line { placement, placer: placer(placement, self), answers: Vec::new() });
                    lists.len() - 1
                }
            };
            let line = &mut lists[at];
            match self.ask_with(&*line.placer, placement.name(), ix, state) {
                Ok(answer) => line.answers.push((ix, answer)),
                Err(reason) => fold.add(&state.node().name, &reason),
            }
        }
        // Each policy names its best; the cluster's own policy chooses between those.
        let named: Vec<(NodeIx, Answer)> = lists.into_iter().filter_map(|line| pick(self.snapshot, line)).collect();
        let chosen = if named.len() > 1 { self.between(named) } else { named.into_iter().next() };
        let Some((ix, answer)) = chosen else { return Err(fold.finish()) };
        let volumes = self.snapshot.node_at(ix).map_or_else(Vec::new, |state| self.rules.volume_steps(state));
        Ok(Spot { node: ix, grant: answer.grant, volumes })
    }

    fn between(&self, named: Vec<(NodeIx, Answer)>) -> Option<(NodeIx, Answer)> {
        let referee = placer(&self.policy.placement, self);
        let rated = |(ix, answer): (NodeIx, Answer)| {
            let state = self.snapshot.node_at(ix)?;
            let rating =
                self.ask_with(&*referee, self.policy.placement.name(), ix, state).map_or(f64::MIN, |a| a.score);
            Some((rating, ix, answer))
        };
        let mut rated: Vec<(f64, NodeIx, Answer)> = named.into_iter().filter_map(rated).collect();
        rated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rated.into_iter().next().map(|(_, ix, answer)| (ix, answer))
    }
}

/// The best answer by this policy.
fn pick(snapshot: &Snapshot, line: Line<'_>) -> Option<(NodeIx, Answer)> {
    let mut answers = line.answers;
    let mut scores: Vec<f64> = answers.iter().map(|(_, answer)| answer.score).collect();
    line.placer.settle(&mut scores);
    let node = |i: usize| answers[i].0;
    first_best(&scores, |i, best| goes_first(snapshot, line.placement, node(i), node(best)))
        .map(|i| answers.swap_remove(i))
}

/// The place of the best score; of equally good ones the first, unless a later one `goes_first`.
pub(super) fn first_best(scores: &[f64], goes_first: impl Fn(usize, usize) -> bool) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, score) in scores.iter().enumerate() {
        if best.is_none_or(|b| *score > scores[b] || (*score == scores[b] && goes_first(i, b))) {
            best = Some(i);
        }
    }
    best
}

/// Is `node` to be taken rather than the equally good `best`, which came to us earlier? gpu-admission sorted by name; by the other
/// policies who came first is taken.
pub(super) fn goes_first(snapshot: &Snapshot, placement: &Placement, node: NodeIx, best: NodeIx) -> bool {
    let name = |ix| snapshot.node_at(ix).map(|state| &state.node().name);
    matches!(placement, Placement::GpuManager) && name(node) < name(best)
}

/// The policy of this name, for this pod.
pub(crate) fn placer<'a>(placement: &Placement, attempt: &Attempt<'a>) -> Box<dyn Placer + 'a> {
    match placement {
        Placement::Frag => Box::new(frag::Frag::of(attempt.snapshot, attempt.pod)),
        Placement::Binpack => Box::new(classic::Classic::Pack),
        Placement::Spread => Box::new(classic::Classic::Spread),
        Placement::Kubeshare => Box::new(kubeshare::Kubeshare::of(attempt.snapshot, attempt.policy, attempt.pod)),
        Placement::Kubegpu => Box::new(kubegpu::Kubegpu),
        Placement::Gpushare => Box::new(gpushare::Gpushare::of(attempt.pod)),
        Placement::GpuManager => Box::new(gpu_manager::GpuManager),
        Placement::Vgpu => Box::new(vgpu::Vgpu { most: attempt.policy.max_tasks }),
        Placement::Hami(settings) => Box::new(hami::HamiPlacer::of(settings, attempt.policy.max_tasks)),
    }
}

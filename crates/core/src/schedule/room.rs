//! Making room: who would have to go so that a pod fits, tried out in transactions that leave everything as it was.

use crate::fit::rules;
use crate::ledger::snapshot::{NodeIx, PodIx};
use crate::model::ask::Class;
use crate::model::grant::Grant;
use crate::model::id::PodUid;
use crate::model::pod::Pod;
use crate::place::{Attempt, Kept};
use crate::schedule::Round;
use crate::schedule::disruption::Disruptions;

/// Pods that go together: one pod, or a gang that cannot do without any of them.
#[derive(Clone, Debug)]
pub(super) struct Leavers {
    pub(super) pods: Vec<PodIx>,
    /// The highest standing among them.
    rank: (Class, i32),
    /// Devices they hold on the node in question, in thousandths.
    pub(super) weight: u64,
    /// When the last of them was bound.
    youngest: std::cmp::Reverse<crate::model::time::Time>,
}

/// A place where a pod fits once others are gone.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) node: NodeIx,
    /// Who has to be told to go.
    pub(super) victims: Vec<PodIx>,
    /// How many are on their way out already.
    pub(super) leaving: u32,
    pub(super) grant: Option<Grant>,
}

/// How dear a set of victims is, dearest concern first: the standing of the highest, their number, what they hold.
pub(super) type Price = (Option<(Class, i32)>, usize, u64);

/// Nodes that are looked at closely for one pod.
const CLOSELY: usize = 200;
/// With more units on a node than this, pairs are not tried one by one.
const PAIRS: usize = 24;

impl Round<'_> {
    pub(super) fn rank(&self, pod: &Pod) -> (Class, i32) {
        (self.policy.class_of(pod), pod.spec.priority)
    }

    fn uid(&self, ix: PodIx) -> Option<PodUid> {
        Some(self.snapshot.pod_at(ix)?.pod().uid.clone())
    }

    /// What the pod would be granted on a node without these others.
    pub(super) fn fits_without(&mut self, ix: PodIx, node: NodeIx, gone: &[PodIx]) -> Option<Option<Grant>> {
        let uids: Vec<PodUid> = gone.iter().filter_map(|pod| self.uid(*pod)).collect();
        let checkpoint = self.snapshot.checkpoint();
        for uid in &uids {
            self.snapshot.evict(uid);
        }
        let grant = self.ask(ix, node, &self.kept);
        self.snapshot.rollback(checkpoint);
        grant
    }

    fn ask(&self, ix: PodIx, node: NodeIx, kept: &Kept) -> Option<Option<Grant>> {
        let pod = self.snapshot.pod_at(ix)?.pod();
        let state = self.snapshot.node_at(node)?;
        let attempt = Attempt::new(self.snapshot, self.policy, ix, pod, kept, self.now).ok()?;
        attempt.ask(node, state).ok().map(|answer| answer.grant)
    }

    /// Nodes that the pod's selectors and tolerations allow.
    pub(super) fn allowed(&self, ix: PodIx) -> Vec<NodeIx> {
        let Some(pod) = self.snapshot.pod_at(ix).map(|state| state.pod()) else { return Vec::new() };
        let fine = |node: NodeIx, state: &crate::ledger::snapshot::NodeState| {
            !self.kept.nodes.contains_key(&node) && rules::node::check(pod, state.node()).is_ok()
        };
        self.snapshot.nodes().filter(|(node, state)| fine(*node, state)).map(|(node, _)| node).collect()
    }

    /// The pods on a node that may be asked to go, in units, cheapest first; and those that are going already.
    pub(super) fn leavers(&self, node: NodeIx, may_go: impl Fn(&Pod) -> bool) -> (Vec<Leavers>, Vec<PodIx>) {
        let Some(state) = self.snapshot.node_at(node) else { return (Vec::new(), Vec::new()) };
        let going: Vec<PodIx> = self.plan.evictions.iter().filter_map(|e| self.snapshot.find_pod(&e.pod)).collect();
        let mut units: Vec<Leavers> = Vec::new();
        let mut leaving = Vec::new();
        for ix in state.pods() {
            let Some(member) = self.snapshot.pod_at(*ix) else { continue };
            let terminating = member.pod().bound().is_some_and(|bound| bound.terminating);
            if terminating || going.contains(ix) {
                leaving.push(*ix);
            } else if !units.iter().any(|unit| unit.pods.contains(ix))
                && let Some(unit) = self.unit(*ix, node, &may_go)
            {
                units.push(unit);
            }
        }
        units.sort_by_key(|unit| (unit.rank, unit.pods.len(), unit.weight, unit.youngest, unit.pods[0]));
        (units, leaving)
    }

    /// The pod, and with it its gang where that cannot do without it; nothing where one of them must stay.
    fn unit(&self, ix: PodIx, node: NodeIx, may_go: &impl Fn(&Pod) -> bool) -> Option<Leavers> {
        let pod = self.snapshot.pod_at(ix)?.pod();
        let mut pods = vec![ix];
        if let (Some(key), Some(gang)) = (pod.gang(), pod.ask.as_ref().and_then(|ask| ask.gang.as_ref())) {
            let bound: Vec<PodIx> = self
                .snapshot
                .gang(&key)
                .filter(|(_, member)| member.pod().bound().is_some())
                .map(|(ix, _)| ix)
                .collect();
            let members = bound.iter().filter_map(|ix| self.snapshot.pod_at(*ix)).map(|state| state.pod());
            let done = self.snapshot.surroundings().finished.beside(&key, gang.size, members);
            if bound.len() <= gang.min.saturating_sub(done) as usize {
                pods = bound;
            }
        }
        let all = || pods.iter().filter_map(|ix| self.snapshot.pod_at(*ix));
        if pods.iter().any(|ix| self.placed.contains(ix)) || !all().all(|member| may_go(member.pod())) {
            return None;
        }
        let books = self.snapshot.node_at(node)?.books();
        Some(Leavers {
            rank: all().map(|member| self.rank(member.pod())).max()?,
            weight: all().filter(|member| member.on() == Some(node)).map(|member| member.weight(books)).sum(),
            youngest: std::cmp::Reverse(all().filter_map(|member| member.pod().bound()).map(|b| b.since).max()?),
            pods,
        })
    }

    /// The cheapest of the units whose leaving makes room on a node: none where those that leave anyway are enough, one, two, or as
    /// many as it takes, none of which can stay.
    fn fewest(&mut self, ix: PodIx, node: NodeIx, units: &[Leavers], leaving: &[PodIx]) -> Option<Vec<usize>> {
        let pods = |set: &[usize]| -> Vec<PodIx> {
            leaving.iter().copied().chain(set.iter().flat_map(|i| units[*i].pods.iter().copied())).collect()
        };
        let mut fits = |set: &[usize]| self.fits_without(ix, node, &pods(set)).is_some();
        let all: Vec<usize> = (0..units.len()).collect();
        if !fits(&all) {
            return None;
        }
        if !leaving.is_empty() && fits(&[]) {
            return Some(Vec::new());
        }
        if let Some(one) = all.iter().find(|i| fits(&[**i])) {
            return Some(vec![*one]);
        }
        if units.len() <= PAIRS {
            let mut pairs: Vec<[usize; 2]> =
                all.iter().flat_map(|a| all[a + 1..].iter().map(move |b| [*a, *b])).collect();
            // The dearer of the two decides.
            pairs.sort_by_key(|[a, b]| (*b, *a));
            if let Some(pair) = pairs.iter().find(|pair| fits(&pair[..])) {
                return Some(pair.to_vec());
            }
        }
        let mut set = all;
        for dearest in (0..units.len()).rev() {
            let without: Vec<usize> = set.iter().copied().filter(|i| *i != dearest).collect();
            if fits(&without) {
                set = without;
            }
        }
        Some(set)
    }

    /// Where the pod fits once the cheapest set of those that may go is gone. Nobody goes whom a disruption budget keeps.
    pub(super) fn find_room(&mut self, ix: PodIx, may_go: impl Fn(&Pod) -> bool, most: usize) -> Option<Room> {
        let disruptions = Disruptions::of(self);
        let may_go = |pod: &Pod| may_go(pod) && disruptions.let_go(pod);
        let mut best: Option<(Price, Room)> = None;
        let mut closely = 0;
        for node in self.allowed(ix) {
            let (units, leaving) = self.leavers(node, may_go);
            if (units.is_empty() && leaving.is_empty()) || closely >= CLOSELY {
                continue;
            }
            let Some(set) = self.fewest(ix, node, &units, &leaving).filter(|set| set.len() <= most) else { continue };
            closely += 1;
            let victims: Vec<PodIx> = set.iter().flat_map(|i| units[*i].pods.iter().copied()).collect();
            if !disruptions.let_all_go(victims.iter().filter_map(|ix| Some(self.snapshot.pod_at(*ix)?.pod()))) {
                continue;
            }
            let rank = set.iter().map(|i| units[*i].rank).max();
            let price = (rank, victims.len(), set.iter().map(|i| units[*i].weight).sum());
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                let gone: Vec<PodIx> = leaving.iter().chain(&victims).copied().collect();
                // The proof: with these gone, the pod fits.
                let Some(grant) = self.fits_without(ix, node, &gone) else { continue };
                best = Some((price, Room { node, victims, leaving: leaving.len() as u32, grant }));
            }
        }
        best.map(|(_, room)| room)
    }
}

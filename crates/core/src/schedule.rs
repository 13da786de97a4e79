//! From a snapshot to a plan: who goes first, where each pod goes, who waits and why.

mod audited;
mod defragment;
mod disruption;
mod fair;
mod gang;
mod keep;
mod preempt;
mod queue;
mod reclaim;
mod reserve;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fit::rules;
use crate::ledger::snapshot::{NodeIx, PodIx, Snapshot};
use crate::model::id::GangKey;
use crate::model::policy::Policy;
use crate::model::reason::{NodeReason, Reason};
use crate::model::time::Time;
use crate::place::{Answer, Attempt, Board, Kept, Spot};
use crate::plan::{Bind, Plan, Wait};

pub use crate::fit::gang::{GangTerms, waits_for_gang};
pub use audited::Audited;
pub use fair::FairShare;

/// What the scheduler remembers from plan to plan: what namespaces have used, what is kept for those who wait, and answers of nodes that
/// did not change. All of it can be lost: a fresh engine makes valid plans too. What namespaces have used is worth keeping, so that turns
/// stay fair.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// What namespaces have used.
    pub fair: FairShare,
    board: Board,
    /// What is kept for whom from plan to plan.
    keepings: keep::Keepings,
}

/// The plan for this snapshot, made by an engine that remembers nothing.
pub fn schedule(snapshot: &Snapshot, policy: &Policy, now: Time) -> Plan {
    Engine::default().schedule(&mut snapshot.clone(), policy, now)
}

impl Engine {
    /// The plan for this snapshot. The snapshot is tried things on, and is afterwards as it was.
    pub fn schedule(&mut self, snapshot: &mut Snapshot, policy: &Policy, now: Time) -> Plan {
        self.schedule_some(snapshot, policy, now, |_| true, usize::MAX)
    }

    /// The plan for those waiting pods that are `awake` (a gang is when a member is), and of these for the `most` that go first: a
    /// scheduler that knows for whom nothing changed, and binds the first while it looks at the next. What was kept for others before
    /// stays kept for them.
    pub fn schedule_some(
        &mut self,
        snapshot: &mut Snapshot,
        policy: &Policy,
        now: Time,
        awake: impl Fn(PodIx) -> bool,
        most: usize,
    ) -> Plan {
        self.fair.pass(snapshot.held(), policy.queue.half_life, now);
        if snapshot.is_worth_stale() {
            snapshot.reckon_worth();
        }
        self.keepings.forget_others(snapshot);
        let turn = |snapshot: &Snapshot, ix: PodIx| self.keepings.turn(snapshot, ix);
        let units = queue::order(snapshot, policy, &self.fair, now, &awake, turn);
        let checkpoint = snapshot.checkpoint();
        let mut round = Round {
            snapshot,
            policy,
            now,
            board: &mut self.board,
            kept: Kept::default(),
            keepings: std::mem::take(&mut self.keepings),
            placed: Default::default(),
            reserved: 0,
            plan: Plan { at: now, ..Plan::default() },
        };
        let mut left = most;
        for unit in units {
            if !unit.members().iter().any(|ix| awake(*ix)) {
                round.hold(unit.members());
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            match unit {
                queue::Unit::Pod(ix) => round.pod(ix),
                queue::Unit::Gang(gang, members) => round.gang(&gang, &members),
            }
        }
        let (plan, keepings) = (round.plan, round.keepings);
        snapshot.rollback(checkpoint);
        self.keepings = keepings;
        plan
    }

    /// What namespaces have used until now, to be kept for whoever schedules next.
    pub fn used(&mut self, snapshot: &Snapshot, policy: &Policy, now: Time) -> &FairShare {
        self.fair.pass(snapshot.held(), policy.queue.half_life, now);
        &self.fair
    }

    /// Where one waiting pod would go now, and with what; or why nowhere. Nothing is changed, nothing is remembered of it.
    pub fn decide(&mut self, snapshot: &Snapshot, policy: &Policy, ix: PodIx, now: Time) -> Result<Spot, Reason> {
        decide(snapshot, policy, ix, &mut self.board, &Kept::default(), now)
    }

    /// Where one waiting pod would go now, without asking why not where it goes nowhere.
    pub fn find(&mut self, snapshot: &Snapshot, policy: &Policy, ix: PodIx, now: Time) -> Option<Spot> {
        let pod = snapshot.pod_at(ix)?.pod();
        if rules::standing(pod).is_some() {
            return None;
        }
        let kept = Kept::default();
        let attempt = Attempt::new(snapshot, policy, ix, pod, &kept, now).ok()?;
        attempt.recall(&mut self.board, None).unwrap_or_else(|_| attempt.best().ok())
    }

    /// Where one waiting pod would go of these nodes: for another scheduler, which has its own reasons to offer no others. Of equally
    /// good ones it is the first in the snapshot's order, in whatever order they are named.
    pub fn find_among(
        &mut self,
        snapshot: &Snapshot,
        policy: &Policy,
        ix: PodIx,
        mut nodes: Vec<NodeIx>,
        now: Time,
    ) -> Option<Spot> {
        let pod = snapshot.pod_at(ix)?.pod();
        if rules::standing(pod).is_some() {
            return None;
        }
        let kept = Kept::default();
        let attempt = Attempt::new(snapshot, policy, ix, pod, &kept, now).ok()?;
        nodes.sort_unstable();
        let asked = || {
            let states = nodes.iter().filter_map(|node| Some((*node, snapshot.node_at(*node)?)));
            attempt.best_of(states).ok()
        };
        attempt.recall(&mut self.board, Some(&nodes)).unwrap_or_else(|_| asked())
    }

    /// Brings what is remembered of nodes up to date, for all shapes of pods that came so far: after a new worth this takes
    /// milliseconds that a decision need not wait for.
    pub fn prepare(&mut self, snapshot: &Snapshot, policy: &Policy) {
        self.board.prepare(snapshot, policy);
    }
}

#[cfg(test)]
mod tests;

/// One plan in the making.
struct Round<'a> {
    snapshot: &'a mut Snapshot,
    policy: &'a Policy,
    now: Time,
    board: &'a mut Board,
    kept: Kept,
    /// What is kept for whom after this plan; until a pod's turn comes, what was kept for it before.
    keepings: keep::Keepings,
    /// Pods that this plan places: they are not there yet, and nobody can make them go.
    placed: std::collections::BTreeSet<PodIx>,
    /// Pods and gangs that something is kept for.
    reserved: u32,
    plan: Plan,
}

/// Where a pod would go.
fn decide(
    snapshot: &Snapshot,
    policy: &Policy,
    ix: PodIx,
    board: &mut Board,
    kept: &Kept,
    now: Time,
) -> Result<Spot, Reason> {
    let Some(state) = snapshot.pod_at(ix) else { return Err(Reason::NoNode(Default::default())) };
    let pod = state.pod();
    if let Some(reason) = rules::standing(pod) {
        return Err(reason);
    }
    let attempt =
        Attempt::new(snapshot, policy, ix, pod, kept, now).map_err(|mistake| Reason::Policy { text: mistake.0 })?;
    match attempt.recall(board, None) {
        Ok(Some(spot)) => Ok(spot),
        // Whoever fits nowhere is told why, and for that everybody is asked.
        _ => attempt.best().map_err(Reason::NoNode),
    }
}

impl Round<'_> {
    /// Finds a place for a pod and books it; the bind is not yet in the plan.
    fn place(&mut self, ix: PodIx, gang: Option<&GangKey>) -> Result<Bind, Reason> {
        let spot = decide(self.snapshot, self.policy, ix, self.board, &self.kept, self.now)?;
        let gone = || Reason::NoNode(Default::default());
        let node = self.snapshot.node_at(spot.node).ok_or_else(gone)?.node().name.clone();
        let pod = self.snapshot.pod_at(ix).ok_or_else(gone)?.pod();
        let (uid, key) = (pod.uid.clone(), pod.key.clone());
        let booked = self.snapshot.place(&uid, &node, spot.grant.clone().map(Arc::new), self.now);
        debug_assert_eq!(booked, Ok(()), "a place that was found has room");
        booked.map_err(|_| gone())?;
        self.placed.insert(ix);
        Ok(Bind { pod: uid, key, node, grant: spot.grant, volumes: spot.volumes, gang: gang.cloned() })
    }

    fn pod(&mut self, ix: PodIx) {
        let kept = self.take_keepings(&[ix]);
        match self.place(ix, None) {
            Ok(bind) => self.plan.binds.push(bind),
            Err(reason) => {
                let no_node = matches!(reason, Reason::NoNode(_));
                let reason = self.reclaim(ix, reason);
                // Nobody makes room for a pod that could not run anyway, or for which room is being made already.
                if !no_node || !matches!(reason, Reason::NoNode(_)) {
                    return self.wait(ix, reason);
                }
                if self.stay(&kept) || self.make_room(ix) || self.defragment(ix) {
                    return;
                }
                self.wait(ix, reason);
                if self.has_waited(ix) {
                    self.reserve(&[ix], &kept);
                }
            }
        }
    }

    fn wait(&mut self, ix: PodIx, reason: Reason) {
        let Some(pod) = self.snapshot.pod_at(ix).map(|state| state.pod()) else { return };
        self.plan.waits.push(Wait { pod: pod.uid.clone(), key: pod.key.clone(), reason, nominated: None });
    }
}

/// What one node says to a pod.
pub type NodeAnswer = (NodeIx, Result<Answer, NodeReason>);

/// What these nodes say to a pod: for whoever remembers answers of the others.
pub fn ask_some(
    snapshot: &Snapshot,
    policy: &Policy,
    ix: PodIx,
    nodes: impl IntoIterator<Item = NodeIx>,
    now: Time,
) -> Result<Vec<NodeAnswer>, Reason> {
    let Some(state) = snapshot.pod_at(ix) else { return Ok(Vec::new()) };
    if let Some(reason) = rules::standing(state.pod()) {
        return Err(reason);
    }
    let kept = Kept::default();
    let attempt =
        Attempt::new(snapshot, policy, ix, state.pod(), &kept, now).map_err(|m| Reason::Policy { text: m.0 })?;
    let ask = |node: NodeIx| Some((node, attempt.ask(node, snapshot.node_at(node)?)));
    Ok(nodes.into_iter().filter_map(ask).collect())
}

/// What every node says to a pod: for HTTP extenders, and for people who ask.
pub fn ask_all(
    snapshot: &Snapshot,
    policy: &Policy,
    ix: PodIx,
    now: Time,
) -> Result<BTreeMap<crate::model::id::NodeName, Result<crate::place::Answer, crate::model::reason::NodeReason>>, Reason>
{
    let Some(state) = snapshot.pod_at(ix) else { return Ok(BTreeMap::new()) };
    if let Some(reason) = rules::standing(state.pod()) {
        return Err(reason);
    }
    let kept = Kept::default();
    let attempt =
        Attempt::new(snapshot, policy, ix, state.pod(), &kept, now).map_err(|m| Reason::Policy { text: m.0 })?;
    Ok(snapshot.nodes().map(|(node, state)| (state.node().name.clone(), attempt.ask(node, state))).collect())
}

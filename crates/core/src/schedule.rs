//! From a snapshot to a plan: who goes first, where each pod goes, who waits and why.

mod fair;
mod gang;
mod queue;
mod reclaim;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::GangKey;
use crate::place::{Answer, Attempt, Kept, Spot};
use crate::plan::{Bind, Plan, Wait};
use crate::policy::Policy;
use crate::reason::{NodeReason, Reason};
use crate::rules;
use crate::snapshot::{NodeIx, PodIx, Snapshot};
use crate::time::Time;

pub use fair::FairShare;
pub use gang::minimum as gang_minimum;

/// What the scheduler remembers from plan to plan: what namespaces have used, and answers of nodes that did not change. All of it can
/// be lost: a fresh engine makes valid plans too.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// What namespaces have used.
    pub fair: FairShare,
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
    /// scheduler that knows for whom nothing changed, and binds the first while it looks at the next.
    pub fn schedule_some(
        &mut self,
        snapshot: &mut Snapshot,
        policy: &Policy,
        now: Time,
        awake: impl Fn(PodIx) -> bool,
        most: usize,
    ) -> Plan {
        self.fair.pass(snapshot.held(), policy.queue.half_life, now);
        let checkpoint = snapshot.checkpoint();
        let mut round =
            Round { snapshot, policy, now, kept: Kept::default(), plan: Plan { at: now, ..Plan::default() } };
        for unit in queue::order(round.snapshot, policy, &self.fair, awake).into_iter().take(most) {
            match unit {
                queue::Unit::Pod(ix) => round.pod(ix),
                queue::Unit::Gang(gang, members) => round.gang(&gang, &members),
            }
        }
        let plan = round.plan;
        snapshot.rollback(checkpoint);
        plan
    }

    /// Where one waiting pod would go now, and with what; or why nowhere. Nothing is changed, nothing is remembered of it.
    pub fn decide(&mut self, snapshot: &Snapshot, policy: &Policy, ix: PodIx, now: Time) -> Result<Spot, Reason> {
        decide(snapshot, policy, ix, &Kept::default(), now)
    }
}

#[cfg(test)]
mod tests;

/// One plan in the making.
struct Round<'a> {
    snapshot: &'a mut Snapshot,
    policy: &'a Policy,
    now: Time,
    kept: Kept,
    plan: Plan,
}

/// Where a pod would go.
fn decide(snapshot: &Snapshot, policy: &Policy, ix: PodIx, kept: &Kept, now: Time) -> Result<Spot, Reason> {
    let Some(state) = snapshot.pod_at(ix) else { return Err(Reason::NoNode(Default::default())) };
    let pod = state.pod();
    if let Some(reason) = rules::standing(pod) {
        return Err(reason);
    }
    let attempt =
        Attempt::new(snapshot, policy, ix, pod, kept, now).map_err(|mistake| Reason::Policy { text: mistake.0 })?;
    attempt.best().map_err(Reason::NoNode)
}

impl Round<'_> {
    /// Finds a place for a pod and books it; the bind is not yet in the plan.
    fn place(&mut self, ix: PodIx, gang: Option<&GangKey>) -> Result<Bind, Reason> {
        let spot = decide(self.snapshot, self.policy, ix, &self.kept, self.now)?;
        let gone = || Reason::NoNode(Default::default());
        let node = self.snapshot.node_at(spot.node).ok_or_else(gone)?.node().name.clone();
        let pod = self.snapshot.pod_at(ix).ok_or_else(gone)?.pod();
        let (uid, key) = (pod.uid.clone(), pod.key.clone());
        let booked = self.snapshot.place(&uid, &node, spot.grant.clone().map(Arc::new), self.now);
        debug_assert_eq!(booked, Ok(()), "a place that was found has room");
        booked.map_err(|_| gone())?;
        Ok(Bind { pod: uid, key, node, grant: spot.grant, volumes: spot.volumes, gang: gang.cloned() })
    }

    fn pod(&mut self, ix: PodIx) {
        match self.place(ix, None) {
            Ok(bind) => self.plan.binds.push(bind),
            Err(reason) => {
                let reason = self.reclaim(ix, reason);
                self.wait(ix, reason);
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
) -> Result<BTreeMap<crate::id::NodeName, Result<crate::place::Answer, crate::reason::NodeReason>>, Reason> {
    let Some(state) = snapshot.pod_at(ix) else { return Ok(BTreeMap::new()) };
    if let Some(reason) = rules::standing(state.pod()) {
        return Err(reason);
    }
    let kept = Kept::default();
    let attempt =
        Attempt::new(snapshot, policy, ix, state.pod(), &kept, now).map_err(|m| Reason::Policy { text: m.0 })?;
    Ok(snapshot.nodes().map(|(node, state)| (state.node().name.clone(), attempt.ask(node, state))).collect())
}

//! Gangs that another scheduler places: Divvy finds room for all members at once, keeps it, and opens their gates. The other
//! scheduler then asks for them one by one, and each finds exactly its own place.

use divvy_cluster::Effect;
use divvy_cluster::effect::LiftGate;
use divvy_core::id::PodUid;
use divvy_core::keys;
use divvy_core::time::Time;

use super::World;
use super::entry::Stand;

/// The shortest time a place is kept: another scheduler has its own queue and its own pauses.
const LEAST: u64 = 30_000;

impl World {
    /// Keeps the place that the snapshot has for a pod, and opens its gate.
    pub(super) fn promise(&mut self, uid: &PodUid, now: Time) {
        let members =
            self.snapshot.pod(uid).and_then(|s| s.pod().ask.clone()).and_then(|a| a.gang.clone()).map_or(1, |g| g.size);
        let per_member = self.policy.scheduling.gangs.timeout_per_member.saturating_mul(1000);
        let until = Time(now.0.saturating_add(LEAST.max(per_member.saturating_mul(u64::from(members)))));
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.stand = Stand::Promised { until };
        entry.due = None;
        if entry.gated {
            let (target, gate) = (entry.target.clone(), keys::GANG_GATE.to_owned());
            self.effects.push(Effect::LiftGate(LiftGate { target, gate, annotations: Default::default() }));
        }
    }

    /// Nobody came for it.
    pub(super) fn break_promise(&mut self, uid: &PodUid) {
        self.unplace(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        tracing::info!(pod = %entry.target.pod, "a place kept for a member of a gang was not taken in time");
        entry.stand = Stand::Theirs;
        self.wake(uid);
    }

    /// Finds room for the whole gang of a pod that another scheduler asks about, and keeps it. False when there is none.
    pub(super) fn promise_gang(&mut self, uid: &PodUid, now: Time) -> bool {
        let Some(gang) = self.snapshot.pod(uid).and_then(|s| s.pod().gang()) else { return false };
        let waiting: Vec<PodUid> = self
            .snapshot
            .gang(&gang)
            .map(|(_, state)| state.pod().uid.clone())
            .filter(|member| {
                self.entries
                    .get(member)
                    .is_some_and(|e| !matches!(e.stand, Stand::Flying { .. } | Stand::Promised { .. }))
            })
            .collect();
        let members: std::collections::HashSet<_> = waiting.iter().filter_map(|m| self.snapshot.find_pod(m)).collect();
        let scheduling = &self.policy.scheduling;
        let plan =
            self.engine.schedule_some(&mut self.snapshot, scheduling, now, |ix| members.contains(&ix), usize::MAX);
        if !divvy_core::audit(&self.snapshot, &plan).is_empty() {
            self.counts.violations += 1;
            return false;
        }
        for bind in plan.binds {
            if self.snapshot.place(&bind.pod, &bind.node, bind.grant.map(std::sync::Arc::new), now).is_ok() {
                self.awake.remove(&bind.pod);
                if let Some(entry) = self.entries.get(&bind.pod) {
                    self.lines.leave(entry.shape, entry.created, &bind.pod);
                }
                self.promise(&bind.pod, now);
            }
        }
        matches!(self.entries.get(uid).map(|e| &e.stand), Some(Stand::Promised { .. }))
    }
}

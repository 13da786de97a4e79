//! Preemption: lesser pods go so that a greater one can run; the fewest and cheapest, and none in vain.

use crate::id::GangKey;
use crate::place::KeptNode;
use crate::plan::{Bind, Eviction, Wait};
use crate::pod::Pod;
use crate::reason::Reason;
use crate::schedule::Round;
use crate::schedule::room::Room;
use crate::snapshot::PodIx;

impl Round<'_> {
    /// May pods be evicted for this one at all?
    fn preempts(&self, ix: PodIx) -> bool {
        let polite = self.snapshot.pod_at(ix).is_none_or(|state| state.pod().spec.never_preempts);
        self.policy.preemption.enabled && !polite
    }

    /// Where lesser pods would make room for this one.
    fn preempt(&mut self, ix: PodIx) -> Option<Room> {
        if !self.preempts(ix) {
            return None;
        }
        let rank = self.rank(self.snapshot.pod_at(ix)?.pod());
        let (policy, now) = (self.policy, self.now);
        let may_go = move |victim: &Pod| {
            let stays = victim.ask.as_ref().and_then(|ask| ask.min_runtime).unwrap_or(policy.preemption.min_runtime);
            let ran = victim.bound().map_or(0, |bound| now.seconds_since(bound.since));
            (policy.class_of(victim), victim.spec.priority) < rank && ran >= stays
        };
        self.find_room(ix, may_go, usize::MAX)
    }

    /// Evicts lesser pods for one that fits nowhere, and has it wait for the room they leave. False where that does not help.
    pub(super) fn make_room(&mut self, ix: PodIx) -> bool {
        let Some(room) = self.preempt(ix) else { return false };
        self.announce(ix, room);
        true
    }

    /// Writes down who goes, for whom, and that nobody else gets what they leave.
    fn announce(&mut self, ix: PodIx, room: Room) {
        let Some(pod) = self.snapshot.pod_at(ix).map(|state| state.pod()) else { return };
        let (uid, key) = (pod.uid.clone(), pod.key.clone());
        for victim in &room.victims {
            let Some(state) = self.snapshot.pod_at(*victim) else { continue };
            let Some(bound) = state.pod().bound() else { continue };
            self.plan.evictions.push(Eviction {
                pod: state.pod().uid.clone(),
                key: state.pod().key.clone(),
                node: bound.node.clone(),
                makes_room_for: key.clone(),
                moves: false,
            });
        }
        let Some(node) = self.snapshot.node_at(room.node).map(|state| state.node().name.clone()) else { return };
        self.kept.nodes.insert(room.node, KeptNode { whole: Some(key.clone()), devices: Vec::new() });
        let leaving = room.victims.len() as u32 + room.leaving;
        let reason = Reason::MakingRoom { node: node.clone(), leaving };
        self.plan.waits.push(Wait { pod: uid, key, reason, nominated: Some(node) });
    }

    /// Makes room for enough members of a gang, or for none.
    pub(super) fn make_room_for_gang(&mut self, waiting: &[PodIx], running: u32, min: u32, key: &GangKey) -> bool {
        if !waiting.iter().all(|ix| self.preempts(*ix)) {
            return false;
        }
        let (kept, evictions) = (self.kept.clone(), self.plan.evictions.len());
        let waits = self.plan.waits.len();
        let checkpoint = self.snapshot.checkpoint();
        let (mut fit, mut bound, mut made): (u32, Vec<Bind>, bool) = (running, Vec::new(), false);
        let mut refused = Vec::new();
        for ix in waiting {
            if fit >= min {
                refused.push(*ix);
            } else if let Ok(bind) = self.place(*ix, Some(key)) {
                bound.push(bind);
                fit += 1;
            } else if self.make_room(*ix) {
                (fit, made) = (fit + 1, true);
            }
        }
        self.snapshot.rollback(checkpoint);
        if fit < min || !made {
            self.kept = kept;
            self.plan.evictions.truncate(evictions);
            self.plan.waits.truncate(waits);
            return false;
        }
        // Members that fit already wait with the others: a gang starts together. What they would take is kept for them.
        for bind in bound {
            if let Some(node) = self.snapshot.find_node(&bind.node) {
                self.kept.nodes.insert(node, KeptNode { whole: Some(bind.key.clone()), devices: Vec::new() });
            }
            let reason = Reason::MakingRoom { node: bind.node.clone(), leaving: 0 };
            self.plan.waits.push(Wait { pod: bind.pod, key: bind.key, reason, nominated: Some(bind.node) });
        }
        for ix in refused {
            self.wait(ix, Reason::BehindOthers);
        }
        true
    }
}

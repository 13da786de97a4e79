//! Preemption: lesser pods go so that a greater one can run; the fewest and cheapest, and none in vain.

use crate::fit::gang::{GangTerms, waits_for_gang};
use crate::ledger::snapshot::{NodeIx, PodIx};
use crate::model::ask::Class;
use crate::model::id::GangKey;
use crate::model::pod::Pod;
use crate::model::reason::Reason;
use crate::plan::Eviction;
use crate::schedule::Round;
use crate::schedule::room::Room;

impl Round<'_> {
    /// May pods be evicted for this one at all?
    fn preempts(&self, ix: PodIx) -> bool {
        let polite = self.snapshot.pod_at(ix).is_none_or(|state| state.pod().spec.never_preempts);
        self.policy.preemption.enabled && !polite
    }

    /// Whom it is above: a gang stands where its least member stands, also for those of its members who are above that.
    fn standing(&self, ix: PodIx) -> Option<(Class, i32)> {
        let pod = self.snapshot.pod_at(ix)?.pod();
        match pod.gang().filter(|_| waits_for_gang(pod)) {
            Some(gang) => {
                let terms = GangTerms::of(self.snapshot, &gang);
                let fellows = self.snapshot.gang(&gang).map(|(_, member)| member.pod()).filter(|pod| terms.holds(pod));
                fellows.map(|pod| self.rank(pod)).min()
            }
            None => Some(self.rank(pod)),
        }
    }

    /// Where lesser pods would make room for this one.
    fn preempt(&mut self, ix: PodIx) -> Option<Room> {
        if !self.preempts(ix) {
            return None;
        }
        let rank = self.standing(ix)?;
        let (policy, now) = (self.policy, self.now);
        let may_go =
            move |victim: &Pod| (policy.class_of(victim), victim.spec.priority) < rank && policy.has_run(victim, now);
        self.find_room(ix, may_go, usize::MAX)
    }

    /// Evicts lesser pods for one that fits nowhere, and has it wait for the room they leave. False where that does not help.
    pub(super) fn make_room(&mut self, ix: PodIx) -> bool {
        let Some(room) = self.preempt(ix) else { return false };
        self.tell(ix, &room.victims, false);
        self.keep_room(ix, room.node, room.victims.len() as u32 + room.leaving);
        true
    }

    /// Writes down who goes, and for whom.
    pub(super) fn tell(&mut self, ix: PodIx, victims: &[PodIx], moves: bool) {
        let Some(makes_room_for) = self.snapshot.pod_at(ix).map(|state| state.pod().key.clone()) else { return };
        for victim in victims {
            let Some(pod) = self.snapshot.pod_at(*victim).map(|state| state.pod()) else { continue };
            let Some(node) = pod.bound().map(|bound| bound.node.clone()) else { continue };
            let (pod, key, makes_room_for) = (pod.uid.clone(), pod.key.clone(), makes_room_for.clone());
            self.plan.evictions.push(Eviction { pod, key, node, makes_room_for, moves });
        }
    }

    /// Makes room for enough members of a gang, or for none. Each is tried where those before it have their places and who leaves for
    /// them is gone: so several of them can be on one node.
    pub(super) fn make_room_for_gang(&mut self, waiting: &[PodIx], running: u32, min: u32, key: &GangKey) -> bool {
        if !waiting.iter().all(|ix| self.preempts(*ix)) {
            return false;
        }
        let evictions = self.plan.evictions.len();
        let checkpoint = self.snapshot.checkpoint();
        let mut found: Vec<(PodIx, NodeIx, u32)> = Vec::new();
        let (mut refused, mut made) = (Vec::new(), false);
        for ix in waiting {
            if running + found.len() as u32 >= min {
                refused.push(*ix);
            } else if let Ok(bind) = self.place(*ix, Some(key)) {
                found.extend(self.snapshot.find_node(&bind.node).map(|node| (*ix, node, 0)));
            } else if let Some(room) = self.preempt(*ix) {
                self.tell(*ix, &room.victims, false);
                let leaving = self.see_off(room.node);
                if self.occupy(*ix, room.node, room.grant) {
                    made = true;
                    self.placed.insert(*ix);
                    found.push((*ix, room.node, leaving));
                }
            }
        }
        self.snapshot.rollback(checkpoint);
        self.placed.retain(|ix| !waiting.contains(ix));
        if running + (found.len() as u32) < min || !made {
            self.plan.evictions.truncate(evictions);
            return false;
        }
        // Members that fit already wait with the others: a gang starts together. What they would take is kept for them.
        for (ix, node, leaving) in found {
            self.keep_room(ix, node, leaving);
        }
        for ix in refused {
            self.wait(ix, Reason::BehindOthers);
        }
        true
    }
}

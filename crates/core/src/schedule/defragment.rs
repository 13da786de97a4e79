//! Defragmentation: a few moves of opportunistic pods that let a waiting one in. Proposed; done only where the policy says so.

use std::sync::Arc;

use crate::ledger::snapshot::PodIx;
use crate::model::ask::Class;
use crate::model::pod::Pod;
use crate::plan::{Move, Proposal};
use crate::schedule::{Round, decide};

impl Round<'_> {
    /// Looks for moves that let the pod in, and writes them down. True where they are done: then it waits for the room they leave.
    pub(super) fn defragment(&mut self, ix: PodIx) -> bool {
        let rules = &self.policy.defragment;
        let (propose, act, most) = (rules.propose, rules.act, rules.moves as usize);
        if !propose || most == 0 {
            return false;
        }
        let (policy, now) = (self.policy, self.now);
        // A gang's members are not moved one by one.
        let may_move = move |pod: &Pod| {
            policy.class_of(pod) == Class::Opportunistic && pod.gang().is_none() && policy.has_run(pod, now)
        };
        let Some(room) = self.find_room(ix, may_move, most).filter(|room| !room.victims.is_empty()) else {
            return false;
        };
        let Some(moves) = self.moves(ix, &room.victims, room.grant, room.node) else { return false };
        let (Some(pod), Some(node)) = (self.snapshot.pod_at(ix), self.snapshot.node_at(room.node)) else {
            return false;
        };
        let (pod, key, node) = (pod.pod().uid.clone(), pod.pod().key.clone(), node.node().name.clone());
        self.plan.proposals.push(Proposal { pod, key, node, moves });
        if act {
            self.tell(ix, &room.victims, true);
            self.keep_room(ix, room.node, room.victims.len() as u32);
        }
        act
    }

    /// Where each of them would go once the waiting pod has its place: tried out, so that none of them is left without one.
    fn moves(
        &mut self,
        ix: PodIx,
        movers: &[PodIx],
        grant: Option<crate::model::grant::Grant>,
        node: crate::ledger::snapshot::NodeIx,
    ) -> Option<Vec<Move>> {
        let uid = self.snapshot.pod_at(ix)?.pod().uid.clone();
        let name = self.snapshot.node_at(node)?.node().name.clone();
        let checkpoint = self.snapshot.checkpoint();
        let mut moves = Vec::new();
        for mover in movers {
            let Some(pod) = self.snapshot.pod_at(*mover).map(|state| state.pod()) else { break };
            let (pod, key) = (pod.uid.clone(), pod.key.clone());
            let Some(from) = self.snapshot.bound(*mover).map(|bound| bound.node.clone()) else { break };
            self.snapshot.evict(&pod);
            moves.push(Move { pod, key, from, to: name.clone() });
        }
        let mut done =
            moves.len() == movers.len() && self.snapshot.place(&uid, &name, grant.map(Arc::new), self.now).is_ok();
        for (mover, step) in movers.iter().zip(&mut moves) {
            if !done {
                break;
            }
            let spot = decide(self.snapshot, self.policy, *mover, self.board, &self.kept, self.now).ok();
            let to =
                spot.as_ref().and_then(|spot| self.snapshot.node_at(spot.node)).map(|state| state.node().name.clone());
            let (Some(spot), Some(to)) = (spot, to) else {
                done = false;
                break;
            };
            done = self.snapshot.place(&step.pod, &to, spot.grant.map(Arc::new), self.now).is_ok();
            step.to = to;
        }
        self.snapshot.rollback(checkpoint);
        done.then_some(moves)
    }
}

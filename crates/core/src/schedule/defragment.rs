//! Defragmentation: a few moves of opportunistic pods that let a waiting one in. Proposed; done only where the policy says so.

use std::sync::Arc;

use crate::ask::Class;
use crate::plan::{Eviction, Move, Proposal};
use crate::pod::Pod;
use crate::schedule::{Round, decide};
use crate::snapshot::PodIx;

impl Round<'_> {
    /// Looks for moves that let the pod in, and writes them down.
    pub(super) fn defragment(&mut self, ix: PodIx) {
        let rules = &self.policy.defragment;
        let (propose, act, most) = (rules.propose, rules.act, rules.moves as usize);
        if !propose || most == 0 {
            return;
        }
        let policy = self.policy;
        // A gang's members are not moved one by one.
        let may_move = move |pod: &Pod| policy.class_of(pod) == Class::Opportunistic && pod.gang().is_none();
        let Some(room) = self.find_room(ix, may_move, most).filter(|room| !room.victims.is_empty()) else { return };
        let Some(moves) = self.moves(ix, &room.victims, room.grant, room.node) else { return };
        let (Some(pod), Some(node)) = (self.snapshot.pod_at(ix), self.snapshot.node_at(room.node)) else { return };
        let (key, node) = (pod.pod().key.clone(), node.node().name.clone());
        if act {
            self.plan.evictions.extend(moves.iter().map(|m| Eviction {
                pod: m.pod.clone(),
                key: m.key.clone(),
                node: m.from.clone(),
                makes_room_for: key.clone(),
                moves: true,
            }));
        }
        self.plan.proposals.push(Proposal { pod: pod.pod().uid.clone(), key, node, moves });
    }

    /// Where each of them would go once the waiting pod has its place: tried out, so that none of them is left without one.
    fn moves(
        &mut self,
        ix: PodIx,
        movers: &[PodIx],
        grant: Option<crate::grant::Grant>,
        node: crate::snapshot::NodeIx,
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

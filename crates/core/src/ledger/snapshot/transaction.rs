//! Trying things out: place and evict, then undo exactly or keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{NodeIx, PodIx, Snapshot};
use crate::model::grant::Grant;
use crate::model::id::{DeviceId, NodeName, PodUid};
use crate::model::pod::{Bound, State};
use crate::model::reason::Obstacle;
use crate::model::time::Time;

/// A moment in a transaction to which it can be rolled back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a checkpoint is rolled back to, or committed"]
pub struct Checkpoint {
    length: usize,
}

/// Why a pod was not placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// There is no such pod, or it does not wait.
    NotWaiting(PodUid),
    /// There is no such node.
    NoNode(NodeName),
    /// Its grant would over-commit these devices.
    Devices(Vec<(DeviceId, Obstacle)>),
}

#[derive(Clone, Debug)]
enum Step {
    Placed(PodIx),
    /// Placed elsewhere after it was evicted.
    Moved(PodIx),
    Evicted {
        pod: PodIx,
        bound: Bound,
        place: Option<(NodeIx, usize)>,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    steps: Vec<Step>,
    open: u32,
}

impl Journal {
    pub(super) fn is_closed(&self) -> bool {
        self.open == 0
    }
}

impl Snapshot {
    /// Begins to try something out.
    pub fn checkpoint(&mut self) -> Checkpoint {
        self.journal.open += 1;
        Checkpoint { length: self.journal.steps.len() }
    }

    /// Undoes everything since the checkpoint, exactly.
    pub fn rollback(&mut self, checkpoint: Checkpoint) {
        while self.journal.steps.len() > checkpoint.length {
            match self.journal.steps.pop() {
                Some(Step::Placed(pod)) => self.undo_place(pod),
                Some(Step::Moved(pod)) => {
                    self.undo_place(pod);
                    self.waiting.remove(&pod);
                    self.set_evicted(pod, true);
                }
                Some(Step::Evicted { pod, bound, place }) => self.undo_evict(pod, bound, place),
                None => break,
            }
        }
        self.close();
    }

    /// Keeps everything since the checkpoint (within an outer transaction: until that one ends).
    pub fn commit(&mut self, checkpoint: Checkpoint) {
        debug_assert!(
            checkpoint.length <= self.journal.steps.len(),
            "checkpoints end in the order in which they began, last first"
        );
        self.close();
    }

    fn close(&mut self) {
        self.journal.open = self.journal.open.saturating_sub(1);
        if self.journal.open == 0 {
            self.journal.steps.clear();
        }
    }

    /// Binds a waiting pod (or one that was evicted, elsewhere), if its grant over-commits nothing.
    pub fn place(
        &mut self,
        uid: &PodUid,
        node: &NodeName,
        grant: Option<Arc<Grant>>,
        now: Time,
    ) -> Result<(), Refusal> {
        let pod = self
            .find_pod(uid)
            .filter(|ix| self.waiting.contains(ix) || self.pod_at(*ix).is_some_and(|state| state.evicted))
            .ok_or_else(|| Refusal::NotWaiting(uid.clone()))?;
        let ix = self.find_node(node).ok_or_else(|| Refusal::NoNode(node.clone()))?;
        if let (Some(grant), Some(state)) = (&grant, self.node_at(ix)) {
            let inventory = &state.node.inventory;
            let mut obstacles = Vec::new();
            for (id, charge) in crate::ledger::charges(grant, inventory, false) {
                let device = inventory.devices.iter().position(|d| d.id == id);
                let kind = device.and_then(|d| self.kinds.of(inventory.devices[d].kind));
                match device.zip(kind).map(|(d, kind)| kind.room(&state.books[d], &charge)) {
                    Some(Ok(())) => {}
                    Some(Err(obstacle)) => obstacles.push((id, obstacle)),
                    None => obstacles.push((id, Obstacle::Unknown)),
                }
            }
            if !obstacles.is_empty() {
                return Err(Refusal::Devices(obstacles));
            }
        }
        self.bind(pod, Bound { node: node.clone(), grant, since: now, init_done: false, terminating: false });
        Ok(())
    }

    /// Binds a waiting pod without asking whether there is room.
    fn bind(&mut self, pod: PodIx, bound: Bound) {
        let waited = self.waiting.remove(&pod);
        if let Some(state) = self.pods[pod.0 as usize].as_mut() {
            state.pod.state = State::Bound(bound);
        }
        self.set_evicted(pod, false);
        self.charge(pod);
        if self.journal.open > 0 {
            self.journal.steps.push(if waited { Step::Placed(pod) } else { Step::Moved(pod) });
        }
    }

    fn set_evicted(&mut self, pod: PodIx, evicted: bool) {
        if let Some(state) = self.pods[pod.0 as usize].as_mut() {
            state.evicted = evicted;
        }
    }

    fn undo_place(&mut self, pod: PodIx) {
        self.uncharge(pod);
        if let Some(state) = self.pods[pod.0 as usize].as_mut() {
            state.pod.state = State::Waiting;
            state.charges = Vec::new();
        }
        self.waiting.insert(pod);
    }

    /// A placed pod could not be bound after all: it waits again.
    pub fn unplace(&mut self, uid: &PodUid) {
        debug_assert!(self.journal.is_closed(), "a transaction is rolled back instead");
        if let Some(pod) = self.find_pod(uid).filter(|ix| self.bound(*ix).is_some()) {
            let node = self.bound(pod).map(|b| b.node.clone());
            if let Some(orphans) = node.as_ref().and_then(|node| self.orphans.get_mut(node)) {
                orphans.remove(&pod);
            }
            self.undo_place(pod);
        }
    }

    /// Takes a bound pod away: it neither runs nor waits. Outside a transaction it stays so until it is put or removed.
    pub fn evict(&mut self, uid: &PodUid) -> bool {
        let Some(ix) = self.find_pod(uid) else { return false };
        let Some(bound) = self.bound(ix).cloned() else { return false };
        let place = self.pod_at(ix).and_then(|state| state.on).and_then(|node| {
            let position = self.node_at(node)?.pods.iter().position(|p| *p == ix)?;
            Some((node, position))
        });
        self.uncharge(ix);
        if let Some(state) = self.pods[ix.0 as usize].as_mut() {
            state.pod.state = State::Waiting;
            state.evicted = true;
        }
        if self.journal.open > 0 {
            self.journal.steps.push(Step::Evicted { pod: ix, bound, place });
        }
        true
    }

    fn undo_evict(&mut self, pod: PodIx, bound: Bound, place: Option<(NodeIx, usize)>) {
        if let Some(state) = self.pods[pod.0 as usize].as_mut() {
            state.pod.state = State::Bound(bound);
            state.evicted = false;
        }
        if let Some((node, position)) = place {
            self.charge(pod);
            // `uncharge` moved the last pod into the gap: move it back.
            if let Some(state) = self.nodes[node.0 as usize].as_mut() {
                let last = state.pods.len() - 1;
                state.pods.swap(position, last);
            }
        }
    }
}

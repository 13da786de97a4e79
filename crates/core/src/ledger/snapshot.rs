//! The cluster as known now: nodes with their devices and books, pods, and what else bears on placing. Kept up to date event by event;
//! nothing is rebuilt per decision.
//!
//! Decisions are tried out on it in transactions: [`Snapshot::checkpoint`], any number of [`Snapshot::place`] and
//! [`Snapshot::evict`], then [`Snapshot::rollback`] (which is exact) or [`Snapshot::commit`].

mod books;
mod changes;
mod look;
mod prices;
mod record;
mod state;
mod surroundings;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::FixedMap;
use crate::ledger::kind::Kinds;
use crate::ledger::quota::Held;
use crate::ledger::worth::{Mix, Worth};
use crate::model::id::{GangKey, Model, Namespace, NodeName, PodUid};
use crate::model::node::Node;
use crate::model::pod::{Pod, State};

pub use changes::Position;
pub use record::{Damaged, Record};
pub use state::{NodeState, PodState};
pub use surroundings::{DisruptionBudget, Surroundings};
pub use transaction::{Checkpoint, Refusal};

/// A node's place in the snapshot. Nodes keep theirs as long as they exist; ties between equally good nodes go to the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeIx(pub u32);

/// A pod's place in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodIx(pub u32);

/// The cluster as known now.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    kinds: Kinds,
    nodes: Vec<Option<NodeState>>,
    node_by_name: FixedMap<NodeName, NodeIx>,
    free_nodes: BTreeSet<NodeIx>,
    pods: Vec<Option<PodState>>,
    pod_by_uid: FixedMap<PodUid, PodIx>,
    free_pods: Vec<PodIx>,
    waiting: BTreeSet<PodIx>,
    gangs: BTreeMap<GangKey, BTreeSet<PodIx>>,
    /// Bound pods whose node is not known (yet).
    orphans: BTreeMap<NodeName, BTreeSet<PodIx>>,
    /// Bound pods that do not want certain others near them: looked at for every pod that is placed.
    repelling: BTreeSet<PodIx>,
    /// Devices held per namespace, in thousandths.
    held: BTreeMap<Namespace, u64>,
    /// What namespaces hold, as quotas count it.
    holdings: BTreeMap<Namespace, Held>,
    surroundings: Surroundings,
    /// Every model a device was ever of, in the order in which they came.
    models: Vec<Model>,
    /// The mix of requests, learnt or told, and what leftovers are worth under it.
    mix: Mix,
    worth: Arc<Worth>,
    /// Arrivals when the worth was last reckoned; absent before the first time.
    priced: Option<u64>,
    changes: changes::Changes,
    journal: transaction::Journal,
}

impl Snapshot {
    /// An empty cluster.
    pub fn new() -> Snapshot {
        Snapshot::default()
    }

    /// An empty cluster that knows these kinds of devices.
    pub fn with_kinds(kinds: Kinds) -> Snapshot {
        Snapshot { kinds, ..Snapshot::default() }
    }

    /// The kinds of devices it knows.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// What else bears on placing.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Changes what else bears on placing. Counts as a change of every node: whoever remembers answers must ask again.
    pub fn surroundings_mut(&mut self) -> &mut Surroundings {
        self.changes.all();
        &mut self.surroundings
    }

    /// A node came or changed.
    pub fn put_node(&mut self, node: Node) {
        debug_assert!(self.journal.is_closed(), "events come between transactions");
        let name = node.name.clone();
        let ix = match self.node_by_name.get(&name) {
            Some(ix) => {
                let ix = *ix;
                if self.node_at(ix).is_some_and(|state| *state.node == node) {
                    return;
                }
                self.drop_node(ix);
                ix
            }
            None => match self.free_nodes.pop_first() {
                Some(ix) => ix,
                None => {
                    self.nodes.push(None);
                    NodeIx(self.nodes.len() as u32 - 1)
                }
            },
        };
        self.nodes[ix.0 as usize] = Some(NodeState::new(node, self.kinds, &mut self.models));
        self.node_by_name.insert(name.clone(), ix);
        for pod in self.orphans.remove(&name).unwrap_or_default() {
            self.charge(pod);
        }
        self.changes.node(ix);
    }

    /// A node went. Pods bound to it stay known, and are charged again if it comes back.
    pub fn remove_node(&mut self, name: &NodeName) {
        debug_assert!(self.journal.is_closed(), "events come between transactions");
        if let Some(ix) = self.node_by_name.remove(name) {
            self.drop_node(ix);
            self.free_nodes.insert(ix);
            self.changes.node(ix);
        }
    }

    /// Empties a node's place; its pods become orphans.
    fn drop_node(&mut self, ix: NodeIx) {
        let pods = self.node_at(ix).map(|state| state.pods.clone()).unwrap_or_default();
        for pod in pods {
            self.uncharge(pod);
            if let Some(bound) = self.pod_at(pod).and_then(|state| state.pod.bound()) {
                let node = bound.node.clone();
                self.orphans.entry(node).or_default().insert(pod);
            }
        }
        if let Some(state) = self.nodes[ix.0 as usize].take() {
            for kind in self.kinds.0 {
                kind.node_removed(&state.node.inventory);
            }
        }
    }

    /// A pod came or changed: it waits, or it is bound and holds what it was granted. One that has ended is not put but removed.
    pub fn put_pod(&mut self, pod: Pod) {
        debug_assert!(self.journal.is_closed(), "events come between transactions");
        if let Some(ix) = self.pod_by_uid.get(&pod.uid).copied() {
            if self.pod_at(ix).is_some_and(|state| state.pod == pod) {
                return;
            }
            self.forget(ix);
            self.insert(ix, pod);
            return;
        }
        let ix = self.free_pods.pop().unwrap_or_else(|| {
            self.pods.push(None);
            PodIx(self.pods.len() as u32 - 1)
        });
        self.pod_by_uid.insert(pod.uid.clone(), ix);
        self.mix.learn(&pod);
        self.insert(ix, pod);
    }

    /// A pod went, or has ended.
    pub fn remove_pod(&mut self, uid: &PodUid) {
        debug_assert!(self.journal.is_closed(), "events come between transactions");
        if let Some(ix) = self.pod_by_uid.remove(uid) {
            if self.bound(ix).is_some() {
                self.mix.lose();
            }
            self.forget(ix);
            self.pods[ix.0 as usize] = None;
            self.free_pods.push(ix);
        }
    }

    /// A pod has ended well. Is that news to its gang? What nodes answer does not depend on it.
    pub fn finish(&mut self, pod: &Pod) -> bool {
        self.surroundings.finished.put(pod)
    }

    /// A pod that had ended well is no longer kept.
    pub fn forget_finished(&mut self, uid: &PodUid) {
        self.surroundings.finished.remove(uid);
    }

    fn insert(&mut self, ix: PodIx, pod: Pod) {
        if let Some(gang) = pod.gang() {
            self.gangs.entry(gang).or_default().insert(ix);
        }
        let waits = matches!(pod.state, State::Waiting);
        self.pods[ix.0 as usize] = Some(PodState::new(pod));
        if waits {
            self.waiting.insert(ix);
        } else {
            self.charge(ix);
        }
    }

    /// Takes back everything a pod's entry stands for, except the entry.
    fn forget(&mut self, ix: PodIx) {
        self.waiting.remove(&ix);
        self.uncharge(ix);
        let Some(state) = self.pod_at(ix) else { return };
        let (gang, node) = (state.pod.gang(), state.pod.bound().map(|b| b.node.clone()));
        if let Some(gang) = gang
            && let Some(members) = self.gangs.get_mut(&gang)
        {
            members.remove(&ix);
            if members.is_empty() {
                self.gangs.remove(&gang);
            }
        }
        if let Some(node) = node
            && let Some(orphans) = self.orphans.get_mut(&node)
        {
            orphans.remove(&ix);
            if orphans.is_empty() {
                self.orphans.remove(&node);
            }
        }
    }

    /// Where the list of changes stands now.
    pub fn position(&self) -> Position {
        self.changes.position()
    }

    /// The nodes that changed since, some of them more than once; absent when that is no longer known, and every node must be
    /// looked at again.
    pub fn changed_since(&self, position: Position) -> Option<&[NodeIx]> {
        self.changes.since(position)
    }
}

/// Two snapshots are equal when they say the same about the cluster, whatever happened before.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Snapshot) -> bool {
        self.nodes == other.nodes
            && self.pods == other.pods
            && self.waiting == other.waiting
            && self.gangs == other.gangs
            && self.orphans == other.orphans
            && self.repelling == other.repelling
            && self.held == other.held
            && self.holdings == other.holdings
            && self.surroundings == other.surroundings
    }
}

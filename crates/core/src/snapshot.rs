//! The cluster as known now: nodes with their devices and books, pods, and what else bears on placing. Kept up to date event by event;
//! nothing is rebuilt per decision.
//!
//! Decisions are tried out on it in transactions: [`Snapshot::checkpoint`], any number of [`Snapshot::place`] and
//! [`Snapshot::evict`], then [`Snapshot::rollback`] (which is exact) or [`Snapshot::commit`].

mod changes;
mod record;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::{DeviceKind, Inventory, Link};
use crate::hash::FixedMap;
use crate::id::{GangKey, Model, Namespace, NodeName, PodUid};
use crate::kind::Kinds;
use crate::labels::{Labels, Selector};
use crate::ledger::{Book, Charge, charges};
use crate::node::Node;
use crate::pod::{Bound, Pod, State};
use crate::quota::{Held, Quotas, Usage};
use crate::resources::Resources;
use crate::units::Share;
use crate::volume::{Claim, ClaimKey, StorageCapacity, StorageClass, Volume};
use crate::worth::{Mix, Worth};

pub use changes::Position;
pub use record::Record;
pub use transaction::{Checkpoint, Refusal};

/// After so many arrivals what leftovers are worth is reckoned again.
const WORTH_EVERY: u64 = 200;

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

/// What else bears on placing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Surroundings {
    /// Labels of namespaces.
    pub namespaces: BTreeMap<Namespace, Labels>,
    /// PersistentVolumeClaims.
    #[serde(with = "as_list")]
    pub claims: BTreeMap<ClaimKey, Claim>,
    /// PersistentVolumes.
    pub volumes: BTreeMap<Arc<str>, Volume>,
    /// Storage classes.
    pub classes: BTreeMap<Arc<str>, StorageClass>,
    /// Room for new volumes.
    pub capacities: Vec<StorageCapacity>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// How much namespaces may hold at once.
    pub quotas: Quotas,
}

/// JSON has only texts as names in a map; claims are a list there.
mod as_list {
    use super::{BTreeMap, Claim, ClaimKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(claims: &BTreeMap<ClaimKey, Claim>, out: S) -> Result<S::Ok, S::Error> {
        claims.values().collect::<Vec<_>>().serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ClaimKey, Claim>, D::Error> {
        let claims = Vec::<Claim>::deserialize(from)?;
        Ok(claims.into_iter().map(|claim| (claim.key.clone(), claim)).collect())
    }
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Where it holds.
    pub namespace: Namespace,
    /// Its name.
    pub name: Arc<str>,
    /// Which pods it protects; absent protects none.
    pub selector: Option<Selector>,
    /// How many of them may be evicted now.
    pub allowed: u32,
}

impl DisruptionBudget {
    /// Is this pod one of those it protects?
    pub fn protects(&self, pod: &Pod) -> bool {
        self.namespace == pod.key.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.selects(&pod.labels))
    }
}

/// A node, its books, and who is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    node: Arc<Node>,
    books: Vec<Book>,
    used: Resources,
    pods: Vec<PodIx>,
    links: Arc<[Link]>,
    models: Arc<[u16]>,
}

impl NodeState {
    fn new(node: Node, kinds: Kinds, known: &mut Vec<Model>) -> NodeState {
        let devices = &node.inventory.devices;
        let book = |device: &crate::device::Device| {
            kinds.of(device.kind).map_or_else(Book::default, |kind| kind.node_added(device, &node.inventory))
        };
        let books = devices.iter().map(book).collect();
        let link = |a: &crate::device::Device, b: &crate::device::Device| {
            let (there, back) = (a.links.get(&b.id), b.links.get(&a.id));
            there.copied().unwrap_or_default().max(back.copied().unwrap_or_default())
        };
        let links = devices.iter().flat_map(|a| devices.iter().map(move |b| link(a, b))).collect();
        let mut place = |model: &Model| {
            let found = known.iter().position(|known| known == model);
            found.unwrap_or_else(|| {
                known.push(model.clone());
                known.len() - 1
            }) as u16
        };
        let models = devices.iter().map(|device| place(&device.model)).collect();
        NodeState { books, used: Resources::default(), pods: Vec::new(), links, models, node: Arc::new(node) }
    }

    /// The node as it was told.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The books of its devices, in the order of its inventory.
    pub fn books(&self) -> &[Book] {
        &self.books
    }

    /// Ordinary resources in use.
    pub fn used(&self) -> &Resources {
        &self.used
    }

    /// The pods on it, in no particular order.
    pub fn pods(&self) -> &[PodIx] {
        &self.pods
    }

    /// How two of its devices are connected.
    pub fn link(&self, a: usize, b: usize) -> Link {
        self.links.get(a * self.books.len() + b).copied().unwrap_or_default()
    }

    /// The model of a device, by place in [`Snapshot::models`].
    pub(crate) fn model(&self, device: usize) -> u16 {
        self.models.get(device).copied().unwrap_or(u16::MAX)
    }

    /// The models of all its devices, by place in [`Snapshot::models`].
    pub(crate) fn models(&self) -> &Arc<[u16]> {
        &self.models
    }

    /// Does it have a device of this kind?
    pub fn has(&self, kind: DeviceKind) -> bool {
        self.node.inventory.devices.iter().any(|d| d.kind == kind)
    }
}

/// A pod and what it is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pod: Pod,
    /// Where its charges stand; absent for a waiting pod and for one whose node is not known.
    on: Option<NodeIx>,
    charges: Vec<(u32, Charge)>,
    /// Evicted in an open transaction: neither waiting nor bound.
    evicted: bool,
}

impl PodState {
    /// The pod.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The node it is on.
    pub fn on(&self) -> Option<NodeIx> {
        self.on
    }

    /// What it is charged, by place of the device in the node's inventory.
    pub fn charges(&self) -> &[(u32, Charge)] {
        &self.charges
    }

    /// What it holds, as quotas count it.
    pub fn holding(&self, inventory: &Inventory) -> Held {
        let mut held = Held::default();
        for (device, charge) in &self.charges {
            if let Some(device) = inventory.devices.get(*device as usize).filter(|d| d.kind != DeviceKind::Nic) {
                held.add(&Held::of(&device.model, Usage::of(charge, device)));
            }
        }
        held
    }

    /// Devices it holds, in thousandths: of each the larger of its share and its part of the memory, all of one it holds alone.
    pub fn weight(&self, books: &[Book]) -> u64 {
        let one = |(device, charge): &(u32, Charge)| {
            let memory = books.get(*device as usize).map_or(0, |book| {
                let whole = u128::from(book.memory.0.max(1));
                (u128::from(charge.memory.0) * 1000 / whole).min(1000) as u64
            });
            if charge.exclusive { u64::from(Share::WHOLE.0) } else { memory.max(u64::from(charge.share.0)) }
        };
        self.charges.iter().map(one).sum()
    }
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

    fn insert(&mut self, ix: PodIx, pod: Pod) {
        if let Some(gang) = pod.gang() {
            self.gangs.entry(gang).or_default().insert(ix);
        }
        let waits = matches!(pod.state, State::Waiting);
        self.pods[ix.0 as usize] = Some(PodState { pod, on: None, charges: Vec::new(), evicted: false });
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

    /// Writes a bound pod into its node's books.
    fn charge(&mut self, ix: PodIx) {
        let Some(pod) = self.pods[ix.0 as usize].as_mut() else { return };
        let State::Bound(bound) = &pod.pod.state else { return };
        let Some(&node_ix) = self.node_by_name.get(&bound.node) else {
            self.orphans.entry(bound.node.clone()).or_default().insert(ix);
            return;
        };
        let Some(node) = self.nodes[node_ix.0 as usize].as_mut() else { return };
        pod.charges.clear();
        pod.on = Some(node_ix);
        node.pods.push(ix);
        node.used.add(&pod.pod.spec.requests);
        let inventory = &node.node.inventory;
        // What the node refused is void in every fold: the pod is on its way out and holds nothing.
        if let Some(grant) = bound.grant.as_ref().filter(|_| !inventory.refused.contains_key(pod.pod.uid.as_str())) {
            for (id, charge) in charges(grant, inventory, bound.init_done) {
                let Some(device) = inventory.devices.iter().position(|d| d.id == id) else { continue };
                if let Some(kind) = self.kinds.of(inventory.devices[device].kind) {
                    kind.take(&mut node.books[device], &charge);
                    pod.charges.push((device as u32, charge));
                }
            }
        }
        let weight = pod.weight(&node.books);
        if weight > 0 {
            *self.held.entry(pod.pod.key.namespace.clone()).or_default() += weight;
        }
        if !pod.charges.is_empty() {
            let holding = pod.holding(&node.node.inventory);
            self.holdings.entry(pod.pod.key.namespace.clone()).or_default().add(&holding);
        }
        if !pod.pod.spec.apart.is_empty() {
            self.repelling.insert(ix);
        }
        self.changes.node(node_ix);
    }

    /// Takes a pod out of its node's books.
    fn uncharge(&mut self, ix: PodIx) {
        let Some(pod) = self.pods[ix.0 as usize].as_mut() else { return };
        let Some(node_ix) = pod.on.take() else { return };
        let Some(node) = self.nodes[node_ix.0 as usize].as_mut() else { return };
        let weight = pod.weight(&node.books);
        if !pod.charges.is_empty()
            && let Some(held) = self.holdings.get_mut(&pod.pod.key.namespace)
        {
            held.take(&pod.holding(&node.node.inventory));
            if held.is_empty() {
                self.holdings.remove(&pod.pod.key.namespace);
            }
        }
        node.used.sub(&pod.pod.spec.requests);
        for (device, charge) in pod.charges.drain(..) {
            let device = device as usize;
            if let Some(kind) = self.kinds.of(node.node.inventory.devices[device].kind) {
                kind.give_back(&mut node.books[device], &charge);
            }
        }
        if let Some(place) = node.pods.iter().position(|p| *p == ix) {
            node.pods.swap_remove(place);
        }
        if weight > 0
            && let Some(held) = self.held.get_mut(&pod.pod.key.namespace)
        {
            *held = held.saturating_sub(weight);
            if *held == 0 {
                self.held.remove(&pod.pod.key.namespace);
            }
        }
        self.repelling.remove(&ix);
        self.changes.node(node_ix);
    }

    /// The node at a place.
    pub fn node_at(&self, ix: NodeIx) -> Option<&NodeState> {
        self.nodes.get(ix.0 as usize)?.as_ref()
    }

    /// The node of a name.
    pub fn node(&self, name: &NodeName) -> Option<&NodeState> {
        self.node_at(self.find_node(name)?)
    }

    /// The place of a node.
    pub fn find_node(&self, name: &NodeName) -> Option<NodeIx> {
        self.node_by_name.get(name).copied()
    }

    /// All nodes with their places, lowest first.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIx, &NodeState)> {
        self.nodes.iter().enumerate().filter_map(|(i, node)| Some((NodeIx(i as u32), node.as_ref()?)))
    }

    /// How many places for nodes there are, used or not.
    pub fn node_places(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.free_nodes.len()
    }

    /// The pod at a place.
    pub fn pod_at(&self, ix: PodIx) -> Option<&PodState> {
        self.pods.get(ix.0 as usize)?.as_ref()
    }

    /// The pod of a uid.
    pub fn pod(&self, uid: &PodUid) -> Option<&PodState> {
        self.pod_at(self.find_pod(uid)?)
    }

    /// The place of a pod.
    pub fn find_pod(&self, uid: &PodUid) -> Option<PodIx> {
        self.pod_by_uid.get(uid).copied()
    }

    /// All pods with their places.
    pub fn pods(&self) -> impl Iterator<Item = (PodIx, &PodState)> {
        self.pods.iter().enumerate().filter_map(|(i, pod)| Some((PodIx(i as u32), pod.as_ref()?)))
    }

    /// Pods that wait.
    pub fn waiting(&self) -> impl Iterator<Item = (PodIx, &PodState)> {
        self.waiting.iter().filter_map(|ix| Some((*ix, self.pod_at(*ix)?)))
    }

    /// The members of a gang, bound or waiting.
    pub fn gang(&self, gang: &GangKey) -> impl Iterator<Item = (PodIx, &PodState)> {
        self.gangs.get(gang).into_iter().flatten().filter_map(|ix| Some((*ix, self.pod_at(*ix)?)))
    }

    /// Bound pods that do not want certain others near them.
    pub fn repelling(&self) -> impl Iterator<Item = (PodIx, &PodState)> {
        self.repelling.iter().filter_map(|ix| Some((*ix, self.pod_at(*ix)?)))
    }

    /// Devices held per namespace, in thousandths.
    pub fn held(&self) -> &BTreeMap<Namespace, u64> {
        &self.held
    }

    /// What namespaces hold, as quotas count it.
    pub fn holdings(&self) -> &BTreeMap<Namespace, Held> {
        &self.holdings
    }

    /// Every model a device was ever of.
    pub(crate) fn models(&self) -> &[Model] {
        &self.models
    }

    /// The mix of requests, as learnt or told.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// Tells the mix of requests to expect.
    pub fn expect(&mut self, mix: Mix) {
        (self.mix, self.priced) = (mix, None);
    }

    /// What leftovers are worth, as last reckoned.
    pub fn worth(&self) -> &Arc<Worth> {
        &self.worth
    }

    /// Is it time to reckon again what leftovers are worth?
    pub fn is_worth_stale(&self) -> bool {
        let arrivals = self.mix.arrivals();
        // Often while little is known, then every few hundred arrivals: prices move slowly.
        let patience = if arrivals < WORTH_EVERY { WORTH_EVERY / 10 } else { WORTH_EVERY };
        self.priced.is_none_or(|at| arrivals >= at + patience)
    }

    /// Reckons what leftovers are worth. Whoever cannot spare the milliseconds gives a clone to another thread and adopts the result.
    pub fn reckon_worth(&mut self) {
        let worth = Worth::of(self, &self.mix);
        self.adopt_worth(Arc::new(worth));
    }

    /// Takes over what was reckoned elsewhere.
    pub fn adopt_worth(&mut self, worth: Arc<Worth>) {
        (self.worth, self.priced) = (worth, Some(self.mix.arrivals()));
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

    /// What a bound pod holds.
    pub fn bound(&self, ix: PodIx) -> Option<&Bound> {
        self.pod_at(ix)?.pod.bound()
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

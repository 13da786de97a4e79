//! Looking things up.

use std::collections::BTreeMap;

use super::{NodeIx, NodeState, PodIx, PodState, Snapshot};
use crate::ledger::quota::Held;
use crate::model::id::{GangKey, Model, Namespace, NodeName, PodUid};
use crate::model::pod::Bound;

impl Snapshot {
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

    /// What a bound pod holds.
    pub fn bound(&self, ix: PodIx) -> Option<&Bound> {
        self.pod_at(ix)?.pod.bound()
    }
}

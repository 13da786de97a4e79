//! Places that are kept for pods that wait, from one plan to the next: where room is being made, and what is reserved. Whoever has one
//! keeps it while it is of use, also in plans that are not about it: so nobody is evicted twice for one pod, nobody lesser
//! slips in where others left for somebody else, and whoever waits long is not overtaken by those who come while it sleeps.

use std::collections::BTreeMap;

use crate::fit::rules;
use crate::ledger::snapshot::{NodeIx, PodIx, Snapshot};
use crate::model::id::{DeviceId, NodeName, PodUid};
use crate::model::pod::Pod;
use crate::model::reason::Reason;
use crate::model::time::Time;
use crate::place::KeptNode;
use crate::plan::{Reservation, Wait};
use crate::schedule::Round;

/// Seconds that room is kept where nobody is seen to leave yet: long enough to be told to go.
const TOLD: u64 = 60;

/// A place that is kept for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeping {
    pub(super) node: NodeName,
    /// None means the node as a whole.
    pub(super) devices: Vec<DeviceId>,
    /// Others were told to leave for it; else it is reserved, and who is there may end in peace.
    pub(super) room: bool,
    /// Then it is looked for anew.
    pub(super) until: Time,
    /// Who was first to have something kept goes first.
    pub(super) turn: u64,
}

/// Everything that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Keepings {
    of: BTreeMap<PodUid, Keeping>,
    turns: u64,
}

impl Keepings {
    /// Nothing is kept for those who wait no longer.
    pub(super) fn forget_others(&mut self, snapshot: &Snapshot) {
        let waits = |uid: &PodUid| snapshot.pod(uid).is_some_and(|state| state.pod().bound().is_none());
        self.of.retain(|uid, keeping| waits(uid) && snapshot.find_node(&keeping.node).is_some());
    }

    /// The turn of a pod for which something is kept.
    pub(super) fn turn(&self, snapshot: &Snapshot, ix: PodIx) -> Option<u64> {
        if self.of.is_empty() {
            return None;
        }
        self.of.get(&snapshot.pod_at(ix)?.pod().uid).map(|keeping| keeping.turn)
    }

    /// A turn after all others.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }
}

impl Round<'_> {
    /// What was kept for these; it is decided anew.
    pub(super) fn take_keepings(&mut self, members: &[PodIx]) -> Vec<(PodIx, Keeping)> {
        let taken = |ix: &PodIx| Some((*ix, self.keepings.of.remove(&self.snapshot.pod_at(*ix)?.pod().uid)?));
        members.iter().filter_map(taken).collect()
    }

    /// They are not decided about now: what is kept for them stays kept while it is of use.
    pub(super) fn hold(&mut self, members: &[PodIx]) {
        let mut reserved = false;
        for (ix, keeping) in self.take_keepings(members) {
            let Some(node) = self.snapshot.find_node(&keeping.node) else { continue };
            if self.now >= keeping.until && !(keeping.room && self.is_leaving(node)) {
                continue;
            }
            reserved |= !keeping.room;
            self.keep(ix, node, keeping);
        }
        self.reserved += u32::from(reserved);
    }

    fn is_leaving(&self, node: NodeIx) -> bool {
        let pods = self.snapshot.node_at(node).map_or(&[][..], |state| state.pods());
        pods.iter().filter_map(|ix| self.snapshot.bound(*ix)).any(|bound| bound.terminating)
    }

    /// Nobody who comes after gets it.
    fn keep(&mut self, ix: PodIx, node: NodeIx, keeping: Keeping) {
        let (Some(pod), Some(state)) = (self.snapshot.pod_at(ix), self.snapshot.node_at(node)) else { return };
        let (uid, key) = (pod.pod().uid.clone(), pod.pod().key.clone());
        let kept: &mut KeptNode = self.kept.nodes.entry(node).or_default();
        if keeping.devices.is_empty() {
            kept.whole = Some(key);
        } else {
            let places = keeping.devices.iter().filter_map(|id| state.node().device(id));
            kept.devices.extend(places.map(|device| (device, key.clone())));
        }
        self.keepings.of.insert(uid, keeping);
    }

    /// Has it wait for room that is being made, and keeps the node for it.
    pub(super) fn keep_room(&mut self, ix: PodIx, node: NodeIx, leaving: u32) {
        let turn = self.keepings.next_turn();
        self.keep_room_at(ix, node, leaving, turn);
    }

    fn keep_room_at(&mut self, ix: PodIx, node: NodeIx, leaving: u32, turn: u64) {
        let Some(name) = self.snapshot.node_at(node).map(|state| state.node().name.clone()) else { return };
        let Some(pod) = self.snapshot.pod_at(ix).map(|state| state.pod()) else { return };
        let reason = Reason::MakingRoom { node: name.clone(), leaving };
        let wait = Wait { pod: pod.uid.clone(), key: pod.key.clone(), reason, nominated: Some(name.clone()) };
        self.plan.waits.push(wait);
        let until = Time(self.now.0.saturating_add(TOLD * 1000));
        self.keep(ix, node, Keeping { node: name, devices: Vec::new(), room: true, until, turn });
    }

    /// Room that is being made stays where it is, if all of them fit there once those who leave are gone: nobody else has to go.
    pub(super) fn stay(&mut self, kept: &[(PodIx, Keeping)]) -> bool {
        let rooms: Vec<(PodIx, NodeIx, u64)> = kept
            .iter()
            .filter(|(_, keeping)| keeping.room)
            .filter_map(|(ix, keeping)| Some((*ix, self.snapshot.find_node(&keeping.node)?, keeping.turn)))
            .collect();
        if rooms.is_empty() || rooms.iter().any(|(_, node, _)| self.kept.nodes.contains_key(node)) {
            return false;
        }
        let checkpoint = self.snapshot.checkpoint();
        let mut leavers: Vec<u32> = Vec::new();
        for (ix, node, _) in &rooms {
            let leaving = self.see_off(*node);
            if !self.settle(*ix, *node) {
                break;
            }
            leavers.push(leaving);
        }
        self.snapshot.rollback(checkpoint);
        if leavers.len() < rooms.len() {
            return false;
        }
        for ((ix, node, turn), leaving) in rooms.into_iter().zip(leavers) {
            self.keep_room_at(ix, node, leaving, turn);
        }
        true
    }

    /// In a transaction: those who leave a node are gone. Says how many they were.
    pub(super) fn see_off(&mut self, node: NodeIx) -> u32 {
        let (_, leaving) = self.leavers(node, |_: &Pod| false);
        let uids: Vec<PodUid> =
            leaving.iter().filter_map(|ix| Some(self.snapshot.pod_at(*ix)?.pod().uid.clone())).collect();
        uids.iter().filter(|uid| self.snapshot.evict(uid)).count() as u32
    }

    /// In a transaction: the pod has its place on this node, if there is one.
    fn settle(&mut self, ix: PodIx, node: NodeIx) -> bool {
        let Some(grant) = self.fits_without(ix, node, &[]) else { return false };
        self.occupy(ix, node, grant)
    }

    /// In a transaction: the pod has this place.
    pub(super) fn occupy(&mut self, ix: PodIx, node: NodeIx, grant: Option<crate::model::grant::Grant>) -> bool {
        let Some(name) = self.snapshot.node_at(node).map(|state| state.node().name.clone()) else { return false };
        let Some(uid) = self.snapshot.pod_at(ix).map(|state| state.pod().uid.clone()) else { return false };
        self.snapshot.place(&uid, &name, grant.map(std::sync::Arc::new), self.now).is_ok()
    }

    /// What is reserved for the pod stays reserved until it is looked for anew, if it can run there at all.
    pub(super) fn stay_reserved(&mut self, ix: PodIx, kept: &[(PodIx, Keeping)]) -> bool {
        let Some((_, keeping)) = kept.iter().find(|(of, keeping)| *of == ix && !keeping.room) else { return false };
        let Some(node) = self.snapshot.find_node(&keeping.node) else { return false };
        let (Some(pod), Some(state)) = (self.snapshot.pod_at(ix), self.snapshot.node_at(node)) else { return false };
        let others = state.pods().to_vec();
        let good = self.now < keeping.until
            && !self.kept.nodes.contains_key(&node)
            && rules::node::check(pod.pod(), state.node()).is_ok()
            && keeping.devices.iter().all(|id| state.node().device(id).is_some())
            && self.fits_without(ix, node, &others).is_some();
        if good {
            self.keep_reserved(ix, node, keeping.clone());
        }
        good
    }

    /// Keeps a place, and says so.
    pub(super) fn keep_reserved(&mut self, ix: PodIx, node: NodeIx, keeping: Keeping) {
        let Some(pod) = self.snapshot.pod_at(ix).map(|state| state.pod()) else { return };
        self.plan.reservations.push(Reservation {
            pod: pod.uid.clone(),
            key: pod.key.clone(),
            node: keeping.node.clone(),
            devices: keeping.devices.clone(),
        });
        self.keep(ix, node, keeping);
    }
}

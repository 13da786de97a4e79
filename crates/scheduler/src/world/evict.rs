//! Pods that have to go: asked again until they are gone.

use divvy_cluster::Effect;
use divvy_cluster::effect::{About, Event, Evict, Failure, Target};
use divvy_core::id::{NodeName, PodUid};
use divvy_core::pod::State;
use divvy_core::time::Time;

use super::World;

/// Milliseconds between two requests for the same eviction.
const AGAIN: u64 = 2_000;
/// How often an eviction that a disruption budget forbids is asked for before the plan is made anew without it.
const PATIENCE: u32 = 5;

/// A pod that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicting {
    target: Target,
    reason: String,
    /// When to ask (again); none while a request is under way or was granted.
    next: Option<Time>,
    /// How often it was asked for in vain.
    asked: u32,
    /// The node refused its grant, or its device failed: there is no other way but out.
    must: bool,
}

impl World {
    /// Evicts a pod, and says why.
    pub(super) fn evict(&mut self, uid: &PodUid, reason: &str, word: &'static str, now: Time) {
        if self.evicting.contains_key(uid) {
            return;
        }
        let Some(state) = self.snapshot.pod(uid) else { return };
        let mut pod = state.pod().clone();
        let target = Target { pod: pod.key.clone(), uid: uid.clone() };
        let must = word != "Preempted";
        let about = About::Pod(target.clone());
        self.effects.push(Effect::Tell(Event { about, reason: word, message: reason.to_owned(), warning: must }));
        self.effects.push(Effect::Evict(Evict { target: target.clone(), reason: reason.to_owned() }));
        self.evicting.insert(uid.clone(), Evicting { target, reason: reason.to_owned(), next: None, asked: 0, must });
        self.counts.evictions += 1;
        // It counts as leaving from now on, so that nobody else is evicted for the same room.
        if let State::Bound(bound) = &mut pod.state {
            bound.terminating = true;
            self.snapshot.put_pod(pod);
        }
        let _ = now;
    }

    /// The API server answered an eviction.
    pub(super) fn evicted(&mut self, evict: &Evict, outcome: Result<(), Failure>, now: Time) {
        let uid = &evict.target.uid;
        let Some(evicting) = self.evicting.get_mut(uid) else { return };
        match outcome {
            Ok(()) | Err(Failure::Gone) => evicting.next = None,
            Err(failure) => {
                tracing::warn!(pod = %evict.target.pod, %failure, "could not evict");
                evicting.asked += 1;
                evicting.next = Some(Time(now.0 + AGAIN));
                if !evicting.must && evicting.asked >= PATIENCE {
                    self.evicting.remove(uid);
                    self.stays(uid);
                }
            }
        }
    }

    /// A pod that was to leave stays: whoever it was to make room for is tried anew.
    fn stays(&mut self, uid: &PodUid) {
        self.loosened = true;
        let Some(state) = self.snapshot.pod(uid) else { return };
        let mut pod = state.pod().clone();
        if let State::Bound(bound) = &mut pod.state {
            bound.terminating = false;
            self.snapshot.put_pod(pod);
        }
    }

    /// Asks again for evictions that were not granted.
    pub(super) fn evict_again(&mut self, now: Time) {
        for evicting in self.evicting.values_mut() {
            if evicting.next.is_some_and(|next| next <= now) {
                evicting.next = None;
                let (target, reason) = (evicting.target.clone(), evicting.reason.clone());
                self.effects.push(Effect::Evict(Evict { target, reason }));
            }
        }
    }

    /// Evicts the pods on a node that the node names: those whose grant it refused, which hold nothing and will never start, and those on
    /// a device that failed. What it says about pods that are not on it is passed over.
    pub(super) fn evict_named(&mut self, node: &NodeName, now: Time) {
        let Some(state) = self.snapshot.node(node) else { return };
        let inventory = &state.node().inventory;
        let named = inventory.refused.keys().chain(inventory.evict.keys());
        let named: Vec<PodUid> = named.map(|uid| PodUid::from(uid.as_str())).collect();
        for uid in named {
            self.evict_if_named(&uid, node, now);
        }
    }

    pub(super) fn evict_if_named(&mut self, uid: &PodUid, node: &NodeName, now: Time) {
        let here = self.snapshot.pod(uid).and_then(|s| s.pod().bound()).is_some_and(|b| b.node == *node);
        let Some(state) = self.snapshot.node(node).filter(|_| here) else { return };
        let inventory = &state.node().inventory;
        if let Some(reason) = inventory.refused.get(uid.as_str()) {
            let reason = format!("node {node} refused its grant: {reason}");
            self.evict(uid, &reason, "GrantRefused", now);
        } else if let Some(reason) = inventory.evict.get(uid.as_str()) {
            let reason = format!("a device of its node {node} failed: {reason}");
            self.evict(uid, &reason, "DeviceUnhealthy", now);
        }
    }
}

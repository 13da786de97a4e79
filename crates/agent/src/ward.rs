//! What is done about failed devices: the node says so in an event, pods on them get a condition, and by policy the node's inventory names
//! them as pods to be evicted, which the controller then does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_core::id::{DeviceId, PodUid};
use divvy_core::keys;

use crate::events::Events;
use crate::health::{Health, Policy, Turn};
use crate::node::Node;
use crate::patches::{Change, Patches};
use crate::pods::PodView;

/// Whom to tell.
pub struct Ward {
    /// Events.
    pub events: Events,
    /// Conditions.
    pub patches: Patches,
}

/// What pods were told, so that each trouble is an event once.
pub type Told = BTreeMap<PodUid, String>;

impl Ward {
    /// Tells of turns, and sees to it that the pods on failed devices know, and those on devices that are fit again too. Their
    /// conditions are compared at every look: what was not known, or not sent, at the turn itself is made up for.
    pub fn tell(&self, node: &Arc<Node>, turns: &[Turn], health: &Health, policy: &Policy, told: &mut Told) {
        for turn in turns {
            match &turn.reason {
                Some(reason) => {
                    tracing::warn!(device = %turn.device, reason, "a device is not fit for work");
                    self.events.node(true, "DeviceUnhealthy", &format!("{}: {reason}", turn.device));
                }
                None => {
                    tracing::info!(device = %turn.device, "a device is fit again");
                    self.events.node(false, "DeviceHealthy", &format!("{} answers again", turn.device));
                }
            }
        }
        let unhealthy = health.unhealthy();
        let ledger = node.ledger();
        told.retain(|uid, _| ledger.holders().contains_key(uid));
        let mut evict = BTreeMap::new();
        for pod in ledger.holders().keys().filter_map(|uid| node.pods.get(uid)) {
            let bad = troubles(&pod, &unhealthy);
            if let Some(bad) = bad.as_ref().filter(|_| policy.evict) {
                evict.insert(pod.uid.clone(), bad.clone());
            }
            if bad == pod.devices_bad {
                continue;
            }
            let (reason, message) = match &bad {
                None => ("DevicesHealthy", "all its devices are fit for work".to_owned()),
                Some(bad) => ("DeviceUnhealthy", bad.clone()),
            };
            let change = Change::Condition {
                kind: keys::CONDITION_DEVICES.into(),
                holds: bad.is_none(),
                reason: reason.into(),
                message: message.clone(),
            };
            self.patches.change(&pod.pod, &pod.uid, change);
            let Some(bad) = bad else {
                told.remove(&pod.uid);
                continue;
            };
            if told.insert(pod.uid.clone(), bad.clone()).as_ref() != Some(&bad) {
                self.events.warn_pod(&pod, "DeviceUnhealthy", &message);
            }
        }
        node.set_evict(evict);
    }
}

/// What is wrong with a pod's devices.
fn troubles(pod: &PodView, unhealthy: &BTreeMap<DeviceId, String>) -> Option<String> {
    let grant = pod.grant.as_ref()?.as_ref().ok()?;
    let devices: BTreeSet<&DeviceId> = grant.containers.iter().flat_map(|c| &c.slices).map(|s| &s.device).collect();
    let bad: Vec<String> =
        devices.into_iter().filter_map(|id| unhealthy.get(id).map(|reason| format!("{id}: {reason}"))).collect();
    (!bad.is_empty()).then(|| bad.join("; "))
}

#[cfg(test)]
mod tests {
    use divvy_core::ask::Role;
    use divvy_core::units::Bytes;

    use super::*;
    use crate::testing;

    #[test]
    fn a_pod_is_told_of_each_of_its_devices_once() {
        let slice = |id: &str| testing::slice(&id.into(), Bytes::gib(1), 100);
        let slices = vec![slice("G1"), slice("G0"), slice("G1")];
        let grant = testing::grant(vec![testing::container("main", Role::Main, slices)]);
        let pod = PodView { grant: Some(Ok(grant)), ..testing::pod() };
        let sick = |ids: &[&str]| ids.iter().map(|id| (DeviceId::from(*id), "XID 79".to_owned())).collect();
        assert_eq!(troubles(&pod, &sick(&["G2"])), None);
        assert_eq!(troubles(&pod, &sick(&["G1"])).unwrap(), "G1: XID 79");
        assert_eq!(troubles(&pod, &sick(&["G0", "G1"])).unwrap(), "G0: XID 79; G1: XID 79");
    }
}

//! What is done about failed devices: the node says so in an event, pods on them get a condition, and by policy they are evicted.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_core::id::{DeviceId, PodUid};
use divvy_core::keys;

use crate::events::Events;
use crate::evict::Evictions;
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
    /// Evictions.
    pub evictions: Evictions,
}

impl Ward {
    /// Tells of turns.
    pub fn tell(&self, node: &Arc<Node>, turns: &[Turn], health: &Health, policy: &Policy) {
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
        if turns.is_empty() {
            return;
        }
        let unhealthy = health.unhealthy();
        let touched: BTreeSet<&DeviceId> = turns.iter().map(|t| &t.device).collect();
        for uid in holders_of(node, &touched) {
            let Some(pod) = node.pods.get(&uid) else { continue };
            let bad: Vec<String> =
                devices_of(&pod).filter_map(|id| unhealthy.get(id).map(|reason| format!("{id}: {reason}"))).collect();
            let (reason, message) = match bad.is_empty() {
                true => ("DevicesHealthy", "all its devices are fit for work".to_owned()),
                false => ("DeviceUnhealthy", bad.join("; ")),
            };
            let change = Change::Condition {
                kind: keys::CONDITION_DEVICES.into(),
                holds: bad.is_empty(),
                reason: reason.into(),
                message: message.clone(),
            };
            self.patches.change(&pod.pod, &uid, change);
            if bad.is_empty() {
                continue;
            }
            self.events.warn_pod(&pod, "DeviceUnhealthy", &message);
            if policy.evict {
                self.evictions.evict(&pod.pod, &uid, &message);
            }
        }
    }
}

fn holders_of(node: &Node, devices: &BTreeSet<&DeviceId>) -> Vec<PodUid> {
    let ledger = node.ledger();
    let on_them = |grant: &divvy_core::grant::Grant| {
        grant.containers.iter().flat_map(|c| &c.slices).any(|slice| devices.contains(&slice.device))
    };
    ledger.holders().iter().filter(|(_, holder)| on_them(&holder.grant)).map(|(uid, _)| uid.clone()).collect()
}

fn devices_of(pod: &PodView) -> impl Iterator<Item = &DeviceId> {
    let grant = pod.grant.as_ref().and_then(|g| g.as_ref().ok());
    grant.into_iter().flat_map(|g| &g.containers).flat_map(|c| &c.slices).map(|s| &s.device)
}

//! Telling people why their pod waits: once per change of the reason, and not more often than they can read.

use divvy_cluster::Effect;
use divvy_cluster::effect::{About, Event, Explain};
use divvy_core::id::{NodeName, PodUid};
use divvy_core::reason::Reason;
use divvy_core::time::Time;

use super::World;
use super::entry::{Explanation, Told};

/// Least milliseconds between two explanations to one pod. The sentence counts nodes, and counts change all the time.
const PAUSE: u64 = 5_000;

impl World {
    /// A pod waits for this reason.
    pub(super) fn explain(&mut self, uid: &PodUid, reason: Reason, nominated: Option<NodeName>, now: Time) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.due = Some(Explanation { reason, nominated });
        }
        self.tell_if_due(uid, now);
    }

    /// Tells a pod what it should be told, if it is time.
    pub(super) fn tell_if_due(&mut self, uid: &PodUid, now: Time) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let Some(Explanation { reason, nominated }) = entry.due.clone() else { return };
        // The API server itself says that a gate is closed.
        if matches!(reason, Reason::Gate { .. }) {
            entry.due = None;
            return;
        }
        let message = reason.to_string();
        if let Some(told) = &entry.told {
            if told.message == message {
                entry.due = None;
                return;
            }
            if now.millis_since(told.at) < PAUSE {
                return;
            }
        }
        entry.due = None;
        entry.told = Some(Told { message: message.clone(), at: now });
        let target = entry.target.clone();
        self.effects.push(Effect::Tell(Event {
            about: About::Pod(target.clone()),
            reason: "FailedScheduling",
            message: message.clone(),
            warning: true,
        }));
        self.effects.push(Effect::Explain(Explain { target, reason: "Unschedulable", message, nominated }));
    }
}

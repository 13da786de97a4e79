//! Pods that ask for devices and were bound by somebody else without a grant: a scheduler that was told to filter with us but not to
//! bind, or a node name that the policy allows. They are given a grant where they are, or leave.

use std::sync::Arc;

use divvy_cluster::Effect;
use divvy_cluster::effect::{Annotate, Target};
use divvy_core::id::PodUid;
use divvy_core::keys;
use divvy_core::pod::State;
use divvy_core::schedule::ask_some;
use divvy_core::time::Time;
use serde_json::Value;

use super::World;

impl World {
    /// Gives a grant to every pod that was bound without one.
    pub(super) fn adopt(&mut self, now: Time) {
        for (uid, manifest) in std::mem::take(&mut self.orphans) {
            self.adopt_one(&uid, manifest.as_deref(), now);
        }
    }

    fn adopt_one(&mut self, uid: &PodUid, manifest: Option<&Value>, now: Time) {
        let Some(state) = self.snapshot.pod(uid) else { return };
        let Some(bound) = state.pod().bound().filter(|b| b.grant.is_none() && !b.terminating).cloned() else { return };
        let pod = state.pod().clone();
        let Some(node) = self.snapshot.find_node(&bound.node) else { return };
        // Asked as a pod that waits, which it is as far as devices go: its ordinary share of the node is its own already.
        self.snapshot.unplace(uid);
        let answer = self.snapshot.find_pod(uid).and_then(|ix| {
            let answers = ask_some(&self.snapshot, &self.policy.scheduling, ix, [node], now).ok()?;
            answers.into_iter().next()
        });
        let mut bound = bound;
        match answer {
            Some((_, Ok(answer))) => {
                let Some(grant) = answer.grant else { return self.snapshot.put_pod(pod) };
                let text = serde_json::to_string(&grant).unwrap_or_default();
                let target = Target { pod: pod.key.clone(), uid: uid.clone() };
                // Whoever bound it, its users look for what the emulated system writes.
                let mut annotations = self.emulated(uid, &bound.node, Some(&grant), manifest);
                annotations.insert(keys::GRANT.to_owned(), text);
                let annotations = annotations.into_iter().map(|(key, value)| (key, Some(value))).collect();
                bound.grant = Some(Arc::new(grant));
                self.snapshot.put_pod(divvy_core::pod::Pod { state: State::Bound(bound), ..pod });
                self.effects.push(Effect::Annotate(Annotate { target, annotations }));
                self.counts.adopted += 1;
            }
            refused => {
                let why = match refused {
                    Some((_, Err(reason))) => super::advise::sentence(&bound.node, &reason),
                    _ => "its request cannot be met there".to_owned(),
                };
                self.snapshot.put_pod(pod);
                let reason = format!("it was bound to {} without a grant, and there is none for it: {why}", bound.node);
                self.evict(uid, &reason, "NoGrant", now);
            }
        }
    }
}

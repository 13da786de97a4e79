//! What became of effects, and what time brings.

use divvy_api::convert::PodSeen;
use divvy_cluster::Effect;
use divvy_cluster::change::Change;
use divvy_cluster::effect::{About, Bind, Event, Failure, Target};
use divvy_core::id::PodUid;
use divvy_core::keys;
use divvy_core::time::Time;

use super::World;
use super::entry::{Stand, Told};

/// The first rest after a refused bind, doubled each time up to the longest: a pod whose bind is always refused must not win every turn.
const FIRST_REST: u64 = 500;
const LONGEST_REST: u64 = 60_000;
/// How long a bound pod may go without the watch saying so before it is looked at.
const UNSEEN: u64 = 10_000;

impl World {
    /// The outcome of an effect.
    pub fn done(&mut self, effect: &Effect, outcome: Result<(), Failure>, now: Time) {
        match effect {
            Effect::Bind(bind) => self.bound(bind, outcome, now),
            Effect::Evict(evict) => self.evicted(evict, outcome, now),
            Effect::Annotate(annotate) if annotate.annotations.contains_key(keys::GRANT_ADMITTED) => {
                self.wish_written(&annotate.target.uid, outcome, now);
            }
            other => {
                if let Err(failure) = outcome {
                    tracing::debug!(effect = ?other, %failure, "an effect failed");
                }
            }
        }
    }

    fn bound(&mut self, bind: &Bind, outcome: Result<(), Failure>, now: Time) {
        let uid = &bind.target.uid;
        match outcome {
            Ok(()) => {
                self.counts.bound += 1;
                let message = format!("Successfully assigned {} to {}", bind.target.pod, bind.node);
                let about = About::Pod(bind.target.clone());
                self.effects.push(Effect::Tell(Event { about, reason: "Scheduled", message, warning: false }));
                if let Some(entry) = self.entries.get_mut(uid)
                    && let Stand::Flying { bound, since, .. } = &mut entry.stand
                {
                    (*bound, *since) = (true, now);
                }
            }
            Err(Failure::Gone) => self.apply(Change::PodGone(uid.clone()), now),
            Err(failure @ (Failure::Conflict { .. } | Failure::Unavailable { .. })) => {
                self.counts.conflicts += 1;
                tracing::debug!(pod = %bind.target.pod, %failure, "bind unclear; looking at the pod");
                self.doubt(&bind.target);
            }
            Err(failure @ (Failure::Refused { .. } | Failure::Blocked { .. })) => {
                self.counts.refused += 1;
                tracing::warn!(pod = %bind.target.pod, node = %bind.node, %failure, "bind refused");
                self.unplace(uid);
                let rest = self.entries.get_mut(uid).map_or(0, |entry| {
                    entry.failures = entry.failures.saturating_add(1);
                    entry.told = Some(Told { message: String::new(), at: now });
                    (FIRST_REST << entry.failures.min(16).saturating_sub(1)).min(LONGEST_REST)
                });
                self.rest(uid, now, rest);
                let message = format!("binding to {} was {failure}", bind.node);
                let about = About::Pod(bind.target.clone());
                self.effects.push(Effect::Tell(Event { about, reason: "FailedScheduling", message, warning: true }));
            }
        }
    }

    fn doubt(&mut self, target: &Target) {
        if let Some(entry) = self.entries.get_mut(&target.uid)
            && let Stand::Flying { doubt, .. } = &mut entry.stand
        {
            *doubt = true;
            self.looks.push(target.clone());
        }
    }

    /// What a pod in doubt looks like.
    pub fn looked_at(&mut self, target: &Target, found: Result<Option<Box<PodSeen>>, Failure>, now: Time) {
        match found {
            Err(failure) => {
                tracing::warn!(pod = %target.pod, %failure, "cannot look at the pod; it keeps its place until we can");
                if let Some(entry) = self.entries.get_mut(&target.uid)
                    && let Stand::Flying { since, bound, .. } = &mut entry.stand
                {
                    // Looked at again by the clock.
                    (*since, *bound) = (Time(now.0.saturating_sub(UNSEEN - 1_000)), true);
                }
            }
            Ok(None) => self.apply(Change::PodGone(target.uid.clone()), now),
            Ok(Some(seen)) if seen.pod.bound().is_some() => self.apply(Change::Pod(seen), now),
            Ok(Some(seen)) => {
                self.unplace(&target.uid);
                if let Some(entry) = self.entries.get_mut(&target.uid) {
                    entry.stand = if entry.ours { Stand::Asleep } else { Stand::Theirs };
                    entry.version.clone_from(&seen.version);
                }
                self.apply(Change::Pod(seen), now);
                self.wake(&target.uid);
            }
        }
    }

    /// The pod waits again.
    pub(super) fn unplace(&mut self, uid: &PodUid) {
        if self.snapshot.pod(uid).is_some() {
            self.snapshot.unplace(uid);
            self.stirred = true;
        }
    }

    /// Time passed: rests end, explanations come due, evictions are asked for again, silence is looked into. Returns nothing; what is
    /// to be done is among the effects.
    pub fn tick(&mut self, now: Time) {
        let mut rested = Vec::new();
        let mut due = Vec::new();
        let mut unseen = Vec::new();
        let mut lapsed = Vec::new();
        let patience = self.policy.scheduling.queue.reserve_after.saturating_mul(1000);
        for (uid, entry) in &self.entries {
            match entry.stand {
                Stand::Resting(until) if until <= now => rested.push(uid.clone()),
                Stand::Asleep if entry.has_slept_long(patience, now) => rested.push(uid.clone()),
                Stand::Promised { until } if until <= now => lapsed.push(uid.clone()),
                Stand::Flying { bound: true, since, .. } if now.millis_since(since) >= UNSEEN => {
                    unseen.push(entry.target.clone())
                }
                _ => {}
            }
            if entry.due.is_some() {
                due.push(uid.clone());
            }
        }
        for uid in rested {
            self.wake(&uid);
        }
        for uid in due {
            self.tell_if_due(&uid, now);
        }
        for target in unseen {
            if let Some(entry) = self.entries.get_mut(&target.uid)
                && let Stand::Flying { since, .. } = &mut entry.stand
            {
                *since = now;
            }
            self.looks.push(target);
        }
        for uid in lapsed {
            self.break_promise(&uid);
        }
        if self.leads {
            self.return_torn_gangs(now);
            self.evict_again(now);
            self.adopt(now);
            self.grant_wishes(now);
        }
        self.shared.sweep();
    }
}

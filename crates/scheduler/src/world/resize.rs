//! Other amounts for pods that hold devices. Somebody with the verb `resize` wishes them; what fits on the cards and into the namespace's
//! quota is admitted here, and counts from then on. What does not fit counts for nothing, is answered with every reason, and is looked at
//! again: room may come.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_cluster::Effect;
use divvy_cluster::effect::{About, Annotate, Condition, Event, Failure, Target};
use divvy_core::grant::{self, Grant};
use divvy_core::id::PodUid;
use divvy_core::pod::{Pod, State};
use divvy_core::time::Time;
use divvy_core::{keys, resize};

use super::World;

/// Milliseconds until a wish that was refused, or could not be written, is looked at again. Twice as long, and whoever waits for room
/// that came waits twice as long; half as long, and a namespace with many refused wishes costs twice the work.
const AGAIN: u64 = 2_000;

/// Other amounts that somebody wishes for a pod.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    next: Result<Grant, String>,
    stage: Stage,
    /// What was last said against it.
    told: Option<String>,
}

impl Wish {
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }
}

#[derive(Clone, Debug)]
enum Stage {
    /// Not admitted; to be looked at from this moment on.
    Open(Time),
    /// Admitted: it counts, and is being written.
    Admitted {
        /// What the pod held before.
        before: Option<Arc<Grant>>,
        /// Nobody knows whether it was written: it is written again at this moment.
        again: Option<Time>,
    },
}

impl World {
    /// Somebody wishes this for a pod, or nothing any more. One that is being admitted counts already.
    pub(super) fn note_wish(&mut self, pod: &mut Pod, wish: Option<Result<Grant, String>>) {
        let Some(next) = wish else {
            let refused = self.wishes.remove(&pod.uid).is_some_and(|wish| wish.told.is_some() && wish.is_open());
            if refused && self.leads {
                let target = Target { pod: pod.key.clone(), uid: pod.uid.clone() };
                let message = "the change that was refused is taken back: the pod holds what it held".to_owned();
                let kind = keys::CONDITION_RESIZED;
                self.effects.push(Effect::Condition(Condition {
                    target,
                    kind,
                    holds: true,
                    reason: "TakenBack",
                    message,
                }));
            }
            return;
        };
        let known = self.wishes.get(&pod.uid).filter(|known| known.next == next);
        let Some(known) = known else {
            self.wishes.insert(pod.uid.clone(), Wish { next, stage: Stage::Open(Time(0)), told: None });
            return;
        };
        if let (Stage::Admitted { .. }, Ok(next), State::Bound(bound)) = (&known.stage, &known.next, &mut pod.state) {
            bound.grant = Some(Arc::new(next.clone()));
        }
    }

    /// Looks at every wish whose time has come.
    pub(super) fn grant_wishes(&mut self, now: Time) {
        let uids: Vec<PodUid> = self.wishes.keys().cloned().collect();
        for uid in uids {
            self.grant_wish(&uid, now);
        }
    }

    /// Admits what is wished for a pod, or says why not.
    pub(super) fn grant_wish(&mut self, uid: &PodUid, now: Time) {
        if !self.leads || !self.is_complete() {
            return;
        }
        let (Some(wish), Some(state)) = (self.wishes.get(uid), self.snapshot.pod(uid)) else { return };
        let pod = state.pod();
        if pod.bound().is_none_or(|bound| bound.terminating) {
            return;
        }
        let target = Target { pod: pod.key.clone(), uid: uid.clone() };
        match (&wish.stage, &wish.next) {
            (Stage::Open(from) | Stage::Admitted { again: Some(from), .. }, Ok(_)) if now < *from => {}
            (Stage::Open(from), Err(why)) if *from <= now => {
                let why = format!("the change {why}");
                self.refuse(target, why, Time(u64::MAX));
            }
            (Stage::Open(_), Ok(next)) => match resize::fits(&self.snapshot, uid, next) {
                Ok(()) => {
                    let next = next.clone();
                    self.admit(target, next, now);
                }
                Err(reasons) => self.refuse(target, reasons.join("; "), Time(now.0.saturating_add(AGAIN))),
            },
            (Stage::Admitted { again: Some(_), before }, Ok(next)) => {
                let (before, next) = (before.clone(), next.clone());
                self.write(target, &next, before, now);
            }
            _ => {}
        }
    }

    fn admit(&mut self, target: Target, next: Grant, now: Time) {
        let Some(state) = self.snapshot.pod(&target.uid) else { return };
        let mut pod = state.pod().clone();
        let State::Bound(bound) = &mut pod.state else { return };
        let before = bound.grant.replace(Arc::new(next.clone()));
        tracing::info!(audit = "resize", pod = %target.pod, uid = %target.uid, "other amounts of a grant are admitted");
        self.snapshot.put_pod(pod);
        self.write(target, &next, before, now);
    }

    fn write(&mut self, target: Target, next: &Grant, before: Option<Arc<Grant>>, now: Time) {
        let Some(wish) = self.wishes.get_mut(&target.uid) else { return };
        wish.stage = Stage::Admitted { before, again: None };
        let annotations = BTreeMap::from([(keys::GRANT_ADMITTED.to_owned(), Some(grant::admission(next, now)))]);
        self.effects.push(Effect::Annotate(Annotate { target, annotations }));
    }

    fn refuse(&mut self, target: Target, why: String, again: Time) {
        let Some(wish) = self.wishes.get_mut(&target.uid) else { return };
        wish.stage = Stage::Open(again);
        if wish.told.as_ref() == Some(&why) {
            return;
        }
        wish.told = Some(why.clone());
        tracing::warn!(audit = "resize", pod = %target.pod, uid = %target.uid, why, "other amounts of a grant are refused");
        let about = About::Pod(target.clone());
        let event = Event { about, reason: "ResizeRefused", message: why.clone(), warning: true };
        self.effects.push(Effect::Tell(event));
        let kind = keys::CONDITION_RESIZED;
        self.effects.push(Effect::Condition(Condition { target, kind, holds: false, reason: "Refused", message: why }));
    }

    /// The API server answered.
    pub(super) fn wish_written(&mut self, uid: &PodUid, outcome: Result<(), Failure>, now: Time) {
        let Some(wish) = self.wishes.get_mut(uid) else { return };
        let Err(failure) = outcome else { return };
        let again = Time(now.0.saturating_add(AGAIN));
        tracing::warn!(%uid, %failure, "could not write down admitted amounts; trying again");
        let Stage::Admitted { before, again: unclear } = &mut wish.stage else { return };
        if failure.is_unclear() {
            *unclear = Some(again);
            return;
        }
        let before = before.take();
        wish.stage = Stage::Open(again);
        let Some(mut pod) = self.snapshot.pod(uid).map(|state| state.pod().clone()) else { return };
        if let (Some(before), State::Bound(bound)) = (before, &mut pod.state) {
            bound.grant = Some(before);
            self.snapshot.put_pod(pod);
        }
    }
}

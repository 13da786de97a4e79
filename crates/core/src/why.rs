//! Why a pod waits, the smallest single change that would let it run now, and when it runs as things stand.

mod change;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fit::gang::{GangTerms, waits_for_gang};
use crate::ledger::snapshot::{PodIx, Snapshot};
use crate::model::policy::Policy;
use crate::model::reason::Reason;
use crate::model::time::Time;
use crate::schedule::Engine;

pub use change::Change;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What stands in the way; absent for a pod that would run now.
    pub reason: Option<Reason>,
    /// The smallest single change that would let it run now; absent where no single change does.
    pub change: Option<Change>,
    /// When it runs if nothing is changed and nobody else comes.
    pub when: When,
}

/// When a pod would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// At once.
    Now,
    /// At the latest then: those in its way have said how long they take.
    By(Time),
    /// Nobody said.
    Unknown,
}

/// A pod, or the gang it belongs to: what must run together.
#[derive(Clone, Debug)]
struct Group {
    waiting: Vec<PodIx>,
    running: u32,
    /// Of its gang, how many have done their work.
    done: u32,
    min: u32,
}

impl Group {
    fn of(snapshot: &Snapshot, ix: PodIx) -> Group {
        let pod = snapshot.pod_at(ix).map(|state| state.pod());
        let gang = pod.filter(|pod| waits_for_gang(pod)).and_then(|pod| pod.gang());
        let Some(key) = gang else { return Group { waiting: vec![ix], running: 0, done: 0, min: 1 } };
        let terms = GangTerms::of(snapshot, &key);
        let (waiting, running): (Vec<_>, Vec<_>) = snapshot
            .gang(&key)
            .filter(|(_, m)| m.pod().bound().is_some() || terms.objection(m.pod()).is_none())
            .partition(|(_, m)| m.pod().bound().is_none());
        let waiting = waiting.into_iter().map(|(ix, _)| ix).collect();
        Group { waiting, running: running.len() as u32, done: terms.done, min: terms.needed() }
    }
}

/// A copy of the cluster to try things on.
struct Bench<'a> {
    snapshot: Snapshot,
    engine: Engine,
    policy: &'a Policy,
    now: Time,
}

impl Bench<'_> {
    /// How many of the group find a place together.
    fn fit(&mut self, group: &Group) -> u32 {
        let checkpoint = self.snapshot.checkpoint();
        let mut fit = group.running;
        for ix in &group.waiting {
            let Some(spot) = self.engine.find(&self.snapshot, self.policy, *ix, self.now) else { continue };
            let node = self.snapshot.node_at(spot.node).map(|state| state.node().name.clone());
            let uid = self.snapshot.pod_at(*ix).map(|state| state.pod().uid.clone());
            if let (Some(node), Some(uid)) = (node, uid)
                && self.snapshot.place(&uid, &node, spot.grant.map(Arc::new), self.now).is_ok()
            {
                fit += 1;
            }
        }
        self.snapshot.rollback(checkpoint);
        fit
    }

    fn runs(&mut self, group: &Group) -> bool {
        self.fit(group) >= group.min
    }

    /// When enough of those who said how long they take are gone.
    fn when(&mut self, group: &Group) -> When {
        let mut ends: Vec<(Time, PodIx)> =
            self.snapshot.pods().filter_map(|(ix, state)| Some((end(state.pod(), self.now)?, ix))).collect();
        ends.sort_unstable();
        let gone_by = |count: usize, bench: &mut Self| {
            let uids: Vec<_> = ends[..count]
                .iter()
                .filter_map(|(_, ix)| Some(bench.snapshot.pod_at(*ix)?.pod().uid.clone()))
                .collect();
            let checkpoint = bench.snapshot.checkpoint();
            for uid in &uids {
                bench.snapshot.evict(uid);
            }
            let runs = bench.runs(group);
            bench.snapshot.rollback(checkpoint);
            runs
        };
        if ends.is_empty() || !gone_by(ends.len(), self) {
            return When::Unknown;
        }
        // The fewest endings that are enough.
        let (mut too_few, mut enough) = (0, ends.len());
        while enough - too_few > 1 {
            let middle = (too_few + enough) / 2;
            if gone_by(middle, self) { enough = middle } else { too_few = middle }
        }
        When::By(ends[enough - 1].0)
    }
}

/// When a bound pod ends at the latest, as far as anybody said.
fn end(pod: &crate::model::pod::Pod, now: Time) -> Option<Time> {
    let bound = pod.bound()?;
    if bound.terminating {
        return Some(now);
    }
    let expected = pod.ask.as_ref().and_then(|ask| ask.expected_duration);
    let seconds = [pod.spec.deadline, expected].into_iter().flatten().min()?;
    Some(bound.since.plus_seconds(seconds).max(now))
}

/// Why a waiting pod does not run, what would help, and when it will.
pub fn why(snapshot: &Snapshot, policy: &Policy, ix: PodIx, now: Time) -> Why {
    let mut bench = Bench { snapshot: snapshot.clone(), engine: Engine::default(), policy, now };
    if bench.snapshot.is_worth_stale() {
        bench.snapshot.reckon_worth();
    }
    if let Some(reason) = disagreement(snapshot, ix) {
        return Why { reason: Some(reason), change: None, when: When::Unknown };
    }
    let group = Group::of(snapshot, ix);
    let reason = match bench.engine.decide(&bench.snapshot, policy, ix, now) {
        Ok(_) if bench.runs(&group) => return Why { reason: None, change: None, when: When::Now },
        Ok(_) => gang_reason(&mut bench, snapshot, ix, &group),
        Err(reason @ Reason::NoNode(_)) => reason,
        // What is wrong with the request itself no leaving of others mends.
        Err(reason) => return Why { reason: Some(reason), change: None, when: When::Unknown },
    };
    let missing = matches!(reason, Reason::GangIncomplete { .. });
    let change = if missing { None } else { change::smallest(&mut bench, &group) };
    let when = if missing { When::Unknown } else { bench.when(&group) };
    Why { reason: Some(reason), change, when }
}

/// What a member of a gang says that the others do not.
fn disagreement(snapshot: &Snapshot, ix: PodIx) -> Option<Reason> {
    let pod = snapshot.pod_at(ix)?.pod();
    let gang = pod.gang()?;
    let text = GangTerms::of(snapshot, &gang).objection(pod)?;
    Some(Reason::GangDisagrees { gang, text })
}

fn gang_reason(bench: &mut Bench<'_>, snapshot: &Snapshot, ix: PodIx, group: &Group) -> Reason {
    let none = || Reason::NoNode(Default::default());
    let Some(gang) = snapshot.pod_at(ix).and_then(|state| state.pod().gang()) else { return none() };
    let have = group.running + group.waiting.len() as u32;
    if have < group.min {
        return Reason::GangIncomplete { gang, have: have + group.done, want: group.min + group.done };
    }
    Reason::GangDoesNotFit { gang, fit: bench.fit(group), want: group.min }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reason) = &self.reason else { return f.write_str("it can run now") };
        write!(f, "{reason}")?;
        if let Some(change) = &self.change {
            write!(f, ". It would run now {change}")?;
        }
        match self.when {
            When::Now => Ok(()),
            When::By(time) => write!(f, ". As things stand it runs by {} s after the epoch", time.0 / 1000),
            When::Unknown => {
                f.write_str(". When it runs is unknown: those in its way have not said how long they take")
            }
        }
    }
}

#[cfg(test)]
mod tests;

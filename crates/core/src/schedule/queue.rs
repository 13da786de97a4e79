//! Who goes first: class, then PriorityClass, then the dialect's priority, then the namespace that had least for its weight, then age.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::fit::gang::{GangTerms, waits_for_gang};
use crate::ledger::snapshot::{PodIx, Snapshot};
use crate::model::ask::{Class, DeviceAsk, Topology};
use crate::model::id::{GangKey, Namespace};
use crate::model::pod::Pod;
use crate::model::policy::Policy;
use crate::model::time::Time;
use crate::schedule::FairShare;

/// What is placed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Pod(PodIx),
    /// A gang with its waiting members, first come first.
    Gang(GangKey, Vec<PodIx>),
}

impl Unit {
    /// The pods that are placed together.
    pub(crate) fn members(&self) -> &[PodIx] {
        match self {
            Unit::Pod(ix) => std::slice::from_ref(ix),
            Unit::Gang(_, members) => members,
        }
    }
}

/// What comes before fairness and age.
type Rank = Reverse<(Class, i32, i32)>;

struct Entry {
    unit: Unit,
    created: Time,
    name: String,
    /// Devices it asks for, in thousandths: what its namespace has more once it is placed.
    weight: u64,
    /// Its turn among those for which a place is kept, if one is.
    kept: Option<u64>,
}

/// The waiting pods and gangs that are awake or for which something is kept, in the order in which they are placed. A gang is awake when a
/// member is.
pub(crate) fn order(
    snapshot: &Snapshot,
    policy: &Policy,
    fair: &FairShare,
    now: Time,
    awake: impl Fn(PodIx) -> bool,
    turn: impl Fn(&Snapshot, PodIx) -> Option<u64>,
) -> Vec<Unit> {
    let kept = |ix: PodIx| turn(snapshot, ix);
    let takes_part = |ix: PodIx| awake(ix) || kept(ix).is_some();
    let mut ranks: BTreeMap<Rank, BTreeMap<Namespace, Vec<Entry>>> = BTreeMap::new();
    let mut gangs: BTreeMap<GangKey, Vec<PodIx>> = BTreeMap::new();
    for (ix, state) in snapshot.waiting() {
        match state.pod().gang() {
            Some(gang) if waits_for_gang(state.pod()) => gangs.entry(gang).or_default().push(ix),
            _ if takes_part(ix) => insert(snapshot, policy, &mut ranks, Unit::Pod(ix), kept(ix)),
            _ => {}
        }
    }
    gangs.retain(|_, members| members.iter().any(|ix| takes_part(*ix)));
    for (gang, mut members) in gangs {
        members.sort_by_key(|ix| snapshot.pod_at(*ix).map(|s| (s.pod().created, s.pod().key.clone())));
        let kept = members.iter().filter_map(|ix| kept(*ix)).min();
        insert(snapshot, policy, &mut ranks, Unit::Gang(gang, members), kept);
    }
    ranks.into_values().flat_map(|namespaces| take_turns(snapshot, policy, fair, now, namespaces)).collect()
}

fn insert(
    snapshot: &Snapshot,
    policy: &Policy,
    ranks: &mut BTreeMap<Rank, BTreeMap<Namespace, Vec<Entry>>>,
    unit: Unit,
    kept: Option<u64>,
) {
    let of = |ix: PodIx| snapshot.pod_at(ix).map(|state| state.pod());
    let rank = |pod: &Pod| (policy.class_of(pod), pod.spec.priority, pod.ask.as_ref().map_or(0, |ask| ask.priority));
    // A gang stands where its least member stands: the others would wait for it anyway. Those that run already count too, so that it
    // stands where it stood when they were placed.
    let all: Vec<&Pod> = match &unit {
        Unit::Pod(ix) => of(*ix).into_iter().collect(),
        Unit::Gang(gang, _) => fellows(snapshot, gang),
    };
    let Some(rank) = all.iter().map(|pod| rank(pod)).min() else { return };
    let Some(first) = all.iter().min_by_key(|pod| (pod.created, &pod.key)) else { return };
    let weight = unit.members().iter().filter_map(|ix| of(*ix)).map(weight).sum();
    let entry = Entry { created: first.created, name: first.key.to_string(), weight, unit, kept };
    ranks.entry(Reverse(rank)).or_default().entry(first.key.namespace.clone()).or_default().push(entry);
}

/// Those who start together; where nobody can, everybody, so that they have their turn to be told.
fn fellows<'a>(snapshot: &'a Snapshot, gang: &GangKey) -> Vec<&'a Pod> {
    let terms = GangTerms::of(snapshot, gang);
    let all = || snapshot.gang(gang).map(|(_, member)| member.pod());
    let fellows: Vec<&Pod> = all().filter(|pod| terms.holds(pod)).collect();
    if fellows.is_empty() { all().collect() } else { fellows }
}

/// Devices a pod asks for, in thousandths. Where its containers are to see the same devices and hold them alone, they hold them once.
fn weight(pod: &Pod) -> u64 {
    let Some(ask) = &pod.ask else { return 0 };
    let whole = |want: &DeviceAsk| if want.exclusive { u64::from(want.count) * 1000 } else { 0 };
    let part =
        |want: &DeviceAsk| if want.exclusive { 0 } else { u64::from(want.count) * u64::from(want.share.0.max(1)) };
    let alone = ask.containers.iter().map(|container| container.wants.iter().map(whole).sum::<u64>());
    let alone = if ask.topology == Topology::SameDevice { alone.max().unwrap_or(0) } else { alone.sum() };
    alone + ask.containers.iter().flat_map(|container| &container.wants).map(part).sum::<u64>()
}

/// Within one rank: first whoever has waited so long that something is reserved for it, oldest first; then for whom room is being made,
/// in their turn; then always the first of the namespace that has had least for its weight.
fn take_turns(
    snapshot: &Snapshot,
    policy: &Policy,
    fair: &FairShare,
    now: Time,
    mut namespaces: BTreeMap<Namespace, Vec<Entry>>,
) -> Vec<Unit> {
    struct Line {
        had: f64,
        worth: f64,
        entries: VecDeque<Entry>,
    }
    let mut lines: Vec<Line> = Vec::new();
    let after = policy.queue.reserve_after;
    let has_waited = |entry: &Entry| after > 0 && now.seconds_since(entry.created) >= after;
    let mut waited: Vec<Entry> = Vec::new();
    for entries in namespaces.values_mut() {
        waited.extend(entries.extract_if(.., |entry| entry.kept.is_some() || has_waited(entry)));
    }
    let turn = |entry: &Entry| if has_waited(entry) { None } else { entry.kept };
    waited.sort_by(|a, b| (turn(a), a.created, &a.name).cmp(&(turn(b), b.created, &b.name)));
    let mut order: Vec<Unit> = waited.into_iter().map(|entry| entry.unit).collect();
    for (namespace, mut entries) in namespaces.into_iter().filter(|(_, entries)| !entries.is_empty()) {
        entries.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let held = snapshot.held().get(&namespace).copied().unwrap_or(0) as f64;
        let worth = f64::from(policy.queue.weights.get(&namespace).copied().unwrap_or(1).max(1));
        lines.push(Line { had: fair.average(&namespace) + held, worth, entries: entries.into() });
    }
    let ratio = |line: &Line| line.had / line.worth;
    while !lines.is_empty() {
        // Few namespaces wait at once; a search is cheaper than keeping a heap. Equal ones go by age, then by name.
        let next = (0..lines.len()).min_by(|a, b| {
            let (a, b) = (&lines[*a], &lines[*b]);
            let age = |line: &Line| line.entries.front().map(|e| (e.created, e.name.clone()));
            ratio(a).total_cmp(&ratio(b)).then_with(|| age(a).cmp(&age(b)))
        });
        let Some(next) = next else { break };
        if let Some(entry) = lines[next].entries.pop_front() {
            lines[next].had += entry.weight as f64;
            order.push(entry.unit);
        }
        if lines[next].entries.is_empty() {
            lines.remove(next);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    #[test]
    fn devices_that_several_containers_hold_alone_weigh_once_and_parts_weigh_each() {
        let weigh = |line: &str, same: bool| {
            let snapshot = cluster(&format!("wait p {line}"));
            let mut pod = snapshot.waiting().next().unwrap().1.pod().clone();
            let ask = std::sync::Arc::make_mut(pod.ask.as_mut().unwrap());
            ask.containers.push(ask.containers[0].clone());
            if same {
                ask.topology = Topology::SameDevice;
            }
            weight(&pod)
        };
        assert_eq!((weigh("whole count=2", true), weigh("whole count=2", false)), (2000, 4000));
        assert_eq!((weigh("share=300", true), weigh("share=300", false)), (600, 600));
    }
}

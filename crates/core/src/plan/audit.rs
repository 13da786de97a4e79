//! The second pair of eyes: every plan is checked by code that shares nothing with the code that made it but the types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fit::gang::{GangTerms, waits_for_gang};
use crate::fit::suitable;
use crate::ledger::kind::memory_of;
use crate::ledger::snapshot::{NodeState, Snapshot};
use crate::ledger::{Charge, charges};
use crate::model::ask::{DeviceAsk, GpuAsk};
use crate::model::grant::{Grant, Slice};
use crate::model::id::{DeviceId, GangKey, NodeName, PodKey, PodUid};
use crate::model::mig;
use crate::model::pod::Pod;
use crate::model::reason::Obstacle;
use crate::model::resources::{Resources, Shortage};
use crate::plan::{Bind, Plan};

/// Something a plan must not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum Violation {
    /// It binds or evicts a pod that does not exist.
    UnknownPod {
        /// Which.
        pod: PodKey,
    },
    /// It binds a pod that does not wait, or twice.
    NotWaiting {
        /// Which.
        pod: PodKey,
    },
    /// It uses a node that does not exist.
    UnknownNode {
        /// Which pod.
        pod: PodKey,
        /// Which node.
        node: NodeName,
    },
    /// It gives a pod something else than it asked for.
    NotAsAsked {
        /// Which.
        pod: PodKey,
        /// What is wrong.
        text: String,
    },
    /// It gives out more of a device than there is.
    OverCommit {
        /// On which node.
        node: NodeName,
        /// Which device.
        device: DeviceId,
        /// What stands in the way.
        obstacle: Obstacle,
    },
    /// It gives out more of an ordinary resource than there is.
    Short {
        /// On which node.
        node: NodeName,
        /// What.
        shortage: Shortage,
    },
    /// It puts more pods on a node than may run there.
    TooManyPods {
        /// Which.
        node: NodeName,
    },
    /// It uses a node the pod may not use.
    Forbidden {
        /// Which pod.
        pod: PodKey,
        /// Which node.
        node: NodeName,
    },
    /// It starts fewer members of a gang than may start alone.
    BrokenGang {
        /// Which.
        gang: GangKey,
    },
    /// It evicts a pod that does not run, or for one that is not above it.
    WrongEviction {
        /// Which.
        pod: PodKey,
    },
}

impl Violation {
    /// Who has to be left out of the plan so that it is none: those it names; where it names a node or a gang, those whom the plan puts
    /// there.
    pub(crate) fn concerned<'p>(&self, snapshot: &Snapshot, plan: &'p Plan) -> Vec<&'p PodUid> {
        let binds =
            |is: &dyn Fn(&Bind) -> bool| plan.binds.iter().filter(|bind| is(bind)).map(|bind| &bind.pod).collect();
        match self {
            Violation::UnknownPod { pod }
            | Violation::NotWaiting { pod }
            | Violation::UnknownNode { pod, .. }
            | Violation::NotAsAsked { pod, .. }
            | Violation::Forbidden { pod, .. } => binds(&|bind| bind.key == *pod),
            Violation::OverCommit { node, device, .. } => binds(&|bind| {
                let mut slices = bind.grant.iter().flat_map(|grant| &grant.containers).flat_map(|c| &c.slices);
                bind.node == *node && slices.any(|slice| slice.device == *device)
            }),
            Violation::Short { node, .. } | Violation::TooManyPods { node } => binds(&|bind| bind.node == *node),
            Violation::BrokenGang { gang } => {
                let of = |bind: &Bind| snapshot.pod(&bind.pod).and_then(|state| state.pod().gang());
                binds(&|bind| of(bind).as_ref() == Some(gang))
            }
            Violation::WrongEviction { pod } => {
                let for_whom = plan.evictions.iter().filter(|eviction| eviction.key == *pod);
                let keys: BTreeSet<&PodKey> = for_whom.map(|eviction| &eviction.makes_room_for).collect();
                plan.waits.iter().filter(|wait| keys.contains(&wait.key)).map(|wait| &wait.pod).collect()
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::UnknownPod { pod } => write!(f, "there is no pod {pod}"),
            Violation::NotWaiting { pod } => write!(f, "{pod} does not wait"),
            Violation::UnknownNode { pod, node } => write!(f, "{pod} is to run on {node}, which does not exist"),
            Violation::NotAsAsked { pod, text } => write!(f, "{pod} is not given what it asks for: {text}"),
            Violation::OverCommit { node, device, obstacle } => {
                write!(f, "{device} on {node} would be over-committed: {obstacle}")
            }
            Violation::Short { node, shortage } => write!(f, "{node} would be short of {}", shortage.resource),
            Violation::TooManyPods { node } => write!(f, "{node} would run too many pods"),
            Violation::Forbidden { pod, node } => write!(f, "{pod} may not run on {node}"),
            Violation::BrokenGang { gang } => write!(f, "gang {gang} would start with too few members"),
            Violation::WrongEviction { pod } => write!(f, "{pod} must not be evicted"),
        }
    }
}

/// What a plan puts on one node.
#[derive(Default)]
struct Arrivals {
    requests: Resources,
    pods: usize,
    devices: BTreeMap<DeviceId, Vec<Charge>>,
}

/// Everything that is wrong with a plan; nothing, for a plan that may be carried out.
pub fn audit(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut arrivals: BTreeMap<&NodeName, Arrivals> = BTreeMap::new();
    let mut gangs: BTreeMap<GangKey, Vec<&Pod>> = BTreeMap::new();
    for bind in &plan.binds {
        let Some(state) = snapshot.pod(&bind.pod) else {
            found.push(Violation::UnknownPod { pod: bind.key.clone() });
            continue;
        };
        let pod = state.pod();
        if pod.bound().is_some() || !seen.insert(&bind.pod) {
            found.push(Violation::NotWaiting { pod: bind.key.clone() });
            continue;
        }
        let Some(node) = snapshot.node(&bind.node) else {
            found.push(Violation::UnknownNode { pod: bind.key.clone(), node: bind.node.clone() });
            continue;
        };
        if let Some(gang) = pod.gang() {
            gangs.entry(gang).or_default().push(pod);
        }
        if crate::fit::rules::node::check(pod, node.node()).is_err() || crate::fit::rules::standing(pod).is_some() {
            found.push(Violation::Forbidden { pod: bind.key.clone(), node: bind.node.clone() });
        }
        found.extend(compare(pod, bind, node));
        let here = arrivals.entry(&bind.node).or_default();
        here.requests.add(&pod.spec.requests);
        here.pods += 1;
        for (device, charge) in bind.grant.iter().flat_map(|grant| charges(grant, &node.node().inventory, false)) {
            here.devices.entry(device).or_default().push(charge);
        }
    }
    for (name, here) in &arrivals {
        if let Some(node) = snapshot.node(name) {
            found.extend(room(name, node, here));
        }
    }
    found.extend(broken_gangs(snapshot, &gangs));
    found.extend(wrong_evictions(snapshot, plan));
    found
}

/// Is there room on a node for everything the plan puts there? Evictions do not count: pods leave when they leave.
fn room(name: &NodeName, node: &NodeState, here: &Arrivals) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(shortage) = node.node().allocatable.short_of(node.used(), &here.requests) {
        found.push(Violation::Short { node: name.clone(), shortage });
    }
    if node.pods().len() + here.pods > node.node().max_pods as usize {
        found.push(Violation::TooManyPods { node: name.clone() });
    }
    for (device, charges) in &here.devices {
        let over = |obstacle| Violation::OverCommit { node: name.clone(), device: device.clone(), obstacle };
        let Some(index) = node.node().device(device) else {
            found.push(over(Obstacle::Unknown));
            continue;
        };
        let mut book = node.books()[index];
        for charge in charges {
            if let Err(obstacle) = book.room(charge) {
                found.push(over(obstacle));
            }
            book.take(charge);
        }
    }
    found
}

/// Is the pod given what it asks for?
fn compare(pod: &Pod, bind: &Bind, node: &NodeState) -> Vec<Violation> {
    let wrong = |text: String| Violation::NotAsAsked { pod: bind.key.clone(), text };
    match (&pod.ask, &bind.grant) {
        (None, None) => Vec::new(),
        (None, Some(_)) => vec![wrong("it asks for no device and is granted some".into())],
        (Some(_), None) => vec![wrong("it asks for devices and is granted none".into())],
        (Some(ask), Some(grant)) => compare_grant(ask, grant, node).into_iter().map(wrong).collect(),
    }
}

fn compare_grant(ask: &GpuAsk, grant: &Grant, node: &NodeState) -> Vec<String> {
    let mut wrong = Vec::new();
    let names = |grant: &Grant| grant.containers.iter().map(|c| (c.name.clone(), c.role)).collect::<Vec<_>>();
    if names(grant) != ask.containers.iter().map(|c| (c.name.clone(), c.role)).collect::<Vec<_>>() {
        return vec!["its containers are not those of the ask".into()];
    }
    let inventory = &node.node().inventory;
    for (container, given) in ask.containers.iter().zip(&grant.containers) {
        let mut slices = given.slices.iter();
        let mut seen = BTreeSet::new();
        for want in &container.wants {
            for _ in 0..want.count {
                match slices.next() {
                    Some(slice) => wrong
                        .extend(compare_slice(ask, want, slice, inventory).map(|t| format!("{}: {t}", container.name))),
                    None => wrong.push(format!("{}: too few devices", container.name)),
                }
            }
        }
        if slices.next().is_some() {
            wrong.push(format!("{}: too many devices", container.name));
        }
        if !given.slices.iter().all(|s| s.partition.is_some() || seen.insert(&s.device)) {
            wrong.push(format!("{}: one device twice", container.name));
        }
    }
    wrong
}

pub(crate) fn compare_slice(
    ask: &GpuAsk,
    want: &DeviceAsk,
    slice: &Slice,
    inventory: &crate::model::device::Inventory,
) -> Option<String> {
    let Some(device) = inventory.devices.iter().find(|d| d.id == slice.device) else {
        return Some(format!("{} is not on the node", slice.device));
    };
    if let Err(obstacle) = suitable(ask, device) {
        return Some(format!("{}: {obstacle}", slice.device));
    }
    if let Some(profile) = &want.partition
        && !slice.partition.as_ref().is_some_and(|given| mig::is_of(given, profile))
    {
        return Some(format!("{}: not the {profile} partition it asks for", slice.device));
    }
    if slice.is_unprotected() {
        return Some(format!("{}: no isolation on a card that others may use", slice.device));
    }
    let memory = memory_of(want.memory, device, inventory);
    let enough = slice.kind == want.kind
        && slice.memory >= memory
        && slice.memory_limit >= slice.memory
        && (slice.partition.is_some() || (slice.share >= want.share && slice.share_limit >= want.share_limit))
        && (slice.exclusive || slice.partition.is_some() || !want.exclusive);
    (!enough).then(|| format!("{}: less than it asks for", slice.device))
}

fn broken_gangs(snapshot: &Snapshot, bound: &BTreeMap<GangKey, Vec<&Pod>>) -> Vec<Violation> {
    let broken = |(gang, new): (&GangKey, &Vec<&Pod>)| {
        let running = snapshot.gang(gang).filter(|(_, member)| member.pod().bound().is_some()).count();
        let too_few = running + new.len() < GangTerms::of(snapshot, gang).needed() as usize;
        (too_few && new.iter().any(|pod| waits_for_gang(pod))).then(|| Violation::BrokenGang { gang: gang.clone() })
    };
    bound.iter().filter_map(broken).collect()
}

fn wrong_evictions(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let wrong = |eviction: &&crate::plan::Eviction| {
        let Some(victim) = snapshot.pod(&eviction.pod) else { return true };
        victim.pod().bound().is_none_or(|bound| bound.terminating)
    };
    plan.evictions.iter().filter(wrong).map(|e| Violation::WrongEviction { pod: e.key.clone() }).collect()
}

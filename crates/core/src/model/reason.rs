//! "No" is data: why a pod cannot run here, typed per device and per node, and folded into one sentence.

mod fold;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::ask::Topology;
use crate::model::device::{DeviceKind, Isolation};
use crate::model::id::{DeviceId, GangKey, NodeName, PodKey};
use crate::model::resources::Shortage;
use crate::model::units::{Bytes, Share};

pub use fold::Fold;

/// Why a device cannot take a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum Obstacle {
    /// The node does not have it (any more).
    Unknown,
    /// The agent says it is not fit for work.
    Unhealthy {
        /// What the agent saw.
        because: String,
    },
    /// A person took it out of service.
    Cordoned,
    /// Its model is not one the pod accepts.
    Model,
    /// Its model is none that the namespace's quota names.
    NotInQuota,
    /// The pod named other devices, or this one as unwanted.
    NotNamed,
    /// None of the ways of isolation the pod accepts is to be had on it.
    Isolation {
        /// What the pod accepts.
        want: Vec<Isolation>,
    },
    /// Not enough memory is free.
    Memory {
        /// How much is wanted.
        want: Bytes,
        /// How much is free.
        free: Bytes,
    },
    /// Not enough time is free.
    Share {
        /// How much is wanted.
        want: Share,
        /// How much is free.
        free: Share,
    },
    /// Somebody else is on it, and the pod wants to be alone.
    InUse {
        /// How many containers.
        tasks: u32,
    },
    /// A pod holds it alone.
    HeldAlone,
    /// As many containers share it as may.
    Tasks {
        /// How many may.
        most: u32,
    },
    /// No partition of the size is free, or the one chosen is taken.
    Partition {
        /// Its profile, where the pod named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        want: Option<Arc<str>>,
    },
    /// It is cut into partitions, or is one, and the pod wants a whole device.
    CutUp,
    /// It has no partitions of the profile that the pod names, free or not.
    Profile {
        /// The profile.
        want: Arc<str>,
    },
    /// It has less of something that a KubeGPU request names.
    Quantity {
        /// What.
        name: Arc<str>,
        /// How much the request wants.
        want: i64,
        /// How much it has.
        has: i64,
    },
    /// It is free, but the devices do not lie in groups as the labels of a KubeGPU request want.
    Groups,
    /// It is free, but does not lie to the other devices as the pod wants.
    Place {
        /// What the pod wants.
        want: Topology,
    },
    /// It is kept for a pod that has waited long.
    Reserved {
        /// For whom.
        holder: PodKey,
    },
}

/// Why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum NodeReason {
    /// It is cordoned.
    Unschedulable,
    /// It is not ready.
    NotReady,
    /// It has a taint the pod does not tolerate.
    Taint {
        /// The taint's name.
        key: Arc<str>,
        /// The taint's value.
        value: Arc<str>,
    },
    /// It does not match the pod's node selector or node affinity.
    Affinity,
    /// Something ordinary is short.
    Short(Shortage),
    /// It runs as many pods as it may.
    TooManyPods,
    /// A port the pod wants of the host is taken.
    Port {
        /// The port.
        port: u16,
    },
    /// It is not near the pods the pod wants to be near.
    NotNear,
    /// It is near pods the pod wants to be apart from.
    TooNear,
    /// A pod that runs near it does not want this one near.
    Repelled,
    /// One more here would make the pods too uneven.
    Uneven {
        /// The label that names the domains.
        topology_key: Arc<str>,
    },
    /// It lacks the label that a spread rule counts by.
    NoDomain {
        /// The label.
        topology_key: Arc<str>,
    },
    /// A volume of the pod cannot be used there.
    Volume(VolumeReason),
    /// Its kubelet lacks a feature.
    Feature {
        /// Which.
        name: Arc<str>,
    },
    /// Not enough of its devices fit.
    Devices(DeviceShortfall),
    /// It is kept for a pod that has waited long.
    Reserved {
        /// For whom.
        holder: PodKey,
    },
    /// It fits there, but its namespace may not hold that much.
    Quota {
        /// What is too much, quota by quota.
        text: String,
        /// It is the namespace's own by right, and others of its cohort have borrowed it.
        lent: bool,
    },
    /// Its namespace may not use nodes of this pool.
    Pool {
        /// The pool; none for a node without one.
        name: Option<Arc<str>>,
    },
}

/// Why a volume keeps a pod from a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "camelCase")]
pub enum VolumeReason {
    /// The claim does not exist.
    NoClaim {
        /// Its name.
        claim: Arc<str>,
    },
    /// The claim is being deleted.
    ClaimTerminating {
        /// Its name.
        claim: Arc<str>,
    },
    /// The claim has lost its volume.
    ClaimLost {
        /// Its name.
        claim: Arc<str>,
    },
    /// The claim should be bound at once, and is not yet.
    Unbound {
        /// Its name.
        claim: Arc<str>,
    },
    /// The volume it is bound to does not exist.
    NoVolume {
        /// Its name.
        volume: Arc<str>,
    },
    /// The volume cannot be reached from the node.
    Node {
        /// Its name.
        volume: Arc<str>,
    },
    /// The volume is in another zone.
    Zone {
        /// Its name.
        volume: Arc<str>,
    },
    /// No volume there suits the claim, and none can be made.
    NoneToBind {
        /// The claim's name.
        claim: Arc<str>,
    },
    /// There is not enough room to make one.
    NoRoom {
        /// The claim's name.
        claim: Arc<str>,
    },
    /// The node can attach no more of them.
    Limit {
        /// The driver.
        driver: Arc<str>,
    },
    /// Another pod on the node uses the disk.
    Disk {
        /// Its name.
        id: Arc<str>,
    },
    /// Another pod uses the claim, and only one may.
    InUse {
        /// The claim's name.
        claim: Arc<str>,
    },
}

/// Too few devices of a node fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceShortfall {
    /// The container that asks.
    pub container: Arc<str>,
    /// It helps to say which container that is: several ask, or the emulated system named it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub say_which: bool,
    /// The kind it asks for.
    pub kind: DeviceKind,
    /// How many it asks for.
    pub want: u32,
    /// How many would fit one by one.
    pub fitting: u32,
    /// What stands in the way on the others.
    pub obstacles: Vec<(DeviceId, Obstacle)>,
}

/// Why a pod waits, whatever the nodes say.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "camelCase")]
pub enum Reason {
    /// Its request is wrong, in its dialect's words.
    Mistake {
        /// What is wrong and how to mend it.
        text: Arc<str>,
    },
    /// A scheduling gate is closed.
    Gate {
        /// Its name.
        name: Arc<str>,
    },
    /// It uses something this scheduler does not do.
    Unsupported {
        /// What.
        what: Arc<str>,
    },
    /// Its policy, or a setting of it, is unknown or contradictory.
    Policy {
        /// What is wrong and how to mend it.
        text: String,
    },
    /// Its gang is not complete yet.
    GangIncomplete {
        /// Which.
        gang: GangKey,
        /// Members there are.
        have: u32,
        /// Members there must be.
        want: u32,
    },
    /// Its gang does not fit as a whole; this many members would.
    GangDoesNotFit {
        /// Which.
        gang: GangKey,
        /// Members that would fit together.
        fit: u32,
        /// Members that must.
        want: u32,
    },
    /// Members of one gang disagree about it.
    GangDisagrees {
        /// Which.
        gang: GangKey,
        /// About what.
        text: String,
    },
    /// No node can take it.
    NoNode(Folded),
    /// Room is being made for it on a node: others are leaving.
    MakingRoom {
        /// Where.
        node: NodeName,
        /// How many pods leave.
        leaving: u32,
    },
    /// It fits, but pods that go first would lose their turn.
    BehindOthers,
}

/// The answers of all nodes, like ones together, most frequent first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folded {
    /// How many nodes were asked.
    pub nodes: u32,
    /// What they said.
    pub groups: Vec<Group>,
}

/// Nodes that said the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// How many nodes.
    pub nodes: u32,
    /// What they said, in words.
    pub text: String,
    /// One of them, the closest to fitting where that can be told.
    pub example: NodeName,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Unknown => f.write_str("the node does not have it"),
            Obstacle::Unhealthy { because } => write!(f, "unhealthy ({because})"),
            Obstacle::Cordoned => f.write_str("cordoned"),
            Obstacle::Model => f.write_str("another model"),
            Obstacle::NotInQuota => f.write_str("of a model that the quota does not name"),
            Obstacle::NotNamed => f.write_str("not among the devices named"),
            Obstacle::Isolation { .. } => f.write_str("no accepted isolation"),
            Obstacle::Memory { want, free } => write!(f, "{want} of memory wanted, {free} free"),
            Obstacle::Share { want, free } => write!(f, "share {want} wanted, {free} free"),
            Obstacle::InUse { .. } => f.write_str("in use, wanted alone"),
            Obstacle::HeldAlone => f.write_str("held alone by another pod"),
            Obstacle::Tasks { most } => write!(f, "shared by as many containers as may ({most})"),
            Obstacle::Partition { want: None } => f.write_str("no partition of that size free"),
            Obstacle::Partition { want: Some(profile) } => write!(f, "no {profile} partition free"),
            Obstacle::CutUp => f.write_str("cut into partitions, wanted whole"),
            Obstacle::Profile { want } => write!(f, "has no {want} partitions"),
            Obstacle::Quantity { name, want, has } => write!(f, "{name} {want} wanted, has {has}"),
            Obstacle::Groups => f.write_str("not in the groups that its labels want"),
            Obstacle::Place { want } => write!(f, "not connected as wanted ({})", topology(*want)),
            Obstacle::Reserved { holder } => write!(f, "kept for {holder}, which waits longer"),
        }
    }
}

fn topology(want: Topology) -> String {
    match want {
        Topology::Best => "as close as possible".into(),
        Topology::AtLeast(link) => format!("every pair at least {}", serde_name(&link)),
        Topology::SameNuma => "one NUMA node".into(),
        Topology::SameDevice => "one device".into(),
        Topology::Spread => "apart".into(),
    }
}

/// The name of a unit variant as it is written in manifests.
fn serde_name(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The word users know a kind by.
pub(crate) fn kind_word(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::Mlu => "MLU",
        DeviceKind::Nic => "NIC",
    }
}

impl fmt::Display for VolumeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeReason::NoClaim { claim } => write!(f, "claim {claim} does not exist"),
            VolumeReason::ClaimTerminating { claim } => write!(f, "claim {claim} is being deleted"),
            VolumeReason::ClaimLost { claim } => write!(f, "claim {claim} has lost its volume"),
            VolumeReason::Unbound { claim } => write!(f, "claim {claim} is not bound yet"),
            VolumeReason::NoVolume { volume } => write!(f, "volume {volume} does not exist"),
            VolumeReason::Node { volume } => write!(f, "volume {volume} cannot be reached from there"),
            VolumeReason::Zone { volume } => write!(f, "volume {volume} is in another zone"),
            VolumeReason::NoneToBind { claim } => write!(f, "no volume there suits claim {claim}"),
            VolumeReason::NoRoom { claim } => write!(f, "not enough storage there for claim {claim}"),
            VolumeReason::Limit { driver } => write!(f, "can attach no more volumes of {driver}"),
            VolumeReason::Disk { id } => write!(f, "disk {id} is in use there"),
            VolumeReason::InUse { claim } => write!(f, "claim {claim} is in use, and only one pod may"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Mistake { text } => f.write_str(text),
            Reason::Gate { name } => write!(f, "scheduling gate {name} is closed"),
            Reason::Unsupported { what } => write!(f, "{what} is not supported by this scheduler"),
            Reason::Policy { text } => f.write_str(text),
            Reason::GangIncomplete { gang, have, want } => write!(f, "gang {gang} has {have} of {want} members"),
            Reason::GangDoesNotFit { gang, fit, want } => {
                write!(f, "gang {gang} needs room for {want} members at once, there is room for {fit}")
            }
            Reason::GangDisagrees { gang, text } => write!(f, "members of gang {gang} disagree: {text}"),
            Reason::NoNode(folded) => folded.fmt(f),
            Reason::MakingRoom { node, leaving } => {
                write!(f, "room is being made on {node}: {leaving} pods are leaving")
            }
            Reason::BehindOthers => f.write_str("it fits, but pods that go first need the room"),
        }
    }
}

impl fmt::Display for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("there is no node");
        }
        write!(f, "0/{} nodes fit: ", self.nodes)?;
        for (i, group) in self.groups.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{} {}", group.nodes, group.text)?;
        }
        Ok(())
    }
}

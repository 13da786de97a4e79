//! What the scheduler decided: specific enough that whoever carries it out has no choices left.

pub mod audit;

use serde::{Deserialize, Serialize};

use crate::model::grant::Grant;
use crate::model::id::{DeviceId, GangKey, NodeName, PodKey, PodUid};
use crate::model::reason::Reason;
use crate::model::time::Time;
use crate::model::volume::VolumeStep;

/// The outcome of one look at the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// When it was made.
    pub at: Time,
    /// Pods to bind, in this order. Members of a gang stand together.
    pub binds: Vec<Bind>,
    /// Pods to evict, so that others fit once they are gone.
    pub evictions: Vec<Eviction>,
    /// Pods that wait, and why.
    pub waits: Vec<Wait>,
    /// Devices kept for pods that have waited long.
    pub reservations: Vec<Reservation>,
    /// Moves that would let a waiting pod in, for people to decide on (or done as evictions, if the policy says so).
    pub proposals: Vec<Proposal>,
}

impl Plan {
    /// Nothing to do.
    pub fn is_idle(&self) -> bool {
        self.binds.is_empty() && self.evictions.is_empty()
    }
}

/// A pod gets a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// The pod.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// The node.
    pub node: NodeName,
    /// What it is granted there; absent for an ordinary pod.
    pub grant: Option<Grant>,
    /// What must be done about its claims first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeStep>,
    /// The gang it is bound with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangKey>,
}

/// A pod has to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// The pod.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Where it runs.
    pub node: NodeName,
    /// The pod it makes room for.
    pub makes_room_for: PodKey,
    /// It moves rather than ends: it is expected to be placed again at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moves: bool,
}

/// A pod waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The pod.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Why.
    pub reason: Reason,
    /// The node on which room is being made for it (`status.nominatedNodeName`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<NodeName>,
}

/// Devices are kept for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// For whom.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Where.
    pub node: NodeName,
    /// Which devices; none means the node as a whole (CPU and memory).
    pub devices: Vec<DeviceId>,
}

/// Moves that would let a waiting pod in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// Who would fit.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Where.
    pub node: NodeName,
    /// The moves, in this order.
    pub moves: Vec<Move>,
}

/// A pod would run elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The pod.
    pub pod: PodUid,
    /// Its name.
    pub key: PodKey,
    /// From here.
    pub from: NodeName,
    /// To there.
    pub to: NodeName,
}

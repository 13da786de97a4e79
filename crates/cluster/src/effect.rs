//! Everything the control plane does to the cluster, as data.

use std::collections::BTreeMap;
use std::future::Future;

use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::volume::VolumeStep;

/// One thing to do. Each is a single request (or a few whose repetition is harmless), so that a crash between two of them leaves
/// nothing half done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Bind a pod, with what it was granted, in one write.
    Bind(Bind),
    /// Evict a pod, as disruption budgets allow.
    Evict(Evict),
    /// Tell people about a pod or a node.
    Tell(Event),
    /// Say on a pod why it waits (`PodScheduled=False`).
    Explain(Explain),
    /// Set (or, with none, remove) annotations of a pod.
    Annotate(Annotate),
    /// Set a condition of a pod.
    Condition(Condition),
    /// Open a scheduling gate of a pod.
    LiftGate(LiftGate),
    /// Say on the GpuPolicy whether it is followed.
    AcknowledgePolicy {
        /// Which generation of it.
        generation: i64,
        /// Why it is not.
        problem: Option<String>,
    },
}

/// A pod that is meant, and no other that has taken its name since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub pod: PodKey,
    /// Its identity.
    pub uid: PodUid,
}

/// A pod, its node, and what goes into the same write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The pod.
    pub target: Target,
    /// The version the decision was made on: if the pod changed since, nothing happens.
    pub version: String,
    /// The node.
    pub node: NodeName,
    /// The grant, and what an emulated system's users expect to find.
    pub annotations: BTreeMap<String, String>,
    /// What must be done about its claims first.
    pub volumes: Vec<VolumeStep>,
}

/// A pod that has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod.
    pub target: Target,
    /// Why, for its owner.
    pub reason: String,
}

/// Something people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// About what.
    pub about: About,
    /// One word (`Scheduled`, `FailedScheduling`, `Preempted`).
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
    /// Bad news.
    pub warning: bool,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A pod.
    Pod(Target),
    /// A node.
    Node(NodeName),
}

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// The pod.
    pub target: Target,
    /// One word (`Unschedulable`, `SchedulingGated`).
    pub reason: &'static str,
    /// The core's sentence.
    pub message: String,
    /// Where room is being made for it.
    pub nominated: Option<NodeName>,
}

/// Annotations to set or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotate {
    /// The pod.
    pub target: Target,
    /// Name to value; none removes it.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The pod.
    pub target: Target,
    /// Its type.
    pub kind: &'static str,
    /// Does it hold?
    pub holds: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in one sentence.
    pub message: String,
}

/// A gate to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftGate {
    /// The pod.
    pub target: Target,
    /// The gate's name.
    pub gate: String,
    /// Annotations to set in the same write.
    pub annotations: BTreeMap<String, String>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no such object (any more).
    #[error("it is gone")]
    Gone,
    /// It changed since we looked, or somebody was first. Nothing happened.
    #[error("it changed meanwhile: {message}")]
    Conflict {
        /// The server's words.
        message: String,
    },
    /// Not now: a disruption budget has nothing left, or the server is busy. Nothing happened.
    #[error("not now: {message}")]
    Blocked {
        /// The server's words.
        message: String,
    },
    /// Not at all: the request is not allowed or not valid. Nothing happened.
    #[error("refused ({code}): {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// No answer, or a broken one. It may have happened.
    #[error("the API server does not answer: {message}")]
    Unavailable {
        /// What went wrong.
        message: String,
    },
}

impl Failure {
    /// Can it be that it happened nevertheless?
    pub fn is_unclear(&self) -> bool {
        matches!(self, Failure::Unavailable { .. })
    }
}

/// Somebody who can do these things.
pub trait Effects: Clone + Send + Sync + 'static {
    /// Does one thing. Doing it twice is harmless.
    fn carry_out(&self, effect: &Effect) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Looks at a pod: after an unclear answer this says what became of it. None when it is gone.
    fn look(&self, target: &Target) -> impl Future<Output = Result<Option<divvy_api::wire::Pod>, Failure>> + Send;
}

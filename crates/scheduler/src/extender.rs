//! Divvy as an HTTP extender of an unmodified kube-scheduler, and under the routes that users of the emulated systems have in their
//! scheduler's configuration.
//!
//! | route | whose |
//! |---|---|
//! | `/divvy/filter`, `/divvy/prioritize`, `/divvy/preempt`, `/divvy/bind` | ours |
//! | `/gpushare-scheduler/filter`, `/bind`; where wanted `/inspect`, `/inspect/NODE` | Aliyun gpushare's |
//! | `/scheduler/predicates` | gpu-admission's |
//! | `/filter`, `/bind` | 4paradigm's and HAMi's vGPU scheduler's |
//!
//! Any replica answers questions from its own view; only the leader binds, and a follower hands a bind on to it. A question is about the
//! pod that the API server shows under its uid: what else the question says of the pod is not believed.

mod emulated;
mod forward;
mod own;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use divvy_api::convert::PodSeen;
use divvy_api::reader::PodReader;
use divvy_cluster::lease::Standing;
use divvy_core::id::{PodKey, PodUid};
use divvy_core::node::Node;
use divvy_service::mutual::Mutual;
use tokio::sync::{mpsc, oneshot, watch};

use crate::world::{Advice, Inspected};

/// Nodes, and on each the pods that would have to leave.
pub type Victims = Vec<(String, Vec<PodUid>)>;

/// What a scheduler wants to hear about the nodes it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Of each whether it will do.
    Each,
    /// Of each, but only the best may do: the others are refused because the pod goes there.
    One,
    /// The best; why the others will not do is said only where none will.
    Best,
}

/// A question to the scheduler's loop, and where its answer goes.
#[derive(Debug)]
pub enum Question {
    /// Which of these nodes will do for a pod?
    Filter {
        /// The pod.
        pod: Box<PodSeen>,
        /// The nodes.
        nodes: Vec<String>,
        /// What is to be said about them.
        wanted: Wanted,
        /// The answer, or why there is none.
        reply: oneshot::Sender<Result<Advice, String>>,
    },
    /// Which of these nodes are not of this cluster?
    Strangers {
        /// The nodes.
        nodes: Vec<String>,
        /// Those that are not.
        reply: oneshot::Sender<Vec<String>>,
    },
    /// Which of these nodes would do for a pod, if those existed that do not? An autoscaler asks so.
    Imagine {
        /// The pod.
        pod: Box<PodSeen>,
        /// The nodes.
        nodes: Vec<String>,
        /// Those of them that do not exist.
        templates: Vec<Node>,
        /// The answer, or why there is none.
        reply: oneshot::Sender<Result<Advice, String>>,
    },
    /// How good is each of these nodes for a pod, from 0 to 10?
    Prioritize {
        /// The pod.
        pod: Box<PodSeen>,
        /// The nodes.
        nodes: Vec<String>,
        /// The answer, node by node.
        reply: oneshot::Sender<Vec<i64>>,
    },
    /// On which of these nodes would a pod fit if these left?
    Preempt {
        /// The pod.
        pod: Box<PodSeen>,
        /// The nodes with those who would leave.
        nodes: Victims,
        /// Those where it helps, with those who must leave.
        reply: oneshot::Sender<Victims>,
    },
    /// Bind a pod to a node.
    Bind {
        /// The pod; empty where only its name is known.
        uid: PodUid,
        /// Its name.
        key: PodKey,
        /// The node.
        node: String,
        /// What came of it.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Who holds what?
    Inspect {
        /// On this node; on all where none is named.
        only: Option<String>,
        /// The answer.
        reply: oneshot::Sender<Vec<Inspected>>,
    },
}

/// What the routes work with.
#[derive(Clone)]
pub struct Extender {
    questions: mpsc::Sender<Question>,
    reader: PodReader,
    standing: watch::Receiver<Standing>,
    manner: Manner,
}

/// How questions are answered.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// The certificate that is shown to the leader, where binds are handed on to it over TLS.
    pub mutual: Option<Mutual>,
    /// Answer gpushare's `inspect`, too: it tells every caller who holds what in all namespaces.
    pub inspect: bool,
}

/// The largest body of a question, in bytes. Names of 100,000 nodes take 7 MiB. Where a scheduler's configuration announces no cache of nodes
/// (`nodeCacheCapable: false`) nodes come whole, of some 20 KiB each: 1,600 of them. A body is held three times on its way (as it came, in
/// nodes, as the answer), and two large ones at once: twice as much would be 400 MiB of a controller's 1 GiB.
pub const LARGEST: usize = 32 << 20;

/// The routes, asking the loop behind `questions`.
pub fn routes(
    questions: mpsc::Sender<Question>,
    reader: PodReader,
    standing: watch::Receiver<Standing>,
    manner: Manner,
) -> Router {
    let mut routes = Router::new();
    if manner.inspect {
        routes = routes
            .route("/gpushare-scheduler/inspect", get(emulated::gpushare_inspect_all))
            .route("/gpushare-scheduler/inspect/{node}", get(emulated::gpushare_inspect));
    }
    let extender = Arc::new(Extender { questions, reader, standing, manner });
    routes
        .route("/divvy/filter", post(own::filter))
        .route("/divvy/prioritize", post(own::prioritize))
        .route("/divvy/preempt", post(own::preempt))
        .route("/divvy/bind", post(own::bind))
        .route("/gpushare-scheduler/filter", post(emulated::gpushare_filter))
        .route("/gpushare-scheduler/bind", post(emulated::gpushare_bind))
        .route("/scheduler/predicates", post(emulated::predicates))
        .route("/filter", post(emulated::vgpu_filter))
        .route("/bind", post(own::bind))
        .route("/version", get(|| async { env!("CARGO_PKG_VERSION") }))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(extender)
}

impl Question {
    /// The pod that has to be known for an answer: one that asks for devices.
    pub(crate) fn about(&self) -> Option<&PodUid> {
        match self {
            Question::Filter { pod, .. } | Question::Prioritize { pod, .. } | Question::Preempt { pod, .. } => {
                pod.pod.ask.as_ref().map(|_| &pod.pod.uid)
            }
            Question::Bind { uid, .. } => Some(uid).filter(|uid| !uid.as_str().is_empty()),
            Question::Strangers { .. } | Question::Imagine { .. } | Question::Inspect { .. } => None,
        }
    }
}

impl Extender {
    /// Asks the loop. None when it is gone, which is when the process ends.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).await.ok()?;
        answer.await.ok()
    }
}

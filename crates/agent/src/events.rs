//! What people should read in `kubectl describe`: events on pods and on the node. Sent from a queue, so that nothing waits for
//! the API server, and dropped when it stays away.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_service::Stop;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::pods::PodView;

/// Who speaks.
const REPORTER: &str = "divvy-agent";
/// An event's text may have at most this many bytes.
const LONGEST: usize = 1000;
/// So many different texts are remembered, to count one that comes again instead of telling it again.
const TEXTS: usize = 256;

struct Message {
    about: ObjectReference,
    event: Event,
}

/// A way to speak.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Message>,
    node: Arc<ObjectReference>,
}

/// The other end, for the task that sends.
pub struct Queue(mpsc::Receiver<Message>);

impl Events {
    /// Both ends, for the node of this name.
    pub fn new(node: &str) -> (Events, Queue) {
        let (queue, rest) = mpsc::channel(256);
        let node = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.into()),
            // The kubelet's own events about a node use its name for a uid, and kubectl looks for that.
            uid: Some(node.into()),
            ..ObjectReference::default()
        };
        (Events { queue, node: Arc::new(node) }, Queue(rest))
    }

    fn send(&self, about: ObjectReference, type_: EventType, reason: &str, action: &str, mut note: String) {
        if note.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
            note.truncate(end);
        }
        let event = Event { type_, reason: reason.into(), note: Some(note), action: action.into(), secondary: None };
        if self.queue.try_send(Message { about, event }).is_err() {
            tracing::warn!(reason, "too many events wait for the API server; one is dropped");
        }
    }

    /// A warning about a pod.
    pub fn warn_pod(&self, pod: &PodView, reason: &str, note: &str) {
        self.send(reference(pod), EventType::Warning, reason, "Start", note.to_owned());
    }

    /// Something about a pod that is no warning.
    pub fn tell_pod(&self, pod: &PodView, reason: &str, note: &str) {
        self.send(reference(pod), EventType::Normal, reason, "Resize", note.to_owned());
    }

    /// A pod's grant was refused.
    pub fn refused(&self, pod: &PodView, why: &str) {
        self.warn_pod(pod, "GrantRefused", why);
    }

    /// Something about this node.
    pub fn node(&self, warning: bool, reason: &str, note: &str) {
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.send((*self.node).clone(), type_, reason, "Watch", note.to_owned());
    }
}

fn reference(pod: &PodView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.pod.name.to_string()),
        namespace: Some(pod.pod.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// A recorder takes an event of the same reason for the same event, whatever it says. Each text has one of its own, so that the second
/// sentence about a pod is read, too.
struct Recorders {
    client: Client,
    by_text: HashMap<String, Recorder>,
}

impl Recorders {
    fn of(&mut self, text: &str) -> &Recorder {
        if self.by_text.len() >= TEXTS && !self.by_text.contains_key(text) {
            self.by_text.clear();
        }
        let reporter = || Reporter { controller: REPORTER.into(), instance: None };
        self.by_text.entry(text.to_owned()).or_insert_with(|| Recorder::new(self.client.clone(), reporter()))
    }
}

impl Queue {
    /// Sends until asked to stop.
    pub async fn send(mut self, client: Client, stop: Stop) -> anyhow::Result<()> {
        let mut recorders = Recorders { client, by_text: HashMap::new() };
        loop {
            let message = tokio::select! {
                message = self.0.recv() => message,
                () = stop.requested() => return Ok(()),
            };
            let Some(Message { about, event }) = message else { return Ok(()) };
            let text = event.note.as_deref().unwrap_or_default();
            if let Err(error) = recorders.of(text).publish(&event, &about).await {
                tracing::warn!(%error, reason = event.reason, "cannot publish an event");
            }
        }
    }

    /// For an agent without a cluster: everything is only logged.
    pub async fn log(mut self, stop: Stop) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                message = self.0.recv() => match message {
                    Some(m) => tracing::info!(reason = m.event.reason, note = ?m.event.note, "event"),
                    None => return Ok(()),
                },
                () = stop.requested() => return Ok(()),
            }
        }
    }
}

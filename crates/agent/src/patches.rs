//! What the agent writes on pods: annotations and conditions. Sent from a queue; a pod that is gone, or another of the same name, is
//! left alone.

use std::collections::BTreeMap;

use divvy_core::id::{PodKey, PodUid};
use divvy_service::Stop;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// One change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Annotations to set.
    Annotations(BTreeMap<String, String>),
    /// A condition: type, status, reason, message.
    Condition {
        /// Its type.
        kind: String,
        /// Does it hold?
        holds: bool,
        /// Why, in one word.
        reason: String,
        /// Why, for people.
        message: String,
    },
}

struct Order {
    pod: PodKey,
    uid: PodUid,
    change: Change,
}

/// A way to change pods.
#[derive(Clone)]
pub struct Patches(mpsc::Sender<Order>);

/// The other end, for the task that sends.
pub struct Queue(mpsc::Receiver<Order>);

impl Patches {
    /// Both ends.
    pub fn new() -> (Patches, Queue) {
        let (send, receive) = mpsc::channel(256);
        (Patches(send), Queue(receive))
    }

    /// Changes a pod, a moment later.
    pub fn change(&self, pod: &PodKey, uid: &PodUid, change: Change) {
        if self.0.try_send(Order { pod: pod.clone(), uid: uid.clone(), change }).is_err() {
            tracing::warn!(%pod, "too many changes of pods wait for the API server; one is dropped");
        }
    }
}

impl Queue {
    /// The next change, for tests.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Change {
        let order = tokio::time::timeout(std::time::Duration::from_secs(60), self.0.recv()).await;
        order.expect("nothing is changed").expect("nobody changes anything any more").change
    }

    /// Sends until asked to stop.
    pub async fn send(mut self, client: Client, stop: Stop) -> anyhow::Result<()> {
        loop {
            let order = tokio::select! {
                order = self.0.recv() => order,
                () = stop.requested() => return Ok(()),
            };
            let Some(Order { pod, uid, change }) = order else { return Ok(()) };
            let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace.as_str());
            // The uid makes it a precondition: another pod of the same name is not meant.
            let metadata = json!({"uid": uid.as_str()});
            let (name, parameters) = (pod.name.as_ref(), PatchParams::default());
            let sent = match change {
                Change::Annotations(annotations) => {
                    let mut metadata = metadata;
                    metadata["annotations"] = json!(annotations);
                    let patch = json!({"metadata": metadata});
                    api.patch(name, &parameters, &Patch::Merge(patch)).await
                }
                Change::Condition { kind, holds, reason, message } => {
                    let condition = condition(&kind, holds, &reason, &message);
                    let patch = json!({"metadata": metadata, "status": {"conditions": [condition]}});
                    api.patch_status(name, &parameters, &Patch::Strategic(patch)).await
                }
            };
            match sent {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                    tracing::debug!(%pod, "the pod is gone");
                }
                Err(error) => tracing::warn!(%pod, %error, "cannot change a pod"),
            }
        }
    }
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": kind,
        "status": if holds { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": jiff::Timestamp::now().to_string(),
    })
}

//! Evictions, through the API that respects disruption budgets. A refused one is tried again until the pod is gone.

use std::time::Duration;

use divvy_core::id::{PodKey, PodUid};
use divvy_service::Stop;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::mpsc;

/// Between two tries.
const AGAIN: Duration = Duration::from_secs(5);
/// After so many tries somebody else has to decide.
const TRIES: u32 = 120;

struct Order {
    pod: PodKey,
    uid: PodUid,
    why: String,
    tries: u32,
}

/// A way to evict.
#[derive(Clone)]
pub struct Evictions(mpsc::Sender<Order>);

/// The other end, for the task that does it.
pub struct Queue(mpsc::Sender<Order>, mpsc::Receiver<Order>);

impl Evictions {
    /// Both ends.
    pub fn new() -> (Evictions, Queue) {
        let (send, receive) = mpsc::channel(256);
        (Evictions(send.clone()), Queue(send, receive))
    }

    /// Evicts a pod, a moment later.
    pub fn evict(&self, pod: &PodKey, uid: &PodUid, why: &str) {
        let order = Order { pod: pod.clone(), uid: uid.clone(), why: why.to_owned(), tries: 0 };
        if self.0.try_send(order).is_err() {
            tracing::warn!(%pod, "too many evictions wait; one is dropped");
        }
    }
}

impl Queue {
    /// Evicts until asked to stop.
    pub async fn work(mut self, client: Client, stop: Stop) -> anyhow::Result<()> {
        let mut waiting = tokio::task::JoinSet::new();
        loop {
            let order = tokio::select! {
                order = self.1.recv() => order,
                Some(_) = waiting.join_next() => continue,
                () = stop.requested() => return Ok(()),
            };
            let Some(mut order) = order else { return Ok(()) };
            let api: Api<Pod> = Api::namespaced(client.clone(), order.pod.namespace.as_str());
            // Another pod of the same name is not meant.
            let uid = Some(order.uid.to_string());
            let options = DeleteParams {
                preconditions: Some(Preconditions { uid, ..Preconditions::default() }),
                ..DeleteParams::default()
            };
            let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
            match api.evict(order.pod.name.as_ref(), &params).await {
                Ok(_) => tracing::info!(pod = %order.pod, why = order.why, "evicted"),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    order.tries += 1;
                    if order.tries == 1 {
                        tracing::warn!(pod = %order.pod, %error, "cannot evict a pod yet; trying again");
                    }
                    let again = self.0.clone();
                    if order.tries < TRIES {
                        waiting.spawn(async move {
                            tokio::time::sleep(AGAIN).await;
                            let _ = again.send(order).await;
                        });
                    }
                }
            }
        }
    }
}

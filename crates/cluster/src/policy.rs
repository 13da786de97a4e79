//! The cluster's policy, for services that want nothing else.

use std::sync::Arc;

use divvy_api::policy::{ClusterPolicy, NAME};
use divvy_api::wire::PolicyObject;
use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::watch::{Seen, follow};

/// Keeps `to` at the policy in force. One that cannot be followed is logged and changes nothing. Ends when nobody listens.
pub async fn follow_policy(client: Client, to: watch::Sender<Arc<ClusterPolicy>>) {
    let (tell, mut told) = mpsc::channel::<Arc<ClusterPolicy>>(4);
    let (_never, relist) = watch::channel(0);
    let turn = |seen: Seen<PolicyObject>| match seen {
        Seen::Applied(object) if object.metadata.name == NAME => match ClusterPolicy::read(&object.spec) {
            Ok(policy) => Some(Arc::new(policy)),
            Err(problem) => {
                tracing::error!(%problem, "the policy stays as it was");
                None
            }
        },
        Seen::Gone(gone) if gone.name == NAME => Some(Arc::default()),
        _ => None,
    };
    let keep = async {
        while let Some(policy) = told.recv().await {
            to.send_if_modified(|now| {
                let changed = *now != policy;
                *now = policy;
                changed
            });
        }
    };
    tokio::select! {
        () = follow(client, tell, relist, turn) => {}
        () = keep => {}
        () = to.closed() => {}
    }
}

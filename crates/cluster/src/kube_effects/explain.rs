//! Why a pod waits, where people and autoscalers look for it: the condition `PodScheduled`.

use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::pod_path;
use crate::effect::{Explain, Failure};
use crate::request;

pub(super) async fn carry_out(client: &Client, explain: &Explain) -> Result<(), Failure> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut status = json!({"conditions": [{
        "type": "PodScheduled",
        "status": "False",
        "reason": explain.reason,
        "message": explain.message,
        "lastProbeTime": null,
        "lastTransitionTime": now,
    }]});
    if let Some(node) = &explain.nominated {
        status["nominatedNodeName"] = Value::from(node.as_str());
    }
    let body = json!({"metadata": {"uid": explain.target.uid}, "status": status});
    match request::patch::<IgnoredAny>(client, &format!("{}/status", pod_path(&explain.target.pod)), &body).await {
        // A pod of that name with another uid is somebody else; one that is gone needs no explanation.
        Ok(_) | Err(Failure::Gone | Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

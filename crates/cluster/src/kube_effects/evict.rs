//! Eviction: the API server counts disruption budgets and says no where one has nothing left.

use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use super::pod_path;
use crate::effect::{Evict, Failure};
use crate::request;

pub(super) async fn carry_out(client: &Client, evict: &Evict) -> Result<(), Failure> {
    let pod = &evict.target.pod;
    condition(client, evict).await;
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": &*pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": evict.target.uid}},
    });
    match request::post::<IgnoredAny>(client, &format!("{}/eviction", pod_path(pod)), &body).await {
        // Gone already, or another pod has its name now (the precondition on the uid): either way it left.
        Ok(_) | Err(Failure::Gone | Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// `DisruptionTarget=True`, as every Kubernetes component says it before it removes a pod, so that Jobs with a pod failure policy
/// do not count it against the workload. Best effort: the eviction itself decides.
async fn condition(client: &Client, evict: &Evict) {
    let body = json!({
        "metadata": {"uid": evict.target.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": evict.reason,
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    });
    let path = format!("{}/status", pod_path(&evict.target.pod));
    if let Err(failure) = request::patch::<IgnoredAny>(client, &path, &body).await {
        tracing::debug!(pod = %evict.target.pod, %failure, "could not mark the pod before its eviction");
    }
}

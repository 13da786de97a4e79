//! A pod's claims, before it is bound: what kube-scheduler's volume binder does, as two kinds of step.

use std::time::{Duration, Instant};

use divvy_api::wire;
use divvy_core::keys;
use divvy_core::volume::VolumeStep;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::effect::Failure;
use crate::request;

/// How long a claim may take to be bound. Making a volume takes clouds a minute or two.
const PATIENCE: Duration = Duration::from_secs(600);

/// Has every claim bound. The pod is bound only then: a volume that cannot be made where it is wanted must not strand the pod there.
pub(super) async fn prepare(client: &Client, steps: &[VolumeStep]) -> Result<(), Failure> {
    for step in steps {
        carry_out(client, step).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    for step in steps {
        let (VolumeStep::Bind { claim, .. } | VolumeStep::Provision { claim, .. }) = step;
        let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.namespace, claim.name);
        loop {
            let found: wire::Claim = request::get(client, &path).await?;
            if found.status.phase == "Bound" {
                break;
            }
            // The provisioner gave up on this node and took the annotation back: choose again.
            let provisioning = matches!(step, VolumeStep::Provision { .. });
            if provisioning && !found.metadata.annotations.contains_key(keys::SELECTED_NODE) {
                let message = format!("no volume could be made for claim {} there", claim.name);
                return Err(Failure::Refused { code: 0, message });
            }
            if Instant::now() > deadline {
                let message = format!("claim {} was not bound within {PATIENCE:?}", claim.name);
                return Err(Failure::Refused { code: 0, message });
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

async fn carry_out(client: &Client, step: &VolumeStep) -> Result<(), Failure> {
    match step {
        VolumeStep::Bind { claim, volume } => {
            let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.namespace, claim.name);
            let found: Value = request::get(client, &path).await?;
            let body = json!({
                "metadata": {"annotations": {(keys::VOLUME_BOUND_BY_CONTROLLER): "yes"}},
                "spec": {"claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace,
                    "name": &*claim.name,
                    "uid": found["metadata"]["uid"],
                    "resourceVersion": found["metadata"]["resourceVersion"],
                }},
            });
            request::patch::<IgnoredAny>(client, &format!("/api/v1/persistentvolumes/{volume}"), &body).await?;
        }
        VolumeStep::Provision { claim, node } => {
            let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.namespace, claim.name);
            let body = json!({"metadata": {"annotations": {(keys::SELECTED_NODE): node}}});
            request::patch::<IgnoredAny>(client, &path, &body).await?;
        }
    }
    Ok(())
}

//! A pod's claims, before it is bound: what kube-scheduler's volume binder does, as two kinds of step.

use divvy_core::keys;
use divvy_core::volume::VolumeStep;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::effect::Failure;
use crate::request;

pub(super) async fn carry_out(client: &Client, step: &VolumeStep) -> Result<(), Failure> {
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

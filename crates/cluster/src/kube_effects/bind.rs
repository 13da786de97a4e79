//! Binding: the node's name and the grant in one write.

use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{pod_path, volume};
use crate::effect::{Bind, Failure};
use crate::request;

/// The API server merges a Binding's annotations into the pod in the same write that sets the node, and treats uid and
/// resourceVersion as preconditions: a stale or second bind is a conflict and changes nothing.
pub(super) async fn carry_out(client: &Client, bind: &Bind) -> Result<(), Failure> {
    volume::prepare(client, &bind.volumes).await?;
    let pod = &bind.target.pod;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": &*pod.name,
            "namespace": pod.namespace,
            "uid": bind.target.uid,
            "resourceVersion": bind.version,
            "annotations": bind.annotations,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node},
    });
    request::post::<IgnoredAny>(client, &format!("{}/binding", pod_path(pod)), &body).await?;
    Ok(())
}

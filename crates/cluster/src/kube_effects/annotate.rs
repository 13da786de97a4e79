//! Annotations of a pod.

use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use super::pod_path;
use crate::effect::{Annotate, Failure};
use crate::request;

pub(super) async fn carry_out(client: &Client, annotate: &Annotate) -> Result<(), Failure> {
    let body = json!({"metadata": {"uid": annotate.target.uid, "annotations": annotate.annotations}});
    request::patch::<IgnoredAny>(client, &pod_path(&annotate.target.pod), &body).await?;
    Ok(())
}

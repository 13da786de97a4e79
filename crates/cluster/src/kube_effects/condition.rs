//! Conditions of a pod, besides the one that says why it waits.

use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use super::pod_path;
use crate::effect::{Condition, Failure};
use crate::request;

pub(super) async fn carry_out(client: &Client, condition: &Condition) -> Result<(), Failure> {
    let body = json!({
        "metadata": {"uid": condition.target.uid},
        "status": {"conditions": [{
            "type": condition.kind,
            "status": if condition.holds { "True" } else { "False" },
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    });
    request::patch::<IgnoredAny>(client, &format!("{}/status", pod_path(&condition.target.pod)), &body).await?;
    Ok(())
}

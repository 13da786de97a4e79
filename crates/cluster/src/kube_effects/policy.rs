//! The GpuPolicy's status: whether it is followed.

use divvy_api::policy::NAME;
use divvy_core::keys;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::effect::Failure;
use crate::request;

pub(super) async fn carry_out(client: &Client, generation: i64, problem: Option<&str>) -> Result<(), Failure> {
    let (status, reason) = if problem.is_none() { ("True", "Followed") } else { ("False", "CannotBeFollowed") };
    let body = json!({"status": {
        "observedGeneration": generation,
        "conditions": [{
            "type": "Followed",
            "status": status,
            "reason": reason,
            "message": problem.unwrap_or("the services act on this policy"),
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }],
    }});
    let path = format!("{}/{NAME}/status", keys::POLICY_PATH);
    request::patch::<IgnoredAny>(client, &path, &body).await?;
    Ok(())
}

//! Opening a scheduling gate. The list of gates is replaced by what is left of it, on the version it was read at.

use divvy_api::wire;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::pod_path;
use crate::effect::{Failure, LiftGate};
use crate::request;

pub(super) async fn carry_out(client: &Client, lift: &LiftGate) -> Result<(), Failure> {
    let path = pod_path(&lift.target.pod);
    let pod: wire::Pod = request::get(client, &path).await?;
    if pod.metadata.uid != lift.target.uid.as_str() {
        return Err(Failure::Gone);
    }
    let gates = &pod.spec.scheduling_gates;
    let left: Vec<Value> = gates.iter().filter(|g| g.name != lift.gate).map(|g| json!({"name": g.name})).collect();
    if left.len() == gates.len() {
        return Ok(());
    }
    let body = json!({
        "metadata": {
            "uid": lift.target.uid,
            "resourceVersion": pod.metadata.resource_version,
            "annotations": lift.annotations,
        },
        "spec": {"schedulingGates": left},
    });
    request::patch::<IgnoredAny>(client, &path, &body).await?;
    Ok(())
}

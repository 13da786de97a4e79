//! Writes, carried out on a real API server.

use std::collections::BTreeMap;

use divvy_cluster::effect::{About, Annotate, Event, Target};
use divvy_cluster::{Effect, Effects, Failure, KubeEffects, delete, get, patch, post, put};
use divvy_core::ask::Class;
use divvy_core::budget::AccountKey;
use divvy_core::keys;
use kube::Client;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::facts::class_name;
use crate::treasury::Written;
use crate::write::Write;

/// The path of charges.
pub(super) fn charges_path(home: &str) -> String {
    format!("{}/{home}/gpucharges", keys::NAMESPACED_PATH)
}

fn budget_path(key: &AccountKey) -> String {
    match &key.namespace {
        Some(namespace) => format!("{}/{namespace}/gpubudgets/{}", keys::NAMESPACED_PATH, key.name),
        None => format!("{}/{}", keys::CLUSTER_BUDGETS_PATH, key.name),
    }
}

/// Makes an object, brings it up to date, or deletes it where nothing is said. Its label names what it is kept for, which has its name.
async fn copy<S: Serialize>(
    client: &Client,
    list: &str,
    name: &str,
    (kind, label): (&str, &str),
    spec: Option<&S>,
) -> Result<Written, Failure> {
    let Some(spec) = spec else {
        return delete(client, &format!("{list}/{name}")).await.map(|()| Written::default());
    };
    let object = json!({
        "apiVersion": keys::GROUP_VERSION, "kind": kind,
        "metadata": {"name": name, "labels": {(label): name}},
        "spec": spec,
    });
    match post::<Written>(client, list, &object).await {
        Err(Failure::Conflict { .. }) => {
            // One that is somebody's own has another label or none: the test fails, and it stays as it is.
            let labelled = format!("/metadata/labels/{}", label.replace('/', "~1"));
            let change = json!([
                {"op": "test", "path": labelled, "value": name},
                {"op": "replace", "path": "/spec", "value": spec},
            ]);
            patch(client, &format!("{list}/{name}"), &change).await
        }
        other => other,
    }
}

/// Carries a write out.
pub(super) async fn out(client: &Client, effects: &KubeEffects, home: &str, write: &Write) -> Result<Written, Failure> {
    match write {
        Write::Budget { key, version, status } => set_status(client, &budget_path(key), version, status).await,
        Write::Template { name, version, status } => {
            set_status(client, &format!("{}/{name}", keys::CLUSTER_BUDGETS_PATH), version, status).await
        }
        Write::Quota { namespace, name, version, status } => {
            let path = format!("{}/{namespace}/gpuquotas/{name}", keys::NAMESPACED_PATH);
            set_status(client, &path, version, status).await
        }
        Write::Copy { namespace, name, spec } => {
            let list = format!("{}/{namespace}/gpubudgets", keys::NAMESPACED_PATH);
            copy(client, &list, name, ("GpuBudget", keys::BUDGET_TEMPLATE), spec.as_deref()).await
        }
        Write::QuotaCopy { namespace, name, spec } => {
            let list = format!("{}/{namespace}/gpuquotas", keys::NAMESPACED_PATH);
            copy(client, &list, name, ("GpuQuota", keys::RESOURCE_QUOTA), spec.as_deref()).await
        }
        Write::Charges { name, version, spec, .. } => {
            let mut object = json!({
                "apiVersion": keys::GROUP_VERSION, "kind": "GpuCharges",
                "metadata": {"name": name, "labels": {(keys::CHARGED_NAMESPACE): spec.namespace}},
                "spec": spec,
            });
            let list = charges_path(home);
            match version {
                None => post(client, &list, &object).await,
                Some(version) => {
                    object["metadata"]["resourceVersion"] = json!(version);
                    put(client, &format!("{list}/{name}"), &object).await
                }
            }
        }
        Write::Forget { name } => {
            delete(client, &format!("{}/{name}", charges_path(home))).await.map(|()| Written::default())
        }
        Write::Class { target, class, because } => {
            let annotations = BTreeMap::from([(keys::CLASS_NOW.to_owned(), Some(class_name(*class).to_owned()))]);
            effects.carry_out(&Effect::Annotate(Annotate { target: target.clone(), annotations })).await?;
            let reason = if *class == Class::Opportunistic { "Demoted" } else { "Promoted" };
            tell(effects, target, reason, because).await;
            Ok(Written::default())
        }
        Write::Stop { target, because } => {
            tell(effects, target, "BudgetExhausted", because).await;
            stop(client, target, because).await.map(|()| Written::default())
        }
        Write::Acknowledge { node, cut } => {
            let body = json!({"metadata": {"annotations": {(keys::JOURNAL_CUT): serde_json::to_string(cut).unwrap_or_default()}}});
            patch(client, &format!("/api/v1/nodes/{node}"), &body).await
        }
    }
}

/// Replaces a status, if the object is still of this version.
async fn set_status(client: &Client, path: &str, version: &str, status: &impl Serialize) -> Result<Written, Failure> {
    let body = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/status", "value": status},
    ]);
    patch(client, &format!("{path}/status"), &body).await
}

async fn tell(effects: &KubeEffects, target: &Target, reason: &'static str, message: &str) {
    let warning = reason != "Promoted";
    let event = Event { about: About::Pod(target.clone()), reason, message: message.to_owned(), warning };
    if let Err(failure) = effects.carry_out(&Effect::Tell(event)).await {
        tracing::debug!(pod = %target.pod, %failure, "an event was not written");
    }
}

/// Evicts a pod whose budget is used up. Its own fault, so nothing is given back: the condition says so.
async fn stop(client: &Client, target: &Target, because: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", target.pod.namespace, target.pod.name);
    let condition = json!({"metadata": {"uid": target.uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "BudgetExhausted", "message": because,
        "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }]}});
    // Best effort: the eviction itself decides.
    let _ = patch::<IgnoredAny>(client, &format!("{path}/status"), &condition).await;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": &*target.pod.name, "namespace": target.pod.namespace},
        "deleteOptions": {"preconditions": {"uid": target.uid}},
    });
    match post::<IgnoredAny>(client, &format!("{path}/eviction"), &body).await {
        Ok(_) | Err(Failure::Gone | Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The version charges have now; none where they are not there.
pub(super) async fn charges_version(client: &Client, home: &str, write: &Write) -> Option<String> {
    let Write::Charges { name, .. } = write else { return None };
    let object: Value = get(client, &format!("{}/{name}", charges_path(home))).await.ok()?;
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

//! Routes of the emulated systems, in their own words where their users read them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use divvy_api::extender::{BindResult, FilterResult, NodeList};
use serde_json::{Value, json};

use super::own::{ENDING, bind_with, filter_with};
use super::{Extender, Question, Wanted};
use crate::world::{Inspected, Refused, Why};

/// Filters; all refusals in one list (these systems know no nodes on which preemption is hopeless), in the system's own words.
async fn filter(
    extender: &Extender,
    body: &[u8],
    wanted: Wanted,
    words: impl Fn(&str, Refused) -> String,
) -> FilterResult {
    let mut result = FilterResult::default();
    match filter_with(extender, body, wanted, &mut result).await {
        Ok(refused) => {
            result.failed_nodes = refused.into_iter().map(|(node, why)| (node.clone(), words(&node, why))).collect();
        }
        Err(error) => result.error = error,
    }
    result
}

pub(super) async fn gpushare_filter(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let mut result = filter(&extender, &body, Wanted::Each, |node, refused| match refused.why {
        Why::Unknown | Why::NoDevice => format!("The node {node} is not for GPU share, need skip"),
        Why::Full => "Insufficient GPU Memory in one device".into(),
        Why::Never | Why::Short | Why::Elsewhere => refused.text,
    })
    .await;
    // gpushare answered with names and nodes, whichever it was asked with.
    if result.nodes.is_none() {
        result.nodes = result.node_names.as_deref().map(NodeList::of_names);
    }
    Json(result).into_response()
}

pub(super) async fn gpushare_bind(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    match bind_with(&extender, &body).await {
        Ok(()) => Json(BindResult::default()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, Json(BindResult { error })).into_response(),
    }
}

/// gpu-admission chooses in its filter: exactly one node comes back.
pub(super) async fn predicates(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let result = filter(&extender, &body, Wanted::One, |_, refused| match refused.why {
        Why::Unknown | Why::NoDevice => "no GPU device".into(),
        _ => refused.text,
    });
    Json(result.await).into_response()
}

/// The vGPU scheduler chooses in its filter, too.
pub(super) async fn vgpu_filter(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let result = filter(&extender, &body, Wanted::One, |_, refused| match refused.why {
        // As its users know it.
        Why::Unknown | Why::NoDevice => "node unregisterd".into(),
        _ => refused.text,
    });
    Json(result.await).into_response()
}

pub(super) async fn gpushare_inspect_all(State(extender): State<Arc<Extender>>) -> Response {
    match extender.ask(|reply| Question::Inspect { only: None, reply }).await {
        Some(nodes) => Json(json!({"nodes": nodes.iter().map(shown).collect::<Vec<_>>()})).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, ENDING).into_response(),
    }
}

pub(super) async fn gpushare_inspect(State(extender): State<Arc<Extender>>, Path(node): Path<String>) -> Response {
    let only = Some(node.clone());
    match extender.ask(|reply| Question::Inspect { only, reply }).await {
        Some(nodes) if nodes.is_empty() => {
            let error = format!("node {node:?} not found");
            (StatusCode::NOT_FOUND, Json(json!({"nodes": [], "error": error}))).into_response()
        }
        Some(nodes) => Json(json!({"nodes": nodes.iter().map(shown).collect::<Vec<_>>()})).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, ENDING).into_response(),
    }
}

fn shown(node: &Inspected) -> Value {
    let used = |pods: &[(String, String, u64)]| pods.iter().map(|(_, _, units)| units).sum::<u64>();
    let devices: Vec<Value> = node
        .devices
        .iter()
        .map(|device| {
            let pods: Vec<Value> = device
                .pods
                .iter()
                .map(|(namespace, name, units)| json!({"name": name, "namespace": namespace, "usedGPU": units}))
                .collect();
            json!({"id": device.index, "totalGPU": device.total, "usedGPU": used(&device.pods), "pods": pods})
        })
        .collect();
    json!({
        "name": node.name,
        "totalGPU": node.devices.iter().map(|d| d.total).sum::<u64>(),
        "usedGPU": node.devices.iter().map(|d| used(&d.pods)).sum::<u64>(),
        "devs": devices,
    })
}

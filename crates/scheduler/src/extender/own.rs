//! Our own routes: the extender protocol as kube-scheduler defines it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use divvy_api::convert;
use divvy_api::extender::{
    BindArgs, BindResult, FilterArgs, FilterResult, HostPriority, MAX_SCORE, MetaPodOut, MetaVictimsOut, NodeList,
    PreemptArgs, PreemptResult,
};
use divvy_api::wire;
use divvy_cluster::lease::Standing;
use divvy_core::id::{PodKey, PodUid};
use divvy_core::node::Node;
use serde_json::value::RawValue;

use super::{Extender, Question, Wanted, forward};
use crate::world::{Advice, Refused, Why};

/// What is answered when the loop is gone: the process is about to end.
pub(super) const ENDING: &str = "the scheduler is stopping";

/// Leaves kube-scheduler the best node alone: it then has nothing to score, and asks nobody to prioritize. The score behind it counts the
/// pod's own wishes for nodes and neighbours as well as devices. Whoever else filters has to be asked before Divvy is.
pub(super) async fn filter(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let mut result = FilterResult::default();
    let advice = match filter_with(&extender, &body, Wanted::Best, &mut result).await {
        Ok(refused) => refused,
        Err(error) => return Json(FilterResult { error, ..result }).into_response(),
    };
    for (node, refused) in advice {
        let hopeless = matches!(refused.why, Why::Unknown | Why::NoDevice | Why::Never);
        let list = if hopeless { &mut result.failed_and_unresolvable_nodes } else { &mut result.failed_nodes };
        list.insert(node, refused.text);
    }
    Json(result).into_response()
}

/// Filters, and fills in what remains in the form in which it was asked: names for names, whole nodes for whole nodes. Gives the
/// refusals, for the caller to put in its own words.
pub(super) async fn filter_with(
    extender: &Extender,
    body: &[u8],
    wanted: Wanted,
    result: &mut FilterResult,
) -> Result<BTreeMap<String, Refused>, String> {
    let args = FilterArgs::parse(body).map_err(|error| format!("not ExtenderArgs: {error}"))?;
    let names = match (&args.node_names, &args.nodes) {
        (Some(names), _) => names.clone(),
        (None, Some(nodes)) => nodes.names(),
        (None, None) => Vec::new(),
    };
    let pod = Box::new(extender.reader.read(args.pod));
    let templates = templates(extender, args.nodes.as_ref()).await;
    let nodes = names.clone();
    let advice = if templates.is_empty() {
        extender.ask(|reply| Question::Filter { pod, nodes, wanted, reply }).await
    } else {
        extender.ask(|reply| Question::Imagine { pod, nodes, templates, reply }).await
    };
    let Advice { fit, refused } = advice.ok_or_else(|| ENDING.to_owned())??;
    result.nodes = args.nodes.map(|nodes| {
        let kept: HashSet<&str> = fit.iter().map(String::as_str).collect();
        let items =
            names.iter().zip(nodes.items).filter(|(name, _)| kept.contains(name.as_str())).map(|(_, item)| item);
        NodeList { items: items.collect() }
    });
    result.node_names = Some(fit);
    Ok(refused)
}

/// Whole nodes that are offered and are not of this cluster, as they would be: an autoscaler's templates.
async fn templates(extender: &Extender, offered: Option<&NodeList>) -> Vec<Node> {
    let Some(offered) = offered else { return Vec::new() };
    let names = offered.names();
    let nodes = names.clone();
    let strangers = extender.ask(|reply| Question::Strangers { nodes, reply }).await.unwrap_or_default();
    let strangers: HashSet<&str> = strangers.iter().map(String::as_str).collect();
    let items = names.iter().zip(&offered.items).filter(|(name, _)| strangers.contains(name.as_str()));
    let read = |item: &RawValue| serde_json::from_str::<wire::Node>(item.get()).ok();
    items.filter_map(|(_, item)| read(item)).map(|node| convert::node(node).0).collect()
}

pub(super) async fn prioritize(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let args = match FilterArgs::parse(&body) {
        Ok(args) => args,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not ExtenderArgs: {error}\n")).into_response(),
    };
    let names = args.node_names.unwrap_or_else(|| args.nodes.map(|nodes| nodes.names()).unwrap_or_default());
    let pod = Box::new(extender.reader.read(args.pod));
    let scores = extender.ask(|reply| Question::Prioritize { pod, nodes: names.clone(), reply }).await;
    let Some(scores) = scores else { return (StatusCode::SERVICE_UNAVAILABLE, ENDING).into_response() };
    let priorities: Vec<HostPriority> = names
        .into_iter()
        .zip(scores)
        .map(|(host, score)| HostPriority { host, score: score.clamp(0, MAX_SCORE) })
        .collect();
    Json(priorities).into_response()
}

pub(super) async fn preempt(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let args = match PreemptArgs::parse(&body) {
        Ok(args) => args,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, format!("not ExtenderPreemptionArgs: {error}\n")).into_response();
        }
    };
    let mut nodes: BTreeMap<String, (Vec<PodUid>, i64)> = BTreeMap::new();
    for (node, victims) in args.victims {
        let pods = victims.pods.unwrap_or_default().into_iter().map(|p| PodUid::from(p.metadata.uid)).collect();
        nodes.insert(node, (pods, victims.pdb_violations));
    }
    for (node, victims) in args.meta_victims {
        nodes.insert(node, (victims.pods.into_iter().map(|p| PodUid::from(p.uid)).collect(), victims.pdb_violations));
    }
    let violations: BTreeMap<String, i64> = nodes.iter().map(|(node, (_, n))| (node.clone(), *n)).collect();
    let asked = nodes.into_iter().map(|(node, (pods, _))| (node, pods)).collect();
    let pod = Box::new(extender.reader.read(args.pod));
    let answer = extender.ask(|reply| Question::Preempt { pod, nodes: asked, reply }).await;
    let Some(answer) = answer else { return (StatusCode::SERVICE_UNAVAILABLE, ENDING).into_response() };
    let mut result = PreemptResult::default();
    for (node, victims) in answer {
        let pods = victims.into_iter().map(|uid| MetaPodOut { uid: uid.to_string() }).collect();
        let pdb_violations = violations.get(&node).copied().unwrap_or(0);
        result.node_name_to_meta_victims.insert(node, MetaVictimsOut { pods, pdb_violations });
    }
    Json(result).into_response()
}

pub(super) async fn bind(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let error = bind_with(&extender, &body).await.err().unwrap_or_default();
    Json(BindResult { error }).into_response()
}

/// Binds, or hands the request on to whoever leads.
pub(super) async fn bind_with(extender: &Extender, body: &[u8]) -> Result<(), String> {
    let standing = extender.standing.borrow().clone();
    if let Standing::Following(leader) = standing {
        return forward::bind(leader.as_deref(), body, extender.manner.mutual.as_ref()).await;
    }
    let args = BindArgs::parse(body).map_err(|error| format!("not ExtenderBindingArgs: {error}"))?;
    let key = PodKey::new(args.pod_namespace, args.pod_name.as_str());
    let (uid, node) = (PodUid::from(args.pod_uid), args.node);
    let bound = extender.ask(|reply| Question::Bind { uid, key, node, reply }).await;
    bound.unwrap_or_else(|| Err(ENDING.to_owned()))
}

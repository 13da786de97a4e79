//! The kubelets of simulated nodes: as much of one as the control plane can see.

use std::collections::BTreeSet;
use std::time::Duration;

use divvy_api::wire;
use divvy_cluster::watch::{Seen, follow};
use divvy_cluster::{Failure, apply, delete, patch};
use divvy_core::keys;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::make::ready;

/// How often nodes say that they are alive. The node controller gives them 40 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Requests under way at once.
const AT_ONCE: usize = 16;

enum News {
    Node(String),
    NodeGone(String),
    Pod(Box<wire::Pod>),
}

/// Plays the kubelets of all simulated nodes until stopped.
pub(super) async fn keep(client: Client) -> anyhow::Result<()> {
    let (to, mut news) = mpsc::channel(1024);
    let (_never, relist) = watch::channel(0);
    let nodes = follow(client.clone(), to.clone(), relist.clone(), |seen: Seen<wire::Node>| match seen {
        Seen::Applied(node) if node.metadata.labels.contains_key(keys::SIMULATED) => {
            Some(News::Node(node.metadata.name))
        }
        Seen::Gone(gone) => Some(News::NodeGone(gone.name)),
        _ => None,
    });
    let pods = follow(client.clone(), to, relist, |seen: Seen<wire::Pod>| match seen {
        Seen::Applied(pod) if !pod.spec.node_name.is_empty() => Some(News::Pod(Box::new(pod))),
        _ => None,
    });
    let work = async {
        let mut ours: BTreeSet<String> = BTreeSet::new();
        let mut early: Vec<Box<wire::Pod>> = Vec::new();
        let mut tasks: JoinSet<()> = JoinSet::new();
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                Some(news) = news.recv() => match news {
                    News::Node(name) => {
                        if ours.insert(name.clone()) {
                            for pod in early.extract_if(.., |pod| pod.spec.node_name == name) {
                                tasks.spawn(serve(client.clone(), pod));
                            }
                        }
                    }
                    News::NodeGone(name) => { ours.remove(&name); }
                    News::Pod(pod) if ours.contains(&pod.spec.node_name) => { tasks.spawn(serve(client.clone(), pod)); }
                    News::Pod(pod) => early.push(pod),
                },
                _ = beat.tick() => {
                    early.clear();
                    for name in &ours {
                        tasks.spawn(heartbeat(client.clone(), name.clone()));
                    }
                }
            }
            while tasks.len() >= AT_ONCE {
                tasks.join_next().await;
            }
            while tasks.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = nodes => {}
        () = pods => {}
        () = work => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

/// Does for a pod what a kubelet would: starts it, or lets it go.
async fn serve(client: Client, pod: Box<wire::Pod>) {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.metadata.namespace, pod.metadata.name);
    let outcome = if pod.metadata.deletion_timestamp.is_some() {
        delete(&client, &format!("{path}?gracePeriodSeconds=0")).await
    } else if pod.status.phase == "Pending" {
        start(&client, &path, &pod).await
    } else {
        Ok(())
    };
    match outcome {
        Ok(()) | Err(Failure::Gone | Failure::Conflict { .. }) => {}
        Err(failure) => tracing::warn!(pod = path, %failure, "the simulated kubelet failed"),
    }
}

async fn start(client: &Client, path: &str, pod: &wire::Pod) -> Result<(), Failure> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let statuses: Vec<_> = pod
        .spec
        .containers
        .iter()
        .map(|c| {
            json!({"name": c.name, "ready": true, "started": true, "restartCount": 0, "image": "", "imageID": "",
                   "state": {"running": {"startedAt": now}}})
        })
        .collect();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let body = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Running",
            "startTime": now,
            "conditions": [condition("Initialized"), condition("ContainersReady"), condition("Ready")],
            "containerStatuses": statuses,
        },
    });
    patch::<IgnoredAny>(client, &format!("{path}/status"), &body).await?;
    Ok(())
}

async fn heartbeat(client: Client, name: String) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
    });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    let alive = apply(&client, &path, "divvy-simnode", &lease).await;
    // A node controller that was without heartbeats for a while took the condition away.
    let status = json!({"status": {"conditions": [ready()]}});
    let told = patch::<IgnoredAny>(&client, &format!("/api/v1/nodes/{name}/status"), &status).await;
    if let Err(failure) = alive.and(told.map(|_| ())) {
        tracing::warn!(node = name, %failure, "no heartbeat");
    }
}

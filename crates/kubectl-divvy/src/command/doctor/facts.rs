//! What the checks look at, as the API server tells it.

use std::collections::BTreeMap;

use divvy_cluster::Failure;
use divvy_core::keys;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::list_or_none;

/// What the checks look at, besides what the scheduler is told.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    /// The API server's version (`v1.36.3`).
    pub(crate) server: String,
    /// Nodes.
    pub(crate) nodes: BTreeMap<String, NodeFacts>,
    /// DaemonSets that may own devices: name to images.
    pub(crate) daemon_sets: BTreeMap<String, Vec<String>>,
    /// DeviceClasses that stand for extended resources: name to resource.
    pub(crate) device_classes: BTreeMap<String, String>,
    /// What became of a pod that was only tried.
    pub(crate) admission: Admission,
    /// Is the policy that keeps others from writing grants there?
    pub(crate) grants_guarded: Option<bool>,
    /// Who leads, and how many seconds ago that was renewed.
    pub(crate) leader: Option<(String, i64)>,
    /// The GpuPolicy's `Followed` condition where it is not true.
    pub(crate) policy_problem: Option<String>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeFacts {
    /// Its kubelet's version.
    pub(crate) kubelet: String,
    /// Its container runtime, with version.
    pub(crate) runtime: String,
    /// `linux/amd64`.
    pub(crate) platform: String,
    /// How many of our slots its kubelet counts.
    pub(crate) slots: u64,
    /// How far its clock is ahead of the API server's, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_ahead: Option<i64>,
    /// The vendor's label that says it has GPUs.
    pub(crate) says_gpu: bool,
}

/// What became of a pod with a fraction that was sent to the API server as a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Admission {
    /// It was not tried.
    #[default]
    Untried,
    /// It came back with a normalized ask.
    Answers,
    /// It came back as it went.
    Silent,
    /// The API server could not reach or believe the webhook.
    Fails(String),
    /// We may not create pods there.
    Forbidden,
}

impl Facts {
    /// What node objects say.
    fn of_nodes(nodes: &[Value]) -> BTreeMap<String, NodeFacts> {
        let of = |node: &Value| {
            let info = &node["status"]["nodeInfo"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let slots = node["status"]["allocatable"][keys::SLOT].as_str().and_then(|n| n.parse().ok());
            let labels = node["metadata"]["labels"].as_object();
            NodeFacts {
                kubelet: text(&info["kubeletVersion"]),
                runtime: text(&info["containerRuntimeVersion"]),
                platform: format!("{}/{}", text(&info["operatingSystem"]), text(&info["architecture"])),
                slots: slots.unwrap_or(0),
                clock_ahead: None,
                says_gpu: labels.is_some_and(|l| {
                    keys::VENDOR_GPU_LABELS.iter().any(|key| l.get(*key).is_some_and(|v| v == "true"))
                }),
            }
        };
        let named = |node: &Value| Some((node["metadata"]["name"].as_str()?.to_owned(), of(node)));
        nodes.iter().filter_map(named).collect()
    }

    /// Everything else.
    pub(crate) async fn of_cluster(client: &Client) -> anyhow::Result<Facts> {
        let version: Value = divvy_cluster::get(client, "/version").await?;
        let mut facts = Facts {
            server: version["gitVersion"].as_str().unwrap_or_default().to_owned(),
            admission: try_admission(client).await,
            ..Facts::default()
        };
        let nodes: Vec<Value> = list_or_none(client, "/api/v1/nodes").await?;
        facts.nodes = Facts::of_nodes(&nodes);
        let leases: Vec<Value> =
            list_or_none(client, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await?;
        for lease in &leases {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(node) = facts.nodes.get_mut(name) {
                node.clock_ahead = clock_ahead(lease);
            }
        }
        for set in list_or_none::<Value>(client, "/apis/apps/v1/daemonsets").await? {
            let images =
                set["spec"]["template"]["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let images: Vec<String> = images.iter().filter_map(|c| c["image"].as_str().map(str::to_owned)).collect();
            let meta = &set["metadata"];
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            facts.daemon_sets.insert(format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])), images);
        }
        for class in list_or_none::<Value>(client, "/apis/resource.k8s.io/v1/deviceclasses").await? {
            let resource = class["spec"]["extendedResourceName"].as_str();
            if let Some((name, resource)) = class["metadata"]["name"].as_str().zip(resource) {
                facts.device_classes.insert(name.to_owned(), resource.to_owned());
            }
        }
        facts.grants_guarded = guarded(client).await;
        facts.leader = leader(client).await;
        let policy: Option<Value> = divvy_cluster::get(client, &format!("{}/default", keys::POLICY_PATH)).await.ok();
        facts.policy_problem = policy.as_ref().and_then(not_followed);
        Ok(facts)
    }
}

/// How far the clock of a node is ahead: its kubelet writes its own time into its lease, and the API server notes beside it when that
/// came in.
fn clock_ahead(lease: &Value) -> Option<i64> {
    let written: jiff::Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
    let entries = lease["metadata"]["managedFields"].as_array()?;
    let came = entries.iter().filter_map(|e| e["time"].as_str()?.parse::<jiff::Timestamp>().ok()).max()?;
    Some(written.as_millisecond() - came.as_millisecond())
}

/// Sends a pod with a fraction as a dry run: the API server asks the webhooks, and stores nothing.
async fn try_admission(client: &Client) -> Admission {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "divvy-doctor"},
        "spec": {"containers": [{"name": "c", "image": "none", "resources": {"limits": {(keys::GPU_SHARE): "100"}}}]},
    });
    match divvy_cluster::post::<Value>(client, "/api/v1/namespaces/default/pods?dryRun=All", &pod).await {
        Ok(pod) if pod["metadata"]["annotations"][keys::ASK].is_string() => Admission::Answers,
        Ok(_) | Err(Failure::Conflict { .. }) => Admission::Silent,
        Err(Failure::Refused { code: 401 | 403, message }) if !message.contains("webhook") => Admission::Forbidden,
        Err(failure) => Admission::Fails(failure.to_string()),
    }
}

async fn guarded(client: &Client) -> Option<bool> {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/divvy-grants";
    match divvy_cluster::get::<Value>(client, path).await {
        Ok(_) => Some(true),
        Err(Failure::Gone) => Some(false),
        Err(_) => None,
    }
}

async fn leader(client: &Client) -> Option<(String, i64)> {
    let leases: Vec<Value> = list_or_none(client, "/apis/coordination.k8s.io/v1/leases").await.ok()?;
    let ours = leases.iter().filter(|l| l["metadata"]["name"] == keys::SCHEDULER);
    let of = |lease: &Value| {
        let who = lease["spec"]["holderIdentity"].as_str().filter(|who| !who.is_empty())?;
        let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
        Some((who.to_owned(), jiff::Timestamp::now().as_second() - renewed.as_second()))
    };
    ours.filter_map(of).min_by_key(|(_, age)| *age)
}

fn not_followed(policy: &Value) -> Option<String> {
    let conditions = policy["status"]["conditions"].as_array()?;
    let followed = conditions.iter().find(|c| c["type"] == "Followed" && c["status"] == "False")?;
    Some(followed["message"].as_str().unwrap_or("no reason is given").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_off_a_lease() {
        let lease = |renewed: &str| {
            json!({"spec": {"renewTime": renewed}, "metadata": {"managedFields": [
                {"time": "2026-11-16T10:00:00Z"}, {"time": "2026-11-16T12:00:00Z"}]}})
        };
        assert_eq!(clock_ahead(&lease("2026-11-16T12:00:42.000000Z")), Some(42_000));
        assert_eq!(clock_ahead(&lease("2026-11-16T11:59:30.000000Z")), Some(-30_000));
        assert_eq!(clock_ahead(&json!({})), None);
    }
}

//! A running cluster, read once: list after list, no watches.

use divvy_api::budget::{GpuQuotaSpec, read_quota};
use divvy_api::convert;
use divvy_api::policy::{ClusterPolicy, GpuPolicySpec, NAME};
use divvy_api::reader::PodReader;
use divvy_api::wire::{self, Watched};
use divvy_cluster::Failure;
use divvy_cluster::watch::{escaped, selectors};
use divvy_core::id::Namespace;
use divvy_core::keys;
use divvy_core::quota::Quotas;
use divvy_core::snapshot::{Record, Surroundings};
use divvy_core::time::Time;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{File, NodeNote};

/// Everything of a kind that these selectors leave, page by page.
async fn list<T: DeserializeOwned>(client: &Client, path: &str, selectors: &str) -> Result<Vec<T>, Failure> {
    #[derive(Deserialize)]
    struct Page<T> {
        #[serde(default)]
        metadata: Meta,
        #[serde(default = "Vec::new")]
        items: Vec<T>,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(rename = "continue", default)]
        next: String,
    }
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let mut page = format!("{path}?limit=500{selectors}");
        if !next.is_empty() {
            page.push_str(&format!("&continue={}", escaped(&next)));
        }
        let Page { metadata, items } = divvy_cluster::get::<Page<T>>(client, &page).await?;
        all.extend(items);
        if metadata.next.is_empty() {
            return Ok(all);
        }
        next = metadata.next;
    }
}

/// Everything of a kind that may not exist here, or that we may not see: then none, and a note.
pub(crate) async fn list_or_none<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Vec<T>, Failure> {
    if_any(list(client, path, "").await)
}

async fn all<T: Watched>(client: &Client) -> Result<Vec<T>, Failure> {
    if_any(list(client, T::PATH, &selectors::<T>()).await)
}

fn if_any<T>(listed: Result<Vec<T>, Failure>) -> Result<Vec<T>, Failure> {
    match listed {
        Err(Failure::Gone) => Ok(Vec::new()),
        Err(Failure::Refused { code: 401 | 403, message }) => {
            anstream::eprintln!("note: left out of the answer: {message}");
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// The cluster as it is now.
pub(crate) async fn gather(client: &Client) -> anyhow::Result<File> {
    let policies: Vec<wire::PolicyObject> = all(client).await?;
    let policy = policies.into_iter().find(|p| p.metadata.name == NAME).map_or_else(GpuPolicySpec::default, |p| p.spec);
    let reader = PodReader::default();
    let dialects = ClusterPolicy::read(&policy).map(|p| p.dialects).unwrap_or_default();
    reader.set(dialects.clone());
    let mut file = File { v: File::VERSION, taken_at: now(), policy, ..File::default() };
    let raw_nodes: Vec<Value> = list(client, wire::Node::PATH, "").await?;
    let limits: Vec<wire::CsiNode> = all(client).await?;
    let mut record = Record { v: Record::VERSION, ..Record::default() };
    for raw in &raw_nodes {
        let wire: wire::Node = serde_json::from_value(raw.clone())?;
        let (mut node, problem) = convert::node(wire);
        if let Some(csi) = limits.iter().find(|csi| csi.metadata.name == node.name.as_str()) {
            node.volume_limits = convert::volume_limits(csi);
        }
        let address = address(raw);
        if address.is_some() || problem.is_some() {
            let note = NodeNote { address, problem: problem.map(|p| p.to_string()) };
            file.nodes.insert(node.name.clone(), note);
        }
        record.nodes.push(node);
    }
    for pod in list::<wire::Pod>(client, wire::Pod::PATH, &selectors::<wire::Pod>()).await? {
        let seen = reader.read(pod);
        let ours = seen.scheduler == keys::SCHEDULER || dialects.is_our_scheduler(&seen.scheduler);
        // As the scheduler does: what others place, and what is about to go without ever having had a node, is not ours.
        if seen.pod.bound().is_some() || (!seen.deleting && (ours || seen.pod.ask.is_some())) {
            record.pods.push(seen.pod);
        }
    }
    record.surroundings = surroundings(client).await?;
    file.cluster = record;
    for path in [keys::BUDGETS_PATH, keys::CLUSTER_BUDGETS_PATH] {
        file.budgets.extend(list_or_none::<Value>(client, path).await?.into_iter().map(without_noise));
    }
    file.quotas = list_or_none::<Value>(client, keys::QUOTAS_PATH).await?.into_iter().map(without_noise).collect();
    file.cluster.surroundings.quotas = quotas(&file.quotas);
    Ok(file)
}

async fn surroundings(client: &Client) -> Result<Surroundings, Failure> {
    let drivers: Vec<wire::CsiDriverObject> = all(client).await?;
    let tracks = |name: &str| drivers.iter().any(|d| d.metadata.name == name && d.spec.storage_capacity);
    let mut around = Surroundings::default();
    for object in all::<wire::NamespaceObject>(client).await? {
        let labels = object.metadata.labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        around.namespaces.insert(Namespace::from(object.metadata.name), labels);
    }
    for claim in all::<wire::Claim>(client).await? {
        let claim = convert::claim(claim);
        around.claims.insert(claim.key.clone(), claim);
    }
    for volume in all::<wire::PersistentVolume>(client).await? {
        let volume = convert::volume(volume);
        around.volumes.insert(volume.name.clone(), volume);
    }
    for class in all::<wire::StorageClass>(client).await? {
        let mut class = convert::storage_class(class, false);
        class.tracks_capacity = class.provisioner.as_ref().is_some_and(|driver| tracks(driver));
        around.classes.insert(class.name.clone(), class);
    }
    for pod in all::<wire::FinishedPod>(client).await? {
        around.finished.put(&convert::pod(pod.0, |_| false).pod);
    }
    around.capacities = all::<wire::StorageCapacity>(client).await?.into_iter().map(convert::capacity).collect();
    around.budgets = all::<wire::DisruptionBudget>(client).await?.into_iter().map(convert::budget).collect();
    Ok(around)
}

/// What the quotas say that can be followed, as the scheduler has it.
fn quotas(objects: &[Value]) -> Quotas {
    let mut quotas = Quotas::default();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let spec = GpuQuotaSpec::deserialize(&object["spec"]).map_err(|e| vec![e.to_string()]);
        if let Ok(quota) = spec.and_then(|spec| read_quota(name, &spec)) {
            quotas.0.entry(Namespace::from(namespace)).or_default().push(quota);
        }
    }
    quotas
}

/// A node's internal address.
fn address(node: &Value) -> Option<String> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|a| a["type"] == "InternalIP")?;
    internal["address"].as_str().map(str::to_owned)
}

/// An object without what only programs read.
fn without_noise(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
        if let Some(notes) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.remove(keys::LAST_APPLIED);
        }
    }
    object
}

/// The time.
pub(crate) fn now() -> Time {
    Time(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0))
}

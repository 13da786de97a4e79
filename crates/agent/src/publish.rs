//! Writes the inventory to the node object, whenever it differs from what stands there, and with it what the emulated systems' tools
//! read there ([`emulated`]); and follows that object: people cordon devices by an annotation, and a restarted kubelet forgets extended
//! resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use divvy_core::budget::Cut;
use divvy_core::device::Inventory;
use divvy_core::id::DeviceId;
use divvy_core::keys;
use divvy_service::Stop;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use crate::farewell;
use crate::inventory::Facts;
use crate::node::Node;
use crate::ops::Reach;

pub mod emulated;

use emulated::Shown;

/// Several changes at once become one write.
const GATHER: Duration = Duration::from_millis(100);
/// After a failed write.
const RETRY: Duration = Duration::from_secs(2);

/// What we read of our node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Devices taken out of service by a person.
    pub cordoned: BTreeSet<DeviceId>,
    /// How far the journal has been stored elsewhere.
    pub cut: Option<Cut>,
    /// The node's address in the cluster.
    pub address: Option<String>,
    /// Where the agent is said to answer.
    pub agent: Option<String>,
    /// The inventory annotation as it stands.
    pub inventory: Option<String>,
    /// What the emulated systems' tools read, as it stands.
    pub emulated: BTreeMap<&'static str, Shown>,
    /// Capacities as they stand.
    pub capacity: BTreeMap<String, String>,
}

impl NodeView {
    fn of(node: &NodeObject) -> NodeView {
        let annotations = node.metadata.annotations.as_ref();
        let read = |key: &str| annotations.and_then(|a| a.get(key));
        let cordoned = [keys::CORDON, keys::HAMI_CORDON]
            .iter()
            .filter_map(|key| read(key))
            .flat_map(|list| list.split(',').map(str::trim).filter(|id| !id.is_empty()).map(DeviceId::from))
            .collect();
        let capacity = node.status.as_ref().and_then(|s| s.capacity.as_ref());
        let addresses = node.status.iter().map(|s| s.addresses.iter().flatten());
        NodeView {
            cordoned,
            cut: read(keys::JOURNAL_CUT).and_then(|text| serde_json::from_str(text).ok()),
            address: addresses.flatten().find(|a| a.type_ == "InternalIP").map(|a| a.address.clone()),
            agent: read(keys::AGENT).cloned(),
            inventory: read(keys::INVENTORY).cloned(),
            emulated: emulated::standing(node),
            capacity: capacity.into_iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect(),
        }
    }
}

/// Follows the node object into `view`.
pub async fn follow(
    client: Client,
    name: String,
    view: watch::Sender<Option<NodeView>>,
    stop: Stop,
) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut nodes = watcher(Api::<NodeObject>::all(client), config).default_backoff().applied_objects().boxed();
    loop {
        let node = tokio::select! {
            node = nodes.try_next() => node,
            () = stop.requested() => return Ok(()),
        };
        match node {
            Ok(Some(node)) => {
                let fresh = NodeView::of(&node);
                view.send_if_modified(|old| {
                    let changed = old.as_ref() != Some(&fresh);
                    *old = Some(fresh);
                    changed
                });
            }
            Ok(None) => anyhow::bail!("the watch of this node's object ended"),
            Err(error) => tracing::warn!(%error, "cannot hear of this node's object; trying again"),
        }
    }
}

/// Writes whenever something differs.
pub async fn publish(
    client: Client,
    name: String,
    node: Arc<Node>,
    reach: Reach,
    mut view: watch::Receiver<Option<NodeView>>,
    stop: Stop,
) -> anyhow::Result<()> {
    let api: Api<NodeObject> = Api::all(client);
    let mut changes = node.changes();
    loop {
        let wait = match write_once(&api, &name, &node, &reach, &view).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "cannot write this node's inventory; trying again");
                Some(RETRY)
            }
        };
        let something_new = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => {
                    tokio::select! {
                        changed = changes.changed() => changed.is_ok(),
                        changed = view.changed() => changed.is_ok(),
                    };
                }
            }
            tokio::time::sleep(GATHER).await;
        };
        tokio::select! {
            () = something_new => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

async fn write_once(
    api: &Api<NodeObject>,
    name: &str,
    node: &Node,
    reach: &Reach,
    view: &watch::Receiver<Option<NodeView>>,
) -> Result<(), kube::Error> {
    let Some(stands) = view.borrow().clone() else { return Ok(()) };
    // Whoever has the address after this agent is not asked for its journal.
    let address = if node.is_leaving() { None } else { reach.address(stands.address.as_deref()) };
    let is_news = if node.is_leaving() { stands.agent.is_some() } else { address.is_some() && stands.agent != address };
    if is_news {
        let patch = json!({"metadata": {"annotations": {keys::AGENT: address}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    if !node.is_explored() || !node.has_offer() {
        return Ok(());
    }
    let (devices, driver) = (farewell::offered(node), node.driver());
    let (refused, evict, foreign) = (node.refused(), node.evict(), node.foreign());
    let style = node.style;
    let facts = Facts {
        devices: &devices,
        driver: &driver,
        memory_unit: style.memory_unit,
        refused: &refused,
        evict: &evict,
        foreign: &foreign,
    };
    let taken = node.taken();
    let inventory = next(&facts, stands.inventory.as_deref());
    let mut annotations = emulated::changes(&facts.annotations(name, style), &stands.emulated, &taken);
    let is_news = inventory.is_some();
    annotations.extend(inventory.map(|text| (keys::INVENTORY, Some(text))));
    if !annotations.is_empty() {
        let patch = json!({"metadata": {"annotations": annotations}});
        // Under a name of ours: it tells a restarted agent which of them are its own.
        let params = PatchParams { field_manager: Some(emulated::WRITER.into()), ..PatchParams::default() };
        api.patch(name, &params, &Patch::Merge(patch)).await?;
    }
    if is_news {
        tracing::info!(devices = devices.len(), refused = refused.len(), "inventory written");
    }
    if node.is_leaving() {
        // What the kubelet judges arrivals by stays as it is.
        return Ok(());
    }
    let missing: BTreeMap<String, String> = facts
        .capacity(name, style)
        .into_iter()
        .filter(|(k, _)| !taken.contains(k))
        .map(|(k, v)| (k, v.to_string()))
        .filter(|(k, v)| stands.capacity.get(k).is_none_or(|found| amount(found) != amount(v)))
        .collect();
    if !missing.is_empty() {
        let patch = json!({"status": {"capacity": missing}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// The annotation to write, if what stands there says something else. The generation grows from what stands there.
fn next(facts: &Facts<'_>, stands: Option<&str>) -> Option<String> {
    let before: Option<Inventory> = stands.and_then(|text| serde_json::from_str(text).ok());
    let generation = before.as_ref().map_or(0, |i| i.generation);
    if before.is_some_and(|before| before == facts.inventory(generation)) {
        return None;
    }
    serde_json::to_string(&facts.inventory(generation + 1)).ok()
}

/// The API server writes `85899345920` as `80Gi`: amounts are compared, not texts.
fn amount(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("", 1),
    ];
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use divvy_api::policy::Offer;
    use divvy_core::device::{Device, MemoryUnit};
    use divvy_core::units::{Bytes, Share};

    use std::convert::Infallible;
    use std::sync::Mutex;

    use kube::client::Body;
    use serde_json::Value;

    use super::*;
    use crate::inventory::Advertise;
    use crate::testing;

    /// What was patched, and under which address.
    type Heard = Arc<Mutex<Vec<(String, Value)>>>;

    /// An API server that notes what it is told.
    fn recorder() -> (Api<NodeObject>, Heard) {
        let heard = Heard::default();
        let notes = heard.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let notes = notes.clone();
            async move {
                let address = request.uri().to_string();
                let body = request.into_body().collect_bytes().await.unwrap();
                notes.lock().unwrap().push((address, serde_json::from_slice(&body).unwrap()));
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
                Ok::<_, Infallible>(http::Response::new(Body::from(node.to_string().into_bytes())))
            }
        });
        (Api::all(Client::new(service, "default")), heard)
    }

    #[tokio::test]
    async fn fp_11_fp_18_registers_come_to_the_node_with_the_inventory_and_go_when_only_our_own_names_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mut node = testing::node(folder.path());
        node.set_devices(vec![vec![Device::gpu("G0", 0, "T4", Bytes::mib(16384))]], "1".into());
        node.set_offer(Offer { memory: Share(1800), ..Offer::default() });
        Arc::get_mut(&mut node).unwrap().style.advertise = Advertise::All;
        let reach = Reach { listens: "0.0.0.0:0".parse().unwrap(), host: None };
        let (api, heard) = recorder();
        let (to, view) = watch::channel(Some(NodeView::default()));
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        let (address, patch) = heard.lock().unwrap().remove(0);
        assert_eq!(address, "/api/v1/nodes/n?&fieldManager=divvy-agent");
        let written = &patch["metadata"]["annotations"];
        assert_eq!(written[keys::VGPU_NODE_REGISTER], "G0,10,29491,100,NVIDIA-T4,0,true:");
        for key in [keys::INVENTORY, keys::HAMI_NODE_REGISTER, keys::KUBEGPU_DEVICE_INFO] {
            assert!(written[key].is_string(), "{key} is missing in {written}");
        }

        let note = json!({"manager": "divvy-agent", "fieldsV1": {"f:metadata": {"f:annotations":
            written.as_object().unwrap().keys().map(|key| (format!("f:{key}"), json!({}))).collect::<Value>()}}});
        let object: NodeObject =
            serde_json::from_value(json!({"metadata": {"annotations": written, "managedFields": [note]}})).unwrap();
        to.send_replace(Some(NodeView::of(&object)));
        heard.lock().unwrap().clear();
        Arc::get_mut(&mut node).unwrap().style.advertise = Advertise::Native;
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        let (_, patch) = heard.lock().unwrap().remove(0);
        let gone = [keys::VGPU_NODE_REGISTER, keys::HAMI_NODE_REGISTER, keys::KUBEGPU_DEVICE_INFO];
        assert_eq!(patch["metadata"]["annotations"], gone.map(|key| (key, Value::Null)).into_iter().collect::<Value>());
    }

    #[tokio::test]
    async fn an_agent_that_leaves_takes_its_address_back() {
        let folder = tempfile::tempdir().unwrap();
        let node = testing::node(folder.path());
        let reach = Reach { listens: "10.0.0.7:9411".parse().unwrap(), host: None };
        let (api, heard) = recorder();
        let said = |heard: &Heard| {
            let patches = std::mem::take(&mut *heard.lock().unwrap());
            let of = |(_, patch): (String, Value)| patch["metadata"]["annotations"].get(keys::AGENT).cloned();
            patches.into_iter().filter_map(of).collect::<Vec<_>>()
        };
        let (to, view) = watch::channel(Some(NodeView::default()));
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        assert_eq!(said(&heard), [json!("10.0.0.7:9411")]);
        to.send_replace(Some(NodeView { agent: Some("10.0.0.7:9411".into()), ..NodeView::default() }));
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        assert_eq!(said(&heard), Vec::<Value>::new(), "it stands there");
        node.leave();
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        assert_eq!(said(&heard), [Value::Null]);
        to.send_replace(Some(NodeView::default()));
        write_once(&api, "n", &node, &reach, &view).await.unwrap();
        assert_eq!(said(&heard), Vec::<Value>::new(), "once");
    }

    #[test]
    fn the_annotation_is_written_when_it_differs_and_its_generation_grows() {
        let devices = [Device::gpu("G0", 0, "T4", Bytes::gib(16))];
        let (pods, foreign) = (BTreeMap::new(), BTreeMap::new());
        let facts = Facts {
            devices: &devices,
            driver: "1",
            memory_unit: MemoryUnit::GiB,
            refused: &pods,
            evict: &pods,
            foreign: &foreign,
        };
        let first = next(&facts, None).unwrap();
        assert_eq!(next(&facts, Some(&first)), None);
        let other = Facts { driver: "2", ..facts };
        let second: Inventory = serde_json::from_str(&next(&other, Some(&first)).unwrap()).unwrap();
        assert_eq!((second.generation, second.driver.as_str()), (2, "2"));
        assert!(next(&other, Some("garbage")).is_some());
    }

    #[test]
    fn quantities_are_compared_as_amounts() {
        for (text, expected) in
            [("80Gi", Some(80 << 30)), ("16", Some(16)), ("2k", Some(2000)), ("x", None), ("", None)]
        {
            assert_eq!(amount(text), expected, "{text}");
        }
    }

    #[test]
    fn hm_13_devices_are_cordoned_by_our_annotation_and_by_hamis() {
        let node: NodeObject = serde_json::from_value(json!({"metadata": {"annotations": {
            keys::CORDON: "G0, G1", keys::HAMI_CORDON: "G2"}}}))
        .unwrap();
        assert_eq!(NodeView::of(&node).cordoned, ["G0", "G1", "G2"].map(DeviceId::from).into());
    }
}

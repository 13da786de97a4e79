//! Making and removing simulated nodes.

use divvy_cluster::{Failure, patch, post};
use divvy_core::device::{Device, Inventory, Isolation, Link};
use divvy_core::keys;
use divvy_core::units::Bytes;
use futures::StreamExt;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Requests under way at once.
const AT_ONCE: usize = 8;
/// Slots per device: how many containers the simulated kubelet could start on it.
const SLOTS: u32 = 16;

/// What the nodes are like.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Shape {
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// Start of their names
    #[arg(long, default_value = "sim")]
    prefix: String,
    /// GPUs per node
    #[arg(long, default_value_t = 8)]
    gpus: u32,
    /// Their model, spaces turned into dashes
    #[arg(long, default_value = "NVIDIA-H200")]
    model: String,
    /// Memory of each, in MiB
    #[arg(long, default_value_t = 143_771)]
    memory_mib: u64,
    /// Cores per node
    #[arg(long, default_value_t = 128)]
    cpus: u32,
    /// Memory per node, in GiB
    #[arg(long, default_value_t = 1024)]
    node_memory_gib: u32,
    /// Most pods per node
    #[arg(long, default_value_t = 250)]
    pods: u32,
    /// Zones they are spread over (topology.kubernetes.io/zone: zone-0, zone-1, ...)
    #[arg(long, default_value_t = 1)]
    zones: u32,
}

/// Makes the nodes; those that exist are left as they are.
pub(crate) async fn create(client: &Client, shape: &Shape) -> anyhow::Result<()> {
    let numbers = futures::stream::iter(0..shape.nodes);
    let mut made = numbers.map(|n| create_one(client, shape, n)).buffer_unordered(AT_ONCE);
    while let Some(outcome) = made.next().await {
        outcome?;
    }
    tracing::info!(nodes = shape.nodes, gpus = shape.gpus, model = shape.model, "simulated nodes are there");
    Ok(())
}

async fn create_one(client: &Client, shape: &Shape, number: u32) -> Result<(), Failure> {
    let name = format!("{}-{number}", shape.prefix);
    match post::<IgnoredAny>(client, "/api/v1/nodes", &node(shape, &name, number)).await {
        Ok(_) | Err(Failure::Conflict { .. }) => {}
        Err(failure) => return Err(failure),
    }
    // Admission taints every new node as not ready, and only a node controller that sees heartbeats takes that back.
    patch::<IgnoredAny>(client, &format!("/api/v1/nodes/{name}"), &json!({"spec": {"taints": null}})).await?;
    Ok(())
}

fn node(shape: &Shape, name: &str, number: u32) -> Value {
    let amounts = json!({
        "cpu": shape.cpus.to_string(),
        "memory": format!("{}Gi", shape.node_memory_gib),
        "ephemeral-storage": "1Ti",
        "pods": shape.pods.to_string(),
        (keys::SLOT): (shape.gpus * SLOTS).to_string(),
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                (keys::SIMULATED): "true",
                (keys::NODE_OPT_IN): "true",
                (keys::HOSTNAME): name,
                (keys::ZONE): format!("zone-{}", number % shape.zones.max(1)),
            },
            "annotations": {(keys::INVENTORY): serde_json::to_string(&inventory(shape, name)).unwrap_or_default()},
        },
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready()]},
    })
}

/// The condition of a node that works.
pub(super) fn ready() -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready",
        "status": "True",
        "reason": "Simulated",
        "message": "a simulated node is always ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}

/// What an agent would write: GPUs that all see each other through NVSwitch, half of them on each socket.
fn inventory(shape: &Shape, name: &str) -> Inventory {
    let id = |index: u32| format!("GPU-{name}-{index}");
    let device = |index: u32| {
        let mut device = Device::gpu(id(index), index, shape.model.as_str(), Bytes::mib(shape.memory_mib));
        device.numa = Some(if index < shape.gpus.div_ceil(2) { 0 } else { 1 });
        device.links =
            (0..shape.gpus).filter(|other| *other != index).map(|other| (id(other).into(), Link::NvLink)).collect();
        device.isolation = vec![Isolation::Intercept];
        device
    };
    Inventory {
        v: Inventory::VERSION,
        generation: 1,
        devices: (0..shape.gpus).map(device).collect(),
        agent: "simulated".into(),
        ..Inventory::default()
    }
}

/// Removes all simulated nodes at once.
pub(crate) async fn delete(client: &Client) -> anyhow::Result<()> {
    divvy_cluster::delete(
        client,
        &format!("/api/v1/nodes?labelSelector={}%3Dtrue", keys::SIMULATED.replace('/', "%2F")),
    )
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::convert;

    #[test]
    fn a_simulated_node_is_read_as_an_agents_would_be() {
        let shape = Shape {
            nodes: 1,
            prefix: "sim".into(),
            gpus: 4,
            model: "NVIDIA-H200".into(),
            memory_mib: 1024,
            cpus: 8,
            node_memory_gib: 16,
            pods: 50,
            zones: 2,
        };
        let (node, problem) = convert::node(serde_json::from_value(node(&shape, "sim-3", 3)).unwrap());
        assert_eq!(problem, None);
        assert_eq!((node.inventory.devices.len(), node.max_pods, node.allocatable.other[keys::SLOT]), (4, 50, 64));
        assert_eq!(&*node.labels[keys::ZONE], "zone-1");
        assert_eq!(node.inventory.devices[0].links.len(), 3);
        assert!(!node.unready);
    }
}

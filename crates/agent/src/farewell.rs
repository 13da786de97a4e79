//! How an agent that was told to stop leaves: nobody is sent here any more, and those who are on their way are still let in. Without an
//! agent the kubelet has no slots, and a pod that it admits then has failed for good.

use std::sync::Arc;
use std::time::Duration;

use divvy_core::device::{Device, Health, Inventory};
use tokio::sync::watch;

use crate::node::Node;
use crate::publish::NodeView;

/// Why the devices of an agent that was told to stop take no new work.
const LEAVING: &str = "its agent was told to stop";
/// How long an agent that leaves tries to say so; without an API server nobody is sent here either.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long pods that were bound before are on their way to the kubelet.
const ARRIVAL: Duration = Duration::from_millis(500);

/// Says that the devices take no new work, and stays until everybody can know and those who were bound before have arrived.
pub async fn say(node: Arc<Node>, mut view: watch::Receiver<Option<NodeView>>) {
    if !node.is_explored() {
        return;
    }
    node.leave();
    let is_told = |v: &Option<NodeView>| v.as_ref().and_then(|v| v.inventory.as_deref()).is_some_and(tells_of_leaving);
    match tokio::time::timeout(FAREWELL, view.wait_for(is_told)).await.map(drop) {
        Ok(()) => tokio::time::sleep(ARRIVAL).await,
        Err(_) => {
            tracing::warn!("cannot say that this agent leaves: pods that are bound to this node meanwhile may fail")
        }
    }
}

fn tells_of_leaving(inventory: &str) -> bool {
    let inventory: Option<Inventory> = serde_json::from_str(inventory).ok();
    inventory.is_some_and(|inventory| inventory.devices.iter().all(|device| !device.is_open()))
}

/// The devices as they are offered: not by an agent that was told to stop.
pub fn offered(node: &Node) -> Vec<Device> {
    let mut devices = node.devices();
    if node.is_leaving() {
        for device in devices.iter_mut().filter(|device| device.is_open()) {
            device.health = Health::Unhealthy { reason: LEAVING.into() };
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use divvy_core::units::Bytes;

    use super::*;
    use crate::testing::node;

    #[tokio::test]
    async fn an_agent_that_was_told_to_stop_goes_when_everybody_can_read_that_its_devices_take_no_new_work() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let (view, _) = watch::channel(None);
        say(node.clone(), view.subscribe()).await;
        assert!(!node.is_leaving(), "who has offered nothing has nothing to take back");

        let mut sick = Device::gpu("G1", 1, "T4", Bytes::gib(16));
        sick.health = Health::Unhealthy { reason: "XID 79".into() };
        node.set_devices(vec![vec![Device::gpu("G0", 0, "T4", Bytes::gib(16)), sick]], "1".into());
        let inventory = |node: &Node| {
            let inventory = Inventory { devices: offered(node), ..Inventory::default() };
            NodeView { inventory: serde_json::to_string(&inventory).ok(), ..NodeView::default() }
        };
        view.send_replace(Some(inventory(&node)));
        let leaving = tokio::spawn(say(node.clone(), view.subscribe()));
        node.changes().wait_for(|_| node.is_leaving()).await.unwrap();
        assert!(!leaving.is_finished());
        view.send_replace(Some(inventory(&node)));
        leaving.await.unwrap();
        let reasons = offered(&node).into_iter().map(|device| match device.health {
            Health::Unhealthy { reason } => reason,
            Health::Healthy => "none".into(),
        });
        assert_eq!(reasons.collect::<Vec<_>>(), [LEAVING, "XID 79"]);
    }
}

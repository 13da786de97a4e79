//! Cards that somebody else gives out too are not offered, and both owners are named.

use divvy_core::keys;
use divvy_e2e::eventually;
use serde_json::{Value, json};

use super::health::{is_sick, wait_card, wait_event};
use super::kit::{CARDS, SOON, Site, pod, site, slice};

fn has_slots(node: &Value) -> bool {
    node["status"]["allocatable"][keys::SLOT].as_str().is_some_and(|slots| slots != "0")
}

/// The node is Divvy's alone again, and works.
fn ours_again(site: &Site, kubectl: &divvy_e2e::Kubectl) {
    for card in CARDS {
        wait_card(site, card, |card| !is_sick(card));
    }
    site.cluster.admin().wait("node", "node-0", SOON, has_slots).unwrap();
    kubectl
        .create(&pod("ours", &[("main", "main", vec![slice(CARDS[0], 1024, 100)], "sleep 3600")]).to_string())
        .unwrap();
    kubectl.wait_phase("ours", "Running", SOON).unwrap();
}

#[test]
fn cards_that_a_dra_driver_offers_too_are_not_offered_and_both_owners_are_named() {
    let mut site = site();
    let kubectl = site.namespace();
    let offer = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "other-owner"},
        "spec": {"driver": keys::NVIDIA_DRA, "nodeName": "node-0",
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]},
    });
    kubectl.create(&offer.to_string()).unwrap();
    let sick = wait_card(&site, CARDS[0], is_sick);
    let why = sick["health"].to_string();
    assert!(why.contains("the DRA driver gpu.nvidia.com runs on this node beside divvy-agent"), "{why}");
    wait_event(&site.cluster.admin().in_namespace("default"), "TwoOwners", "divvy-agent");
    site.cluster.admin().wait("node", "node-0", SOON, |n| !has_slots(n)).unwrap();
    // An agent that starts beside the other owner finds it before it offers anything.
    site.agent.kill().unwrap();
    let before = site.agent_log().matches("the cards have two owners").count();
    site.agent.start().unwrap();
    eventually("the agent finds the other owner again", SOON, || {
        anyhow::ensure!(site.agent_log().matches("the cards have two owners").count() > before, "not yet");
        Ok(())
    })
    .unwrap();
    site.cluster.admin().wait("node", "node-0", SOON, |n| !has_slots(n)).unwrap();
    kubectl.say(&["delete", "resourceslice", "other-owner"]).unwrap();
    ours_again(&site, &kubectl);
}

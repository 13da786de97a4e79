//! Cards that somebody else gives out too are not offered, and both owners are named.

use std::path::Path;
use std::process::Command;

use divvy_core::keys;
use divvy_e2e::{eventually, own};
use serde_json::{Value, json};

use super::health::{is_sick, wait_card, wait_event};
use divvy_e2e::site::{CARDS, Guest, SOON, Site, pod, site, slice};

/// What `kubectl divvy doctor` finds about devices.
fn doctor(site: &Site) -> anyhow::Result<String> {
    let output = Command::new(own::kubectl_divvy()?)
        .args(["doctor", "-o", "json"])
        .env("KUBECONFIG", site.cluster.kubeconfig())
        .output()?;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let of_devices = findings.iter().find(|f| f["check"] == "devices");
    Ok(of_devices.map(ToString::to_string).unwrap_or_default())
}

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
fn cards_that_another_device_plugin_offers_too_are_not_offered_and_agent_event_and_doctor_name_both() {
    let mut site = site();
    let kubectl = site.namespace();
    let admin = site.cluster.admin();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    admin.say(&["apply", "-f", &crds.display().to_string()]).unwrap();
    let folder = "/var/lib/kubelet/device-plugins".to_owned();
    let words = vec![own::other_plugin().unwrap().display().to_string(), folder, keys::VGPU_COUNT.to_owned()];
    let other = Guest::start(site.cluster.nodes()[0].program("other-plugin", words));

    let both = "a device plugin offers nvidia.com/gpu on this node beside divvy-agent";
    for card in CARDS {
        let why = wait_card(&site, card, is_sick)["health"].to_string();
        assert!(why.contains(both), "{why}");
    }
    admin.wait("node", "node-0", SOON, |n| !has_slots(n)).unwrap();
    // What the other one offers is its own to count.
    admin.wait("node", "node-0", SOON, |n| n["status"]["capacity"][keys::VGPU_COUNT] == "2").unwrap();
    assert!(site.agent_log().contains("the cards have two owners"));
    wait_event(&admin.in_namespace("default"), "TwoOwners", both);
    eventually("the doctor names both", SOON, || {
        let found = doctor(&site)?;
        anyhow::ensure!(found.contains(both) && found.contains(CARDS[0]), "{found}");
        Ok(())
    })
    .unwrap();

    drop(other);
    ours_again(&site, &kubectl);
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

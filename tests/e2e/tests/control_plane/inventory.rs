//! What nodes say they have, and what becomes of it when it cannot be believed.

use divvy_core::keys;
use divvy_e2e::{Kubectl, eventually};
use serde_json::{Value, json};

use crate::ground::{SHARED, SOON, share, wait_bound, wait_unschedulable};

fn only(model: &str, mut pod: Value) -> Value {
    pod["metadata"]["annotations"] = json!({(keys::GPU_MODEL): model});
    pod
}

/// Writes a node's inventory as its agent would.
fn write(admin: &Kubectl, node: &str, inventory: &str) {
    let patch = json!({"metadata": {"annotations": {(keys::INVENTORY): inventory}}}).to_string();
    admin.say(&["patch", "node", node, "--type=merge", "--patch", &patch]).unwrap();
}

fn wait_event(node: &str, words: &str) {
    let selector = format!("--field-selector=involvedObject.name={node},reason=InventoryUnusable");
    eventually("the event is there", SOON, || {
        let said = SHARED.cluster.admin().say(&[
            "get",
            "events",
            "--all-namespaces",
            &selector,
            "--output=jsonpath={.items[*].message}",
        ])?;
        anyhow::ensure!(said.contains(words), "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_inventory_that_is_malformed_or_stale_costs_the_node_its_devices_and_an_event_says_so() {
    SHARED.simulate_as("sick", 1, 1, &["--model", "Sick-1"]);
    let (admin, space) = (SHARED.cluster.admin(), SHARED.cluster.namespace("sick").unwrap());
    let node = admin.get("node", "sick-0").unwrap();
    let good: Value = serde_json::from_str(node["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap()).unwrap();
    let of_generation = |generation: u64| {
        let mut inventory = good.clone();
        inventory["generation"] = json!(generation);
        inventory.to_string()
    };
    write(admin, "sick-0", "{\"v\": 1, \"devices\": ");
    wait_event("sick-0", "its inventory cannot be read");
    space.create(&only("Sick-1", share("first", 300)).to_string()).unwrap();
    wait_unschedulable(&space, "first");
    write(admin, "sick-0", &of_generation(7));
    wait_bound(&space, "first");
    // An older one comes after a newer one: two agents write, or one writes late.
    write(admin, "sick-0", &of_generation(6));
    wait_event("sick-0", "stale (generation 6 after 7)");
    space.create(&only("Sick-1", share("second", 300)).to_string()).unwrap();
    wait_unschedulable(&space, "second");
    write(admin, "sick-0", &of_generation(8));
    wait_bound(&space, "second");
}

#[test]
fn a_node_that_is_opted_out_is_not_used_and_one_that_reports_less_than_before_gets_no_more() {
    SHARED.simulate_as("out", 1, 2, &["--model", "Out-2"]);
    let (admin, space) = (SHARED.cluster.admin(), SHARED.cluster.namespace("out").unwrap());
    admin.say(&["label", "node", "out-0", "--overwrite", &format!("{}=false", keys::NODE_OPT_IN)]).unwrap();
    space.create(&only("Out-2", share("first", 1000)).to_string()).unwrap();
    wait_unschedulable(&space, "first");
    // The label of another system will do.
    let opted_in = format!("{}=on", keys::VGPU_NODE_OPT_IN);
    admin.say(&["label", "node", "out-0", &format!("{}-", keys::NODE_OPT_IN), &opted_in]).unwrap();
    wait_bound(&space, "first");
    // The agent finds one card less: what is bound stays bound, and nothing new comes.
    let node = admin.get("node", "out-0").unwrap();
    let mut less: Value =
        serde_json::from_str(node["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap()).unwrap();
    let held = crate::ground::devices(&crate::ground::grant(&space.get("pod", "first").unwrap()));
    less["devices"].as_array_mut().unwrap().retain(|device| device["id"] == held[0].as_str());
    less["generation"] = json!(2);
    write(admin, "out-0", &less.to_string());
    space.create(&only("Out-2", share("second", 1000)).to_string()).unwrap();
    wait_unschedulable(&space, "second");
    assert!(space.get("pod", "first").unwrap()["metadata"]["deletionTimestamp"].is_null());
}

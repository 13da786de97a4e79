//! Devices fail, recover, and are taken out of service.

use divvy_core::keys;
use divvy_e2e::{Kubectl, eventually};
use divvy_fakedriver::machine::Machine;
use serde_json::Value;

use divvy_e2e::site::{CARDS, LATER, SOON, Site, pod, site, slice};

const SLEEP: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

fn machine(site: &Site) -> Machine {
    Machine::open(&site.on_node("/run/fake-gpu"), None).unwrap()
}

/// A card as the node's inventory shows it.
pub(super) fn card(node: &Value, id: &str) -> Value {
    let text = node["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap_or("{}");
    let inventory: Value = serde_json::from_str(text).unwrap();
    let devices = inventory["devices"].as_array().cloned().unwrap_or_default();
    devices.into_iter().find(|d| d["id"] == id).unwrap_or_default()
}

pub(super) fn wait_card(site: &Site, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let node = site.cluster.admin().wait("node", "node-0", SOON, |node| is_so(&card(node, id)));
    card(&node.unwrap_or_else(|e| panic!("{e:#}\n{}", site.agent_log())), id)
}

pub(super) fn is_sick(card: &Value) -> bool {
    card["health"].to_string().contains("reason")
}

/// The message of a condition of a pod, once it has this status.
fn wait_condition(kubectl: &Kubectl, pod: &str, kind: &str, status: &str) -> String {
    let find = |p: &Value| {
        let conditions = p["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == kind && c["status"] == status)
    };
    let found =
        kubectl.wait("pod", pod, SOON, |p| find(p).is_some()).unwrap_or_else(|e| panic!("{e:#}\n{}", kubectl.story()));
    find(&found).unwrap()["message"].as_str().unwrap_or_default().to_owned()
}

pub(super) fn wait_event(kubectl: &Kubectl, reason: &str, text: &str) {
    eventually(&format!("an event {reason} with {text:?}"), SOON, || {
        let events = kubectl.list("events")?;
        let said = |e: &Value| e["reason"] == reason && e["message"].as_str().is_some_and(|m| m.contains(text));
        anyhow::ensure!(events.iter().any(said), "not among {} events", events.len());
        Ok(())
    })
    .unwrap();
}

fn wait_refused(kubectl: &Kubectl, pod: &str, sentence: &str) {
    let waiting = |p: &Value| {
        let state = &p["status"]["containerStatuses"][0]["state"]["waiting"];
        state["message"].as_str().is_some_and(|m| m.contains(sentence))
    };
    kubectl.wait("pod", pod, LATER, waiting).unwrap_or_else(|e| panic!("{e:#}\n{}", kubectl.story()));
}

/// Starts the agent with a policy of its own about what errors mean.
fn with_policy(site: &Site, policy: &str) {
    std::fs::write(site.on_node("/run/health.yaml"), policy).unwrap();
    site.flags(&["--health=/run/health.yaml"]);
}

#[test]
fn hm_14_a_card_with_a_passing_error_takes_no_new_work_until_it_answers_and_its_pods_are_told() {
    let mut site = site();
    let kubectl = site.namespace();
    // More answers than come during the test: the error passes when the usual policy is back.
    with_policy(&site, "probes: 100000\n");
    kubectl.create(&pod("works", &[("main", "main", vec![slice(CARDS[0], 1024, 100)], SLEEP)]).to_string()).unwrap();
    kubectl.wait_phase("works", "Running", SOON).unwrap();
    // A program's own fault says nothing about the card.
    machine(&site).report_xid(1, 31);
    machine(&site).report_xid(0, 94);
    wait_card(&site, CARDS[0], is_sick);
    let told = wait_condition(&kubectl, "works", keys::CONDITION_DEVICES, "False");
    assert!(told.contains(CARDS[0]) && told.contains("XID 94"), "{told}");
    wait_event(&kubectl, "DeviceUnhealthy", "XID 94");
    wait_event(&site.cluster.admin().in_namespace("default"), "DeviceUnhealthy", "XID 94");
    assert!(!is_sick(&card(&site.cluster.admin().get("node", "node-0").unwrap(), CARDS[1])));
    // With the usual policy it is fit again three answers later.
    site.flags(&[]);
    wait_card(&site, CARDS[0], |card| !is_sick(card));
    wait_condition(&kubectl, "works", keys::CONDITION_DEVICES, "True");
    assert_eq!(kubectl.get("pod", "works").unwrap()["status"]["phase"], "Running", "by default nobody is evicted");
}

#[test]
fn pods_on_a_card_that_fell_off_the_bus_are_named_for_eviction_where_the_policy_says_so_and_it_comes_back_with_a_reset()
{
    let mut site = site();
    let kubectl = site.namespace();
    with_policy(&site, "probes: 2\nevict: true\nfatal: [79, 31]\nignore: [13]\n");
    for (name, card) in [("here", CARDS[1]), ("there", CARDS[0])] {
        kubectl.create(&pod(name, &[("main", "main", vec![slice(card, 1024, 100)], SLEEP)]).to_string()).unwrap();
        kubectl.wait_phase(name, "Running", SOON).unwrap();
    }
    machine(&site).report_xid(1, 31);
    // The controller, which is not here, evicts whom the node names.
    let uid = kubectl.get("pod", "here").unwrap()["metadata"]["uid"].clone();
    let named = |node: &Value| {
        let text = node["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap_or("{}");
        serde_json::from_str::<Value>(text).unwrap()["evict"].clone()
    };
    let node = site.cluster.admin().wait("node", "node-0", SOON, |node| !named(node).is_null()).unwrap();
    let named = named(&node);
    assert_eq!(named.as_object().unwrap().keys().collect::<Vec<_>>(), [uid.as_str().unwrap()], "{named}");
    assert!(named.to_string().contains("XID 31"), "{named}");
    kubectl.say(&["delete", "pod", "here", "--wait=false"]).unwrap();
    kubectl.wait_gone("pod", "here", SOON).unwrap();
    kubectl.create(&pod("late", &[("main", "main", vec![slice(CARDS[1], 1024, 100)], SLEEP)]).to_string()).unwrap();
    wait_refused(&kubectl, "late", "is not healthy (XID 31");
    // It outlives the agent: only a reset helps.
    site.agent.kill().unwrap();
    site.agent.start().unwrap();
    wait_card(&site, CARDS[1], is_sick);
    machine(&site).lose(1, true);
    eventually("the card falls silent", SOON, || {
        let notes: Value = serde_json::from_slice(&std::fs::read(site.on_node("/run/divvy/health.json"))?)?;
        anyhow::ensure!(notes[CARDS[1]]["silent"] == true, "{notes}");
        Ok(())
    })
    .unwrap();
    machine(&site).lose(1, false);
    wait_card(&site, CARDS[1], |card| !is_sick(card));
    kubectl.wait_phase("late", "Running", LATER).unwrap();
    assert_eq!(kubectl.get("pod", "there").unwrap()["status"]["phase"], "Running");
    site.flags(&[]);
}

#[test]
fn hm_13_a_cordoned_card_keeps_its_pods_and_takes_no_new_ones() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&pod("before", &[("main", "main", vec![slice(CARDS[0], 1024, 100)], SLEEP)]).to_string()).unwrap();
    kubectl.wait_phase("before", "Running", SOON).unwrap();
    let admin = site.cluster.admin();
    admin.say(&["annotate", "node", "node-0", &format!("{}={}", keys::CORDON, CARDS[0])]).unwrap();
    wait_card(&site, CARDS[0], |card| card["cordoned"] == true);
    kubectl.create(&pod("after", &[("main", "main", vec![slice(CARDS[0], 1024, 100)], SLEEP)]).to_string()).unwrap();
    wait_refused(&kubectl, "after", "is cordoned");
    assert_eq!(kubectl.get("pod", "before").unwrap()["status"]["phase"], "Running");
    admin.say(&["annotate", "node", "node-0", &format!("{}-", keys::CORDON)]).unwrap();
    kubectl.wait_phase("after", "Running", LATER).unwrap();
}

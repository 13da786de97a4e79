//! Agents, kubelets, runtimes and nodes come and go; grants stay.

use std::collections::BTreeMap;

use divvy_e2e::{Kubectl, eventually};
use serde_json::{Value, json};

use divvy_e2e::site::{CARDS, GREEDY, SOON, Site, pod, site, slice, uid};

const SLEEP: &str = "trap 'exit 1' TERM; while true; do sleep 0.1; done";

fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0)
}

fn runs(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
}

fn visible(kubectl: &Kubectl, pod: &str) -> String {
    let script = "tr '\\0' '\\n' </proc/1/environ | grep ^NVIDIA_VISIBLE_DEVICES";
    kubectl.say(&["exec", pod, "--", "sh", "-c", script]).unwrap().trim().to_owned()
}

/// Ends the main process of a pod's container, from inside.
fn crash(kubectl: &Kubectl, pod: &str) {
    // The exec may end with the container it ran in.
    let _ = kubectl.run(&["exec", pod, "--", "kill", "1"]).unwrap();
}

#[test]
fn without_an_agent_a_container_does_not_come_back_and_with_it_it_has_its_grant() {
    let mut site = site();
    let kubectl = site.namespace();
    let mut greedy = pod("greedy", &[("main", "main", vec![slice(CARDS[0], 1024, 100)], SLEEP)]);
    greedy["spec"]["containers"][0]["image"] = json!(GREEDY);
    kubectl.create(&greedy.to_string()).unwrap();
    kubectl.wait("pod", "greedy", SOON, runs).unwrap();
    site.agent.kill().unwrap();
    crash(&kubectl, "greedy");
    let waits = |p: &Value| p["status"]["containerStatuses"][0]["state"]["waiting"].is_object();
    kubectl.wait("pod", "greedy", SOON, waits).unwrap();
    kubectl
        .wait("pod", "greedy", SOON, |p| {
            let state = &p["status"]["containerStatuses"][0]["state"];
            assert!(state["running"].is_null(), "it came back without an agent");
            state["waiting"]["message"].as_str().is_some_and(|m| m.contains("endpoint") || m.contains("connect"))
        })
        .unwrap();
    site.agent.start().unwrap();
    kubectl.wait("pod", "greedy", SOON, |p| runs(p) && restarts(p) > 0).unwrap();
    assert_eq!(visible(&kubectl, "greedy"), format!("NVIDIA_VISIBLE_DEVICES={}", CARDS[0]));
}

#[test]
fn al_24_containers_run_on_while_agent_kubelet_and_runtime_are_restarted() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl
        .create(&pod("steady", &[("main", "main", vec![slice(CARDS[0], 60 << 10, 100)], SLEEP)]).to_string())
        .unwrap();
    let steady = kubectl.wait("pod", "steady", SOON, runs).unwrap();
    let gate = site.gate(&uid(&steady), "main");
    site.registers_anew(|site| {
        site.agent.kill().unwrap();
        site.agent.start().unwrap();
    });
    site.registers_anew(|site| site.cluster.nodes()[0].kubelet.restart().unwrap());
    site.cluster.nodes()[0].containerd.stop().unwrap();
    site.cluster.nodes()[0].start_containerd().unwrap();
    // What was held before the restarts is held after them.
    kubectl.create(&pod("late", &[("main", "main", vec![slice(CARDS[0], 60 << 10, 100)], SLEEP)]).to_string()).unwrap();
    kubectl.create(&pod("fits", &[("main", "main", vec![slice(CARDS[0], 30 << 10, 100)], SLEEP)]).to_string()).unwrap();
    kubectl.wait("pod", "fits", SOON, runs).unwrap();
    let refused = |p: &Value| {
        let state = &p["status"]["containerStatuses"][0]["state"]["waiting"];
        state["message"].as_str().is_some_and(|m| m.contains("is refused"))
    };
    kubectl.wait("pod", "late", SOON, refused).unwrap();
    let after = kubectl.get("pod", "steady").unwrap();
    assert!(runs(&after), "{after}");
    assert_eq!(restarts(&after), 0);
    assert_eq!(site.gate(&uid(&after), "main"), gate);
}

/// Ledger, kubelet and container tell the same story about every pod.
fn same_story(site: &Site, kubectl: &Kubectl, pods: &[String]) {
    let ledger = site.ledger();
    let checkpoint = site.checkpoint();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for name in pods {
        let found = kubectl.get("pod", name).unwrap();
        let granted: Value =
            serde_json::from_str(found["metadata"]["annotations"][divvy_core::keys::GRANT].as_str().unwrap()).unwrap();
        assert_eq!(ledger[name], granted_in_full(&granted), "{name}: the ledger");
        let ids = &checkpoint[&(uid(&found), "main".to_owned())];
        assert_eq!(ids.len(), 1, "{name}: the kubelet");
        assert_eq!(owners.insert(ids[0].clone(), name.clone()), None, "{} is held twice", ids[0]);
        let slice = &granted["containers"][0]["slices"][0];
        let card = slice["device"].as_str().unwrap();
        assert_eq!(visible(kubectl, name), format!("NVIDIA_VISIBLE_DEVICES={card}"), "{name}: the container");
        let gate = site.gate(&uid(&found), "main");
        assert_eq!(gate.devices[0].id, card, "{name}: the page");
        assert_eq!(gate.devices[0].memory_limit, slice["memoryLimit"].as_u64().unwrap(), "{name}: the page");
        assert_eq!(u64::from(gate.devices[0].share_limit), slice["shareLimit"].as_u64().unwrap(), "{name}: the page");
    }
}

/// The grant as the agent writes it: with the defaults spelled out.
fn granted_in_full(grant: &Value) -> Value {
    let grant: divvy_core::grant::Grant = serde_json::from_value(grant.clone()).unwrap();
    serde_json::to_value(grant).unwrap()
}

fn race(asks: impl Fn(u64) -> (usize, u64, u32)) {
    let mut site = site();
    let kubectl = site.namespace();
    let names: Vec<String> = (0..20).map(|n| format!("racer-{n}")).collect();
    let list: Vec<Value> = (0..20)
        .map(|n| {
            let (card, mib, share) = asks(n);
            pod(&names[n as usize], &[("main", "main", vec![slice(CARDS[card], mib, share)], SLEEP)])
        })
        .collect();
    kubectl.create(&json!({"apiVersion": "v1", "kind": "List", "items": list}).to_string()).unwrap();
    eventually("a third of them runs", SOON, || {
        let running = kubectl.list("pods").unwrap().iter().filter(|p| runs(p)).count();
        anyhow::ensure!(running > 6, "{running} run");
        Ok(())
    })
    .unwrap();
    site.agent.kill().unwrap();
    site.agent.start().unwrap();
    eventually("all of them run", SOON * 2, || {
        let running = kubectl.list("pods").unwrap().iter().filter(|p| runs(p)).count();
        anyhow::ensure!(running == 20, "{running} run");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e:#}\n{}\n{}", kubectl.story(), site.agent_log()));
    same_story(&site, &kubectl, &names);
}

#[test]
fn twenty_pods_with_twenty_asks_start_at_once_with_the_agent_restarted_in_the_middle() {
    race(|n| ((n % 2) as usize, 1024 + 100 * n, 10 + n as u32));
}

#[test]
fn al_08_al_09_tk_21_twenty_pods_with_equal_asks_start_at_once_with_the_agent_restarted_in_the_middle() {
    race(|n| ((n % 2) as usize, 2048, 50));
}

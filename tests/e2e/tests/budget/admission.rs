//! What the API server and the webhook say about budgets, quotas and the pods under them. Nothing here depends on the clock.

use std::sync::LazyLock;

use divvy_core::keys;
use serde_json::{Value, json};

use crate::ground::{file, pod, share, wait_bound};
use crate::town::{PATIENCE, Town, budget, shows};

static TOWN: LazyLock<Town> = LazyLock::new(|| {
    let town = Town::start("admission");
    town.ground.simulate("card", 2, 2);
    town
});

fn object(kind: &str, name: &str, spec: Value) -> String {
    json!({"apiVersion": keys::GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

#[test]
fn the_api_server_refuses_what_contradicts_itself_and_the_status_names_the_rest() {
    let space = TOWN.ground.cluster.namespace("wrong").unwrap();
    let refused = |kind: &str, spec: Value| space.create(&object(kind, "x", spec)).unwrap_err().to_string();
    assert!(refused("GpuBudget", json!({})).contains("exactly one"));
    assert!(refused("GpuBudget", json!({"gpuTime": "soon"})).contains("gpuTime"));
    let both = json!({"gpuTime": "1h", "period": {"every": "day", "rolling": "30d"}});
    assert!(refused("GpuBudget", both).contains("a period is a calendar's (every) or rolling"));
    assert!(refused("GpuQuota", json!({"limits": [{}]})).contains("a limit names devices, share or memory"));
    assert!(refused("GpuQuota", json!({"limits": [{"share": 1}, {"share": 2}]})).contains("one limit per model"));
    let two = json!({"budget": "x", "credit": "1h", "debit": "1h", "reason": "r", "author": "admin"});
    assert!(refused("GpuBudgetEntry", two).contains("exactly one of topUp, credit and debit"));
    let elsewhere = json!({"clusterBudget": "x", "credit": "1h", "reason": "r", "author": "admin"});
    assert!(refused("GpuBudgetEntry", elsewhere).contains("divvy-system"));

    let spec = json!({"gpuTime": "1h", "period": {"every": "day", "timeZone": "Mars/Base"}});
    space.create(&object("GpuBudget", "mars", spec)).unwrap();
    let status = budget(&space, "mars", |s| s["state"] == "Invalid");
    assert!(status["message"].as_str().unwrap().contains("Mars/Base"), "{status}");
}

#[test]
fn gs_17_gpusharings_set_up_is_one_manifest_that_works() {
    let admin = TOWN.ground.cluster.admin();
    // Everything but the pod first: the namespace's service account comes a moment after it, and its budget a moment after that.
    let text = std::fs::read_to_string(file("examples/gpusharing.yaml")).unwrap();
    for document in serde_saphyr::from_multiple::<Value>(&text).unwrap().iter().filter(|d| d["kind"] != "Pod") {
        admin.apply(&document.to_string()).unwrap();
    }
    let space = admin.in_namespace("gpusharing-example");
    space.wait("serviceaccount", "default", PATIENCE, |_| true).unwrap();
    budget(&space, "global-budget", |s| s["state"] == "InBudget" && s["left"] == "2h30m");
    let said = admin.say(&["apply", "-f", &file("examples/gpusharing.yaml").display().to_string()]).unwrap();
    assert!(said.contains("pod/mnist-case created"), "{said}");
    let bound = wait_bound(&space, "mnist-case");
    assert_eq!(bound["spec"]["priorityClassName"], "gpu-default-priority");
    assert_eq!(bound["spec"]["priority"], 1_000_000, "the API server worked it out after us");
    assert_eq!(bound["metadata"]["annotations"][keys::VCUDA_CORE_LIMIT], "50");
    shows(&space, &["get", "gpubudget"], &["global-budget", "InBudget", "2h"]);
    shows(&space, &["get", "gpuquota"], &["500/800"]);
    // 50 of 80 are used: 50 more are too many for the namespace's ResourceQuota.
    let more = pod("more", json!({(keys::VCUDA_CORE): 50, (keys::VCUDA_MEMORY): 1}));
    let refused = space.create(&more.to_string()).unwrap_err().to_string();
    assert!(refused.contains("quota"), "{refused}");
    space.say(&["delete", "pod", "mnist-case", "--wait=false"]).unwrap();
}

#[test]
fn a_quota_counts_grants_refuses_at_admission_and_holds_at_scheduling() {
    let space = TOWN.ground.cluster.namespace("quota").unwrap();
    space.create(&object("GpuQuota", "gpu", json!({"limits": [{"share": 600}]}))).unwrap();
    space.wait("gpuquota", "gpu", PATIENCE, |q| q["status"]["share"] == "0/600").unwrap();
    let refused = space.create(&share("huge", 700).to_string()).unwrap_err().to_string();
    assert!(refused.contains("quota gpu: 0.7 of share wanted, 0 held, 0.6 allowed"), "{refused}");
    space.create(&share("half", 500).to_string()).unwrap();
    wait_bound(&space, "half");
    shows(&space, &["get", "gpuquota"], &["500/600"]);
    let refused = space.create(&share("more", 200).to_string()).unwrap_err().to_string();
    assert!(refused.contains("0.2 of share wanted, 0.5 held"), "{refused}");
    // Where pods are let in to wait, the scheduler says the same, and lets one in when there is room.
    space.say(&["patch", "gpuquota", "gpu", "--type=merge", "-p", r#"{"spec":{"whenExceeded":"wait"}}"#]).unwrap();
    divvy_e2e::eventually("the pod is let in to wait", PATIENCE, || space.create(&share("more", 200).to_string()))
        .unwrap();
    shows(&space, &["get", "pod", "more", "-o", "yaml"], &["quota gpu: 0.2 of share wanted"]);
    space.say(&["delete", "pod", "half", "--wait=false"]).unwrap();
    wait_bound(&space, "more");
}

#[test]
fn hm_06_hm_07_a_resource_quota_in_hamis_words_is_held_and_goes_when_it_goes() {
    let space = TOWN.ground.cluster.namespace("hami-quota").unwrap();
    let quota = |mib: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu"},
            "spec": {"hard": {"limits.nvidia.com/gpumem": mib}}})
        .to_string()
    };
    let asks = |name: &str, cards: u32, mib: u32| {
        pod(name, json!({"nvidia.com/gpu": cards, "nvidia.com/gpumem": mib})).to_string()
    };
    let holds = |said: &str| space.wait("gpuquota", "gpu", PATIENCE, |q| q["status"]["memory"] == said).unwrap();
    space.apply(&quota("2000")).unwrap();
    holds("0 B/2000 MiB");
    space.create(&asks("first", 1, 1000)).unwrap();
    wait_bound(&space, "first");
    holds("1000 MiB/2000 MiB");
    let refused = |cards, mib| space.create(&asks("more", cards, mib)).unwrap_err().to_string();
    for (cards, mib) in [(1, 1024), (2, 1024)] {
        assert!(refused(cards, mib).contains("quota gpu"), "{}", refused(cards, mib));
    }
    space.create(&asks("second", 2, 400)).unwrap();
    wait_bound(&space, "second");
    space.apply(&quota("0")).unwrap();
    holds("1800 MiB/0 B");
    assert!(refused(1, 1).contains("quota gpu"), "{}", refused(1, 1));
    let part = pod("part", json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 1}));
    space.create(&part.to_string()).unwrap();
    shows(&space, &["get", "pod", "part", "-o", "yaml"], &["quota gpu"]);
    space.say(&["delete", "resourcequota", "gpu"]).unwrap();
    wait_bound(&space, "part");
    assert_eq!(space.list("gpuquotas").unwrap(), Vec::<Value>::new());
}

#[test]
fn what_a_cohort_lends_is_taken_back_by_preemption() {
    let (mine, theirs) =
        (TOWN.ground.cluster.namespace("owner").unwrap(), TOWN.ground.cluster.namespace("borrower").unwrap());
    let quota = |share: u32| object("GpuQuota", "gpu", json!({"cohort": "lab", "limits": [{"share": share}]}));
    mine.create(&quota(1000)).unwrap();
    theirs.create(&quota(500)).unwrap();
    // Awaited, so that the scheduler knows both.
    for space in [&mine, &theirs] {
        space.wait("gpuquota", "gpu", PATIENCE, |q| q["status"]["share"].is_string()).unwrap();
    }
    for name in ["one", "two", "three"] {
        theirs.create(&share(name, 500).to_string()).unwrap();
        wait_bound(&theirs, name);
    }
    mine.create(&share("back", 500).to_string()).unwrap();
    wait_bound(&mine, "back");
    let left = theirs.list("pods").unwrap();
    assert_eq!(left.len(), 2, "exactly one of the borrowers left");
    for space in [&mine, &theirs] {
        space.say(&["delete", "pods", "--all", "--wait=false"]).unwrap();
    }
}

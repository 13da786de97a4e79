//! A grant changes while its container runs.

use divvy_core::keys;
use divvy_e2e::Kubectl;
use serde_json::{Value, json};

use super::load::{Load, await_shares, under_load};
use divvy_e2e::site::{CARDS, CUDA, SOON, pod, site, slice, uid};

fn cuda(name: &str, slice: Value) -> Value {
    let mut pod = pod(name, &[("main", "main", vec![slice], "sleep 3600")]);
    pod["spec"]["containers"][0]["image"] = json!(CUDA);
    pod
}

/// Writes other amounts of a pod's grant, as the scheduler does that has admitted them, and waits for the node's answer: status and message.
fn resize(kubectl: &Kubectl, name: &str, slice: Value) -> (bool, String) {
    let changed = cuda(name, slice);
    let grant = changed["metadata"]["annotations"][keys::GRANT].as_str().unwrap();
    let before = answer(&kubectl.get("pod", name).unwrap());
    kubectl.say(&["annotate", "--overwrite", "pod", name, &format!("{}={grant}", keys::GRANT_ADMITTED)]).unwrap();
    let answered = |p: &Value| answer(p).is_some_and(|now| Some(now) != before);
    let pod = kubectl.wait("pod", name, SOON, answered).unwrap_or_else(|e| panic!("{e:#}\n{}", kubectl.story()));
    answer(&pod).unwrap()
}

fn answer(pod: &Value) -> Option<(bool, String)> {
    let condition = pod["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == keys::CONDITION_RESIZED)?;
    Some((condition["status"] == "True", condition["message"].as_str()?.to_owned()))
}

#[test]
fn a_running_program_may_use_more_memory_after_a_resize_and_a_resize_that_does_not_fit_changes_nothing() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&cuda("grows", slice(CARDS[0], 4 << 10, 500)).to_string()).unwrap();
    kubectl.create(&cuda("neighbour", slice(CARDS[0], 60 << 10, 100)).to_string()).unwrap();
    let running = kubectl.wait_phase("grows", "Running", SOON).unwrap();
    kubectl.wait_phase("neighbour", "Running", SOON).unwrap();
    let mut program = site.session(&kubectl, "grows");
    assert_eq!(program.tell("ctx 0"), "ok");
    assert!(program.tell("alloc 3221225472").starts_with("ok "));
    assert_eq!(program.tell("alloc 3221225472"), "error 2", "3 GiB more are too much");
    let (fits, message) = resize(&kubectl, "grows", slice(CARDS[0], 50 << 10, 500));
    assert!(!fits && message.contains("50 GiB of memory asked, 40 GiB of 100 GiB free"), "{message}");
    assert_eq!(program.tell("alloc 3221225472"), "error 2", "what was refused changes nothing");
    let (fits, message) = resize(&kubectl, "grows", slice(CARDS[0], 8 << 10, 500));
    assert!(fits && message.contains("8 GiB"), "{message}");
    assert!(program.tell("alloc 3221225472").starts_with("ok "), "and fit after the resize");
    let after = kubectl.get("pod", "grows").unwrap();
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(site.gate(&uid(&running), "main").devices[0].memory_limit, 8 << 30);
    // What is in force is what a restarted agent finds.
    site.agent.kill().unwrap();
    site.agent.start().unwrap();
    let (fits, message) = resize(&kubectl, "grows", slice(CARDS[1], 8 << 10, 500));
    assert!(!fits && message.contains("would change containers[0].slices[0].device"), "{message}");
    assert_eq!(site.ledger()["grows"]["containers"][0]["slices"][0]["memoryLimit"], 8u64 << 30);
}

#[test]
fn a_changed_share_holds_at_once() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&cuda("capped", slice(CARDS[0], 4 << 10, 600)).to_string()).unwrap();
    kubectl.wait_phase("capped", "Running", SOON).unwrap();
    let load = [Load { pod: "capped", container: "main", mark: 1000 }];
    let is_near = |points: f64| {
        move |shares: &[f64]| {
            let good = (shares[0] - points).abs() <= 5.0;
            good.then_some(()).ok_or_else(|| format!("{shares:.1?} for {points}"))
        }
    };
    under_load(&kubectl, &site, &load, || {
        await_shares("before", &site, &load, is_near(60.0));
        let (fits, message) = resize(&kubectl, "capped", slice(CARDS[0], 4 << 10, 250));
        assert!(fits, "{message}");
        await_shares("after", &site, &load, |shares| {
            assert!(shares[0] <= 35.0, "{shares:.1?} for a limit of 25, from the answer on");
            is_near(25.0)(shares)
        });
    });
}

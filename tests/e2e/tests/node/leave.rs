//! Pods that are gone from the API server and still run are counted, at every instant.

use std::fs;
use std::time::Instant;

use divvy_e2e::Kubectl;
use divvy_e2e::site::{CARDS, LATER, SOON, Site, pod, site, slice};
use serde_json::Value;

/// The command lines of everything that runs, on the node too: its processes are this machine's.
fn processes() -> String {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok());
    let lines = pids.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ") + "\n").collect()
}

/// Does a container with this mark run?
fn runs(mark: u32) -> bool {
    processes().contains(&format!("sleep {mark} "))
}

/// A pod that fills most of a card, and takes its time to end.
fn big(name: &str, mark: u32) -> Value {
    let script = format!("trap 'sleep 4; exit 0' TERM; sleep {mark} & while true; do sleep 0.2; done");
    let mut pod = pod(name, &[("main", "main", vec![slice(CARDS[0], 60 << 10, 600)], &script)]);
    pod["spec"]["terminationGracePeriodSeconds"] = 20.into();
    pod
}

/// Watches until the second runs: never both, and the first is counted for as long as it runs.
fn never_both(site: &Site, kubectl: &Kubectl, first: u32, second: u32) {
    let (began, mut looks) = (Instant::now(), 0);
    loop {
        let is_counted = site.ledger().contains_key("first");
        let first_runs = runs(first);
        assert!(is_counted || !first_runs, "a container runs and is not counted");
        if runs(second) {
            // A look takes a while; what ran when it began may have ended meanwhile, and does not come back.
            assert!(!runs(first), "both hold the card");
            println!("{looks} looks in {:?}", began.elapsed());
            return;
        }
        looks += 1;
        assert!(began.elapsed() < LATER, "the second never started\n{}\n{}", kubectl.story(), site.agent_log());
    }
}

#[test]
fn hm_21_a_force_deleted_pod_holds_its_card_until_its_container_ended() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&big("first", 11_111).to_string()).unwrap();
    kubectl.wait_phase("first", "Running", SOON).unwrap();
    kubectl.say(&["delete", "pod", "first", "--force", "--grace-period=0"]).unwrap();
    kubectl.create(&big("second", 22_222).to_string()).unwrap();
    never_both(&site, &kubectl, 11_111, 22_222);
}

#[test]
fn pods_that_were_replaced_while_the_node_was_cut_off_are_counted_when_it_is_back() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&big("first", 33_333).to_string()).unwrap();
    kubectl.wait_phase("first", "Running", SOON).unwrap();
    site.cluster.nodes()[0].partition(true).unwrap();
    kubectl.say(&["delete", "pod", "first", "--force", "--grace-period=0"]).unwrap();
    kubectl.create(&big("second", 44_444).to_string()).unwrap();
    assert!(runs(33_333), "a node that is cut off works on");
    // The agent starts anew without an API server, and forgets nothing. The kubelet turns pods away for good while it has no
    // slots, so the node is cut off until it has.
    site.registers_anew(|site| {
        site.agent.kill().unwrap();
        site.agent.start().unwrap();
    });
    assert!(site.ledger().contains_key("first") && runs(33_333), "it forgets nothing");
    site.cluster.nodes()[0].partition(false).unwrap();
    never_both(&site, &kubectl, 33_333, 44_444);
}

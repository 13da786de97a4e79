//! Shares are held, by the card's own count of who used it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use divvy_e2e::{Kubectl, eventually};
use divvy_fakedriver::machine::{Machine, Unit};
use serde_json::json;

use super::kit::{CARDS, CUDA, SOON, Site, pod, site, slice};

/// Busy time of each tenant of a card, by the memory it holds: 1, 2, ... GiB and the context.
fn busy(site: &Site, card: usize) -> BTreeMap<u64, Duration> {
    let machine = Machine::open(&site.on_node("/run/fake-gpu"), None).unwrap();
    let tenants = machine.tenants(Unit::card(card));
    tenants.into_iter().map(|t| (t.used >> 30, Duration::from_nanos(t.busy))).collect()
}

/// Runs `act` while each of `pods` keeps its card busy with kernels, holding as many GiB as its place in the list says.
pub(super) fn under_load<T: Send>(
    kubectl: &Kubectl,
    site: &Site,
    pods: &[&str],
    seconds: u64,
    act: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|scope| {
        for (n, pod) in pods.iter().enumerate() {
            let commands =
                format!("ctx 0\nalloc {}\nspin spin_us_500 8 {}\nquit\n", (n as u64 + 1) << 30, seconds * 1000);
            scope.spawn(move || {
                let said = site.tenant(kubectl, pod, &commands);
                assert!(said[2].starts_with("ok "), "{pod}: {said:?}");
            });
        }
        let all_hold = || {
            let seen = busy(site, 0);
            anyhow::ensure!(seen.len() >= pods.len() && seen.values().all(|b| !b.is_zero()), "{seen:?}");
            Ok(())
        };
        eventually("every tenant runs kernels", SOON, all_hold).unwrap();
        act()
    })
}

/// Shares of the card's time over a while, in points.
pub(super) fn measure(site: &Site, over: Duration) -> BTreeMap<u64, f64> {
    let (before, start) = (busy(site, 0), Instant::now());
    thread::sleep(over);
    let (after, took) = (busy(site, 0), start.elapsed());
    let points = |(who, b): (&u64, &Duration)| (*who, 100.0 * (*b - before[who]).as_secs_f64() / took.as_secs_f64());
    after.iter().filter(|(who, _)| before.contains_key(who)).map(points).collect()
}

fn sharer(name: &str, gib: u64, request: u32, limit: u32) -> serde_json::Value {
    let mut slice = slice(CARDS[0], gib << 10, request);
    slice["shareLimit"] = json!(limit);
    let mut pod = pod(name, &[("main", "main", vec![slice], "sleep 3600")]);
    pod["spec"]["containers"][0]["image"] = json!(CUDA);
    pod
}

#[test]
fn two_containers_on_one_card_are_held_to_their_shares_also_while_the_agent_is_away() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&sharer("thirty", 4, 300, 1000).to_string()).unwrap();
    kubectl.create(&sharer("seventy", 6, 700, 1000).to_string()).unwrap();
    for pod in ["thirty", "seventy"] {
        kubectl.wait_phase(pod, "Running", SOON).unwrap();
    }
    let (held, kept) = under_load(&kubectl, &site, &["thirty", "seventy"], 30, || {
        let held = measure(&site, Duration::from_secs(6));
        site.agent.kill().unwrap();
        let kept = measure(&site, Duration::from_secs(6));
        site.agent.start().unwrap();
        (held, kept)
    });
    println!("with the agent {held:?}, without {kept:?}");
    for (when, shares) in [("with the agent", &held), ("without", &kept)] {
        let ratio = 100.0 * shares[&1] / (shares[&1] + shares[&2]);
        assert!((ratio - 30.0).abs() <= 5.0, "{when}: {shares:?} is {ratio:.1} points for 30");
    }
    assert!(held.values().sum::<f64>() > 90.0, "the card is kept busy: {held:?}");
    assert!(kept.values().all(|share| *share > 10.0), "nobody hangs: {kept:?}");
}

#[test]
fn a_lone_container_does_not_exceed_its_limit() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&sharer("capped", 4, 200, 400).to_string()).unwrap();
    kubectl.wait_phase("capped", "Running", SOON).unwrap();
    let shares = under_load(&kubectl, &site, &["capped"], 12, || measure(&site, Duration::from_secs(6)));
    println!("{shares:?}");
    assert!((shares[&1] - 40.0).abs() <= 5.0, "{shares:?} for a limit of 40");
}

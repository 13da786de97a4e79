//! Shares are held, by the card's own count of who used it.

use std::time::{Duration, Instant};

use divvy_e2e::site::Site;
use serde_json::json;

use super::load::{Load, await_shares, busy, under_load};
use divvy_e2e::site::{CARDS, CUDA, SOON, pod, site, slice};

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
    let loads = [("thirty", 1000), ("seventy", 2000)].map(|(pod, mark)| Load { pod, container: "main", mark });
    let held = |shares: &[f64]| {
        let (part, sum) = (100.0 * shares[0] / (shares[0] + shares[1]), shares[0] + shares[1]);
        let good = (part - 30.0).abs() <= 5.0 && sum > 90.0;
        good.then_some(()).ok_or_else(|| format!("{shares:.1?} is {part:.1} points for 30, and {sum:.1} of the card"))
    };
    under_load(&kubectl, &site, &loads, || {
        await_shares("with the agent", &site, &loads, held);
        site.agent.kill().unwrap();
        await_shares("while it is away", &site, &loads, held);
        site.agent.start().unwrap();
        await_shares("with the agent again", &site, &loads, held);
    });
}

#[test]
fn a_lone_container_does_not_exceed_its_limit() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&sharer("capped", 4, 200, 400).to_string()).unwrap();
    kubectl.wait_phase("capped", "Running", SOON).unwrap();
    let load = [Load { pod: "capped", container: "main", mark: 1000 }];
    under_load(&kubectl, &site, &load, || {
        await_shares("limited to 40", &site, &load, |shares| {
            // One alone would have the whole card; above the limit it must not be even for a window.
            assert!(shares[0] <= 50.0, "{shares:.1?} for a limit of 40");
            let good = (shares[0] - 40.0).abs() <= 5.0;
            good.then_some(()).ok_or_else(|| format!("{shares:.1?} for a limit of 40"))
        })
    });
}

/// Seconds a pod used its card, as the agent tells them.
fn told(site: &Site, pod: &str) -> f64 {
    let metrics = site.ask("/metrics");
    let of_pod = |line: &&str| line.starts_with("divvy_container_busy_seconds_total{") && line.contains(pod);
    metrics.lines().find(of_pod).and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_container_that_nobody_holds_back_is_told_what_its_card_counts() {
    const MARK: u64 = 1000;
    const WINDOW: Duration = Duration::from_secs(5);
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&sharer("thinks", 4, 200, 1000).to_string()).unwrap();
    kubectl.wait_phase("thinks", "Running", SOON).unwrap();
    let mut program = site.session(&kubectl, "thinks");
    for command in ["ctx 0".to_owned(), format!("alloc {}", MARK << 20)] {
        assert!(program.tell(&command).starts_with("ok"), "{command}");
    }
    // Looks are milliseconds apart, and so is its work: what can be seen of it from outside is far from what it is.
    let mut work = || assert!(program.tell("spin spin_us_300 1 1").starts_with("ok"));
    // The meter goes on by the second or so. What it says just then is compared with what the card has counted.
    let fresh = |work: &mut dyn FnMut()| {
        let (before, since) = (told(&site, "thinks"), Instant::now());
        loop {
            work();
            let now = told(&site, "thinks");
            if now != before {
                return (now, busy(&site)[&MARK].as_secs_f64(), Instant::now());
            }
            assert!(since.elapsed() < SOON, "the meter stands still at {before} s");
        }
    };
    let (mut begin, mut seen) = (fresh(&mut work), Vec::new());
    // A busy machine works unevenly, so that a window may be off. A guess is, in most.
    let near = |seen: &[[f64; 2]]| seen.iter().filter(|[told, card]| (told - card).abs() <= 5.0).count();
    while near(&seen) < 3 {
        assert!(seen.len() - near(&seen) < 3, "told, and counted by the card, in percent: {seen:.1?}");
        let until = Instant::now() + WINDOW;
        while Instant::now() < until {
            work();
        }
        let end = fresh(&mut work);
        seen.push([end.0 - begin.0, end.1 - begin.1].map(|seconds| 100.0 * seconds / (end.2 - begin.2).as_secs_f64()));
        begin = end;
    }
    println!("told, and counted by the card, in percent: {seen:.1?}");
}

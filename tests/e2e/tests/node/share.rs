//! Shares are held, by the card's own count of who used it.

use serde_json::json;

use super::load::{Load, await_shares, under_load};
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

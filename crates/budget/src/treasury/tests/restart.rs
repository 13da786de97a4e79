//! Killed at random points, the controller ends where an undisturbed one ends.

use divvy_core::budget::Balance;
use proptest::prelude::*;
use serde_json::json;

use super::super::Settings;
use super::server::{Server, facts, t};

const END: u64 = 6000;
const STEP: u64 = 20;

#[derive(Clone, Debug)]
struct Life {
    share: u32,
    from: u64,
    runs: u64,
    evicted: bool,
    deleted_after: Option<u64>,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = (1u32..=1000, 0..END, 1..END, any::<bool>(), prop::option::of(60u64..600));
    let life =
        life.prop_map(|(share, from, runs, evicted, deleted_after)| Life { share, from, runs, evicted, deleted_after });
    prop::collection::vec(life, 1..6)
}

/// Plays a day of pods, with the controller killed where `kills` says: at a step, after so many writes.
fn play(lives: &[Life], entries: &[(u64, u64)], kills: &[(u64, usize)]) -> Vec<Balance> {
    let mut server = Server::new(Settings { late: 2 * 3_600_000, ..Settings::default() });
    let spec = json!({"gpuTime": "10m", "period": {"every": "hour"}, "carryOver": {"percent": 50}, "onExhaustion": {"grace": "30s"},
        "refunds": {"percent": 50, "within": "5m"}});
    server.budget("team-a", "gpu", spec, t(0));
    server.namespace("team-a", &[("pool", "yes")]);
    server.cluster(
        "pool",
        json!({"per": "selector", "selector": {"matchLabels": {"pool": "yes"}}, "gpuTime": "30m",
            "onExhaustion": {"grace": "45s"}}),
        t(0),
    );
    let mut now = 0;
    while now < END {
        let next = now + STEP;
        let during = |at: u64| now <= at && at < next;
        for (i, life) in lives.iter().enumerate() {
            let name = format!("p{i}");
            if during(life.from) {
                server.put_pod(facts("team-a", &name, life.share, 0, t(life.from)), t(next));
            }
            let end = life.from + life.runs;
            if during(end) {
                server.finish(&name, t(end), life.evicted, t(next));
            }
            if life.deleted_after.is_some_and(|after| during(end + after)) {
                server.delete_pod(&name, t(next));
            }
        }
        for (i, (at, minutes)) in entries.iter().enumerate() {
            if during(*at) {
                let spec = json!({"budget": "gpu", "topUp": format!("{minutes}m"), "reason": "more", "author": "root"});
                server.entry("team-a", &format!("e{i}"), spec, t(*at));
            }
        }
        now = next;
        match kills.iter().find(|(step, _)| step * STEP + STEP == now) {
            Some((_, writes)) => {
                server.pass_until(t(now), *writes);
                server.restart(t(now));
            }
            None => drop(server.pass(t(now))),
        }
    }
    server.pass(t(END));
    let accounting = server.treasury.accounting().unwrap();
    accounting.accounts().map(|(_, account)| account.balance(accounting.at())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn killed_at_random_points_the_balances_are_those_of_an_undisturbed_run(
        lives in lives(),
        entries in prop::collection::vec((0..END, 1u64..20), 0..3),
        kills in prop::collection::vec((0..END / STEP, 0usize..6), 1..6),
    ) {
        prop_assert_eq!(play(&lives, &entries, &kills), play(&lives, &entries, &[]));
    }
}

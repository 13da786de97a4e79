//! The controller's decisions, on an API server of a few maps. Time is told in seconds from the beginning of a period.

mod lies;
mod restart;
mod server;

use divvy_api::budget::State;
use divvy_core::ask::Class;
use divvy_core::budget::{Cut, Page, Record};
use divvy_core::id::PodKey;
use divvy_core::time::Time;
use serde_json::{Value, json};

use super::Settings;
use server::{BASE, Server, device, facts, t};

use crate::news::News;
use crate::write::Write;

fn settings() -> Settings {
    Settings { refresh: 0, ..Settings::default() }
}

#[test]
fn gs_19_a_budget_of_150_minutes_lasts_a_quota_sized_pod_150_minutes() {
    let mut server = Server::new(settings());
    let spec = json!({"gpuTime": "150m", "cost": {"measure": "mean", "reference": {"share": 500, "memory": "3840Mi"}}});
    server.budget("team-a", "gpu", spec, t(0));
    // 50 cores and 15 blocks of 256 MiB.
    server.put_pod(facts("team-a", "p", 500, 3840, t(0)), t(0));
    server.pass(t(149 * 60));
    let status = server.status("team-a", "gpu");
    assert_eq!((status.left.as_str(), status.state), ("1m", State::InBudget));
    assert_eq!(status.per_hour, "1h");
    server.pass(t(150 * 60));
    assert_eq!(
        (server.status("team-a", "gpu").left.as_str(), server.status("team-a", "gpu").state),
        ("0s", State::OutOfBudget)
    );
}

#[test]
fn gs_01_a_namespace_that_used_nothing_has_its_whole_budget() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "150m"}), t(0));
    server.pass(t(1));
    let view = server.treasury.view(&"team-a".into());
    assert_eq!(view["budget_available"], true);
    assert_eq!((view["budget"].as_f64(), view["budget_remaining"].as_f64()), (Some(150.0), Some(150.0)));
    assert_eq!(server.treasury.view(&"elsewhere".into())["budget_available"], true, "no budget, no limit");
}

#[test]
fn gs_08_gs_12_a_pod_is_charged_for_the_time_it_holds_its_slice_while_any_container_runs() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "150m"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(60));
    assert_eq!(server.treasury.view(&"team-a".into())["budget_remaining"].as_f64(), Some(149.0));
}

#[test]
fn gs_11_a_pod_whose_containers_have_ended_costs_nothing_more() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "150m"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(60));
    server.finish("p", t(90), false, t(100));
    server.pass(t(3000));
    assert_eq!(server.status("team-a", "gpu").spent, "1m30s");
}

#[test]
fn gs_09_a_namespace_that_runs_out_is_demoted_and_never_below_zero() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "30s"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    let writes = server.pass(t(100));
    assert!(super::Treasury::names(&writes).contains(&"team-a/p opportunistic".to_owned()), "{writes:?}");
    assert_eq!(server.status("team-a", "gpu").left, "0s");
    assert_eq!(server.status("team-a", "gpu").spent, "30s", "what came after is free, because it is opportunistic");
}

#[test]
fn a_period_that_turns_promotes_those_who_run_and_those_who_wait() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "30s", "period": {"every": "hour"}}), t(0));
    server.put_pod(facts("team-a", "runs", 1000, 0, t(0)), t(0));
    let mut waits = facts("team-a", "waits", 1000, 0, t(0));
    (waits.node, waits.grants) = (None, Vec::new());
    server.put_pod(waits, t(0));
    server.pass(t(100));
    assert_eq!(server.class("runs"), Some(Class::Opportunistic));
    assert_eq!(server.class("waits"), Some(Class::Opportunistic));
    server.pass(t(3601));
    assert_eq!(server.class("runs"), Some(Class::Guarantee));
    assert_eq!(server.class("waits"), Some(Class::Guarantee));
    assert_eq!(server.status("team-a", "gpu").left, "29s");
}

#[test]
fn an_owners_own_wish_for_the_opportunistic_class_is_kept() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h"}), t(0));
    let mut pod = facts("team-a", "p", 1000, 0, t(0));
    (pod.wants, pod.class) = (Some(Class::Opportunistic), Some(Class::Opportunistic));
    server.put_pod(pod, t(0));
    let writes = server.pass(t(100));
    assert!(!writes.iter().any(|w| matches!(w, Write::Class { .. })));
    assert_eq!(server.status("team-a", "gpu").spent, "0s");
}

#[test]
fn the_grace_is_for_pods_that_run_and_a_hard_stop_comes_after_it() {
    let mut server = Server::new(settings());
    let spec = json!({"gpuTime": "30s", "onExhaustion": {"action": "stop", "grace": "60s"}});
    server.budget("team-a", "gpu", spec, t(0));
    server.put_pod(facts("team-a", "runs", 1000, 0, t(0)), t(0));
    let mut waits = facts("team-a", "waits", 1000, 0, t(0));
    (waits.node, waits.grants) = (None, Vec::new());
    server.put_pod(waits, t(0));
    server.pass(t(50));
    assert_eq!(server.status("team-a", "gpu").state, State::Grace);
    assert_eq!((server.class("runs"), server.class("waits")), (Some(Class::Guarantee), Some(Class::Opportunistic)));
    let writes = server.pass(t(91));
    assert_eq!(server.status("team-a", "gpu").state, State::Stopped);
    assert_eq!(server.status("team-a", "gpu").left, "-1m", "the grace is charged");
    assert_eq!(writes.iter().filter(|w| matches!(w, Write::Stop { .. })).count(), 2);
    let writes = server.pass(t(92));
    assert_eq!(writes.iter().filter(|w| matches!(w, Write::Stop { .. })).count(), 0, "asked again, but not at once");
}

#[test]
fn people_top_up_credit_and_debit_and_each_is_booked_once() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1m"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(61));
    assert_eq!(server.class("p"), Some(Class::Opportunistic));
    server.entry(
        "team-a",
        "e1",
        json!({"budget": "gpu", "topUp": "10m", "reason": "deadline", "author": "root"}),
        t(62),
    );
    server.pass(t(63));
    assert_eq!(server.class("p"), Some(Class::Guarantee), "a top-up promotes");
    server.entry("team-a", "e2", json!({"budget": "gpu", "credit": "2m", "reason": "outage", "author": "root"}), t(64));
    server.entry(
        "team-a",
        "e3",
        json!({"budget": "gpu", "debit": "1m", "reason": "borrowed", "author": "root"}),
        t(64),
    );
    server.entry(
        "team-a",
        "e1",
        json!({"budget": "gpu", "topUp": "10m", "reason": "deadline", "author": "root"}),
        t(62),
    );
    server.pass(t(65));
    assert_eq!(server.status("team-a", "gpu").booked, "11m");
    server.entry("team-a", "e4", json!({"budget": "gpu", "credit": "5 EUR", "reason": "?", "author": "root"}), t(66));
    server.pass(t(67));
    assert!(
        server.status("team-a", "gpu").message.contains("entry e4 is not booked"),
        "{}",
        server.status("team-a", "gpu").message
    );
}

#[test]
fn what_divvy_evicts_is_given_back_and_what_ended_by_itself_is_not() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h", "refunds": {"percent": 100, "within": "30s"}}), t(0));
    server.put_pod(facts("team-a", "evicted", 1000, 0, t(0)), t(0));
    server.put_pod(facts("team-a", "done", 1000, 0, t(0)), t(0));
    server.pass(t(50));
    server.finish("evicted", t(60), true, t(60));
    server.finish("done", t(60), false, t(60));
    server.pass(t(70));
    let status = server.status("team-a", "gpu");
    assert_eq!((status.spent.as_str(), status.refunded.as_str(), status.left.as_str()), ("2m", "30s", "58m30s"));
}

#[test]
fn what_was_left_is_carried_over_as_far_as_the_budget_says() {
    let mut server = Server::new(settings());
    let spec = json!({"gpuTime": "10m", "period": {"every": "hour"}, "carryOver": {"percent": 50, "atMost": "4m"}});
    server.budget("team-a", "gpu", spec, t(0));
    server.pass(t(10));
    server.pass(t(3700));
    let status = server.status("team-a", "gpu");
    assert_eq!((status.carried.as_str(), status.total.as_str()), ("4m", "14m"));
}

#[test]
fn a_cluster_budget_gives_each_namespace_its_own_or_all_of_them_one() {
    let mut server = Server::new(settings());
    server.namespace("team-a", &[("gpu", "yes")]);
    server.namespace("team-b", &[("gpu", "yes")]);
    server.namespace("other", &[]);
    server.cluster(
        "fair",
        json!({"per": "namespace", "selector": {"matchLabels": {"gpu": "yes"}}, "gpuTime": "10m"}),
        t(0),
    );
    server.cluster(
        "pool",
        json!({"per": "selector", "selector": {"matchLabels": {"gpu": "yes"}}, "gpuTime": "1h"}),
        t(0),
    );
    server.pass(t(1));
    server.pass(t(2));
    let names: Vec<String> = server.treasury.budgets().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["pool", "team-a/fair", "team-b/fair"]);
    server.put_pod(facts("team-a", "a", 1000, 0, t(10)), t(10));
    server.put_pod(facts("team-b", "b", 500, 0, t(10)), t(10));
    server.put_pod(facts("other", "o", 1000, 0, t(10)), t(10));
    server.pass(t(70));
    assert_eq!(server.status("team-a", "fair").left, "9m");
    assert_eq!(server.status("team-b", "fair").left, "9m30s");
    assert_eq!(server.cluster_status("pool").left, "58m30s");
    // Who leaves the selection loses the copy, and the pool pays for it no longer.
    server.namespace("team-b", &[]);
    server.pass(t(71));
    server.pass(t(72));
    assert!(!server.treasury.budgets().keys().any(|key| key.to_string() == "team-b/fair"));
}

#[test]
fn a_budget_that_cannot_be_followed_says_so_and_changes_nothing() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "10m"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(60));
    server.budget(
        "team-a",
        "gpu",
        json!({"gpuTime": "10m", "period": {"every": "day", "timeZone": "Mars/Base"}}),
        t(0),
    );
    server.pass(t(120));
    let status = server.status("team-a", "gpu");
    assert_eq!((status.left.as_str(), status.conditions[0].status.as_str()), ("8m", "False"));
    assert!(status.conditions[0].message.contains("Mars/Base"));
}

#[test]
fn statuses_and_charges_are_written_at_most_twenty_times_per_pass() {
    let mut server = Server::new(Settings::default());
    for i in 0..100 {
        server.budget(&format!("team-{i}"), "gpu", json!({"gpuTime": "10h"}), t(0));
        server.put_pod(facts(&format!("team-{i}"), &format!("p{i}"), 500, 0, t(0)), t(0));
    }
    let mut all = 0;
    for second in 1..=60 {
        let writes = server.pass(t(second));
        assert!(writes.len() <= 20, "{}", writes.len());
        all += writes.len();
    }
    assert!(all >= 200, "each budget and each namespace's charges are written: {all}");
    let later: usize = (61..=160).map(|second| server.pass(t(second)).len()).sum();
    assert!(later <= 1100, "and then each status about every ten seconds: {later} in 100 passes");
}

#[test]
fn a_journal_is_acknowledged_only_once_what_it_told_is_stored() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h", "cost": {"of": "busy"}}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(10));
    server.pass(t(11));
    let record = Record {
        sequence: 5,
        at: t(60),
        pod: PodKey::new("team-a", "p"),
        uid: "p".into(),
        container: "main".into(),
        held: device(1000, 0),
        granted: t(0),
        until: None,
        busy: 20_000,
    };
    server.page("n0", Page { node: "n0".into(), epoch: 1, records: vec![record], more: false }, t(61));
    server.refuse_charges = true;
    let writes = server.pass(t(62));
    assert!(writes.iter().any(|w| matches!(w, Write::Charges { .. })));
    server.pass(t(63));
    assert_eq!(server.acknowledged("n0"), None, "what it told is nowhere but in memory");
    server.refuse_charges = false;
    server.pass(t(64));
    server.pass(t(65));
    assert_eq!(server.acknowledged("n0"), Some(Cut { epoch: 1, sequence: 5 }));
    assert_eq!(server.status("team-a", "gpu").spent, "20s");
}

fn record(namespace: &str, pod: &str, sequence: u64, at: Time) -> Record {
    Record {
        sequence,
        at,
        pod: PodKey::new(namespace, pod),
        uid: pod.into(),
        container: "main".into(),
        held: device(500, 0),
        granted: t(10),
        until: Some(at),
        busy: 0,
    }
}

#[test]
fn pods_that_only_a_nodes_journal_knows_are_charged_to_nobody_and_named_once_an_hour() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h"}), t(0));
    server.pass(t(600));
    let records = (1..=100).map(|n| record("team-a", &format!("ghost-{n}"), n, t(50))).collect();
    server.page("n0", Page { node: "n0".into(), epoch: 1, records, more: false }, t(601));
    server.pass(t(602));
    server.pass(t(603));
    assert_eq!(server.status("team-a", "gpu").spent, "0s");
    let charges = server.charges();
    // By name and by uid.
    assert_eq!((charges.matches("ghost-1\"").count(), charges.matches("ghost-").count()), (2, 2), "{charges}");
    assert_eq!(server.acknowledged("n0"), Some(Cut { epoch: 1, sequence: 100 }), "and the journal is read on");
}

#[test]
fn a_journal_is_read_on_when_the_api_server_has_shown_the_pod() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h"}), t(0));
    server.pass(t(100));
    let page = || Page {
        node: "n0".into(),
        epoch: 1,
        records: vec![record("team-a", "p", 1, t(90)), record("team-a", "p", 2, t(96))],
        more: false,
    };
    server.page("n0", page(), t(101));
    assert_eq!(server.treasury.read_from(&"n0".into()), None, "perhaps the watch lags");
    server.put_pod(facts("team-a", "p", 500, 0, t(10)), t(102));
    server.page("n0", page(), t(130));
    server.pass(t(131));
    assert_eq!(server.status("team-a", "gpu").spent, "43s");
    // A page of a round that began before this one was read is told twice.
    server.treasury.hear(News::Page("n0".into(), None, page()), t(132));
    assert_eq!(server.treasury.read_from(&"n0".into()), Some(Cut { epoch: 1, sequence: 2 }));
}

#[test]
fn a_pod_that_vanished_unseen_is_charged_as_far_as_known_and_the_rest_is_listed() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(60));
    // The controller dies; the pod is force-deleted and its node is deleted.
    server.pods.clear();
    server.nodes.clear();
    server.restart(t(600));
    server.pass(t(600));
    server.pass(t(601));
    let status = server.status("team-a", "gpu");
    assert_eq!((status.spent.as_str(), status.unaccounted), ("1m", 1));
    assert!(server.charges().contains("it ended while nobody watched"), "{}", server.charges());
    assert!(server.charges().contains("its node is gone"), "{}", server.charges());
}

#[test]
fn a_node_that_was_away_tells_later_when_a_pod_ended() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"gpuTime": "1h"}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(60));
    server.pods.clear();
    server.restart(t(600));
    server.pass(t(600));
    let record = Record {
        sequence: 9,
        at: t(300),
        pod: PodKey::new("team-a", "p"),
        uid: "p".into(),
        container: "main".into(),
        held: device(1000, 0),
        granted: t(0),
        until: Some(t(300)),
        busy: 0,
    };
    server.page("n0", Page { node: "n0".into(), epoch: 1, records: vec![record], more: false }, t(7200));
    server.pass(t(7201));
    server.pass(t(7202));
    let status = server.status("team-a", "gpu");
    assert_eq!(
        (status.spent.as_str(), status.unaccounted),
        ("5m", 0),
        "hours later, exactly, and nothing is open any more"
    );
}

#[test]
fn the_trail_names_pod_devices_times_and_amounts_and_adds_up_to_what_was_spent() {
    let mut server = Server::new(settings());
    server.budget(
        "team-a",
        "gpu",
        json!({"money": {"amount": "100", "currency": "EUR", "prices": {"H200": "3.6"}}}),
        t(0),
    );
    server.put_pod(facts("team-a", "p", 500, 0, t(10)), t(10));
    server.finish("p", t(110), false, t(110));
    server.pass(t(120));
    server.pass(t(121));
    let charges = server.charges();
    for part in ["\"pod\":\"p\"", "GPU-0", "H200", "0.05 EUR", "team-a/gpu"] {
        assert!(charges.contains(part), "{part} is not in {charges}");
    }
    assert_eq!(server.status("team-a", "gpu").spent, "0.05 EUR");
}

#[test]
fn models_without_a_price_in_the_budget_cost_what_the_policy_says() {
    let mut server = Server::new(settings());
    server.budget("team-a", "gpu", json!({"money": {"amount": "100", "currency": "EUR"}}), t(0));
    server.put_pod(facts("team-a", "p", 1000, 0, t(0)), t(0));
    server.pass(t(1));
    assert_eq!(server.status("team-a", "gpu").state, State::Invalid, "nobody says what anything costs");
    server.policy(json!({"modelPrices": {"H200": 3600}}));
    server.pass(t(100));
    assert_eq!(server.status("team-a", "gpu").spent, "0.1 EUR", "from its creation on, as any budget");
    // Another price counts from the moment it is known.
    server.policy(json!({"modelPrices": {"H200": 36_000}}));
    server.pass(t(110));
    assert_eq!(server.status("team-a", "gpu").spent, "0.2 EUR");
    // What was charged stays charged, also by a controller that starts anew.
    server.restart(t(110));
    server.pass(t(120));
    assert_eq!(server.status("team-a", "gpu").spent, "0.3 EUR");
}

#[test]
fn quotas_tell_what_is_held_of_what_is_allowed() {
    let mut server = Server::new(settings());
    server.quota("team-a", "q", json!({"limits": [{"share": 2000, "devices": 4}]}));
    server.put_pod(facts("team-a", "p", 500, 1024, t(0)), t(0));
    let writes = server.pass(t(1));
    let status =
        writes.iter().find_map(|w| if let Write::Quota { status, .. } = w { Some(status) } else { None }).unwrap();
    assert_eq!((status.share.as_str(), status.devices.as_str()), ("500/2000", "1/4"));
    assert_eq!(status.held[0].memory, 1 << 30);
}

#[test]
fn hm_06_a_resource_quota_in_hamis_words_has_a_gpu_quota_that_says_the_same_and_goes_with_it() {
    let mut server = Server::new(settings());
    let copies = |writes: &[Write]| -> Vec<(String, Value)> {
        let of = |write: &Write| match write {
            Write::QuotaCopy { name, spec, .. } => Some((name.clone(), serde_json::to_value(spec).unwrap())),
            _ => None,
        };
        writes.iter().filter_map(of).collect()
    };
    let said = |limits: Value| json!({"limits": [limits]});
    server.resource_quota("team-a", "gpu", Some(&[("limits.nvidia.com/gpumem", "2000"), ("pods", "9")]));
    server.resource_quota("team-a", "cpu", Some(&[("limits.cpu", "9")]));
    server.quota("team-a", "own", json!({"limits": [{"devices": 4}]}));
    server.resource_quota("team-a", "own", Some(&[("limits.nvidia.com/gpucores", "0")]));
    assert_eq!(copies(&server.pass(t(1))), [("gpu".into(), said(json!({"memory": "2000Mi"})))]);
    assert_eq!(copies(&server.pass(t(2))), [], "once, and somebody's own quota stays");
    let both = [("limits.nvidia.com/gpumem", "0"), ("limits.nvidia.com/gpucores", "150")];
    server.resource_quota("team-a", "gpu", Some(&both));
    assert_eq!(copies(&server.pass(t(3))), [("gpu".into(), said(json!({"memory": "0Mi", "share": 1500})))]);
    server.policy(json!({"dialects": {"vgpu": {"memoryFactor": 4, "names": {"resourceCores": "acme.com/cores"}}}}));
    assert_eq!(copies(&server.pass(t(4))), [("gpu".into(), said(json!({"memory": "0Mi"})))]);
    server.resource_quota("team-a", "gpu", None);
    assert_eq!(copies(&server.pass(t(5))), [("gpu".into(), Value::Null)]);
    assert_eq!(copies(&server.pass(t(6))), []);
}

#[test]
fn the_first_moment_is_where_the_tests_think_it_is() {
    assert_eq!(BASE % 3_600_000, 0);
    assert_eq!(t(1), Time(BASE + 1000));
}

//! Whatever one node's agent says, the books about other nodes' pods are those of a cluster in which it says nothing.

use divvy_core::budget::{Cut, Page, Record};
use divvy_core::id::PodKey;
use divvy_core::time::Time;
use proptest::prelude::*;
use serde_json::json;

use super::server::{Server, device, facts, t};
use super::settings;

fn moment() -> impl Strategy<Value = Time> {
    prop_oneof![(0_u64..2000).prop_map(t), Just(Time(0)), Just(Time(u64::MAX))]
}

fn lie() -> impl Strategy<Value = Record> {
    let words = (
        prop::sample::select(vec!["team-a", "team-b"]),
        prop::sample::select(vec!["honest", "liar", "ghost"]),
        prop::sample::select(vec!["main", "other"]),
        prop::sample::select(vec![0_u32, 500, u32::MAX]),
        prop::sample::select(vec![0_u64, 1000, u64::MAX]),
    );
    let times = (moment(), moment(), prop::option::of(moment()), any::<u64>());
    (words, times).prop_map(|((namespace, pod, container, share, busy), (at, granted, until, sequence))| Record {
        sequence,
        at,
        pod: PodKey::new(namespace, pod),
        uid: pod.into(),
        container: container.into(),
        held: device(share, 0),
        granted,
        until,
        busy,
    })
}

fn page() -> impl Strategy<Value = Page> {
    let records = prop::collection::vec(lie(), 0..6);
    (prop::sample::select(vec!["n0", "n1"]), any::<u64>(), records, any::<bool>())
        .prop_map(|(node, epoch, records, more)| Page { node: node.into(), epoch, records, more })
}

/// A cluster in which `honest` of team-a runs on n0 and `liar` of team-b on n1, whose agent answers with these pages.
fn balances(basis: &str, pages: &[Page]) -> (String, Option<Cut>, Option<Cut>) {
    let mut server = Server::new(settings());
    let other = server.nodes["n0"].clone();
    server.node("n1", &other);
    for namespace in ["team-a", "team-b"] {
        server.budget(namespace, "gpu", json!({"gpuTime": "1h", "cost": {"of": basis}}), t(0));
    }
    server.put_pod(facts("team-a", "honest", 500, 0, t(10)), t(10));
    let mut liar = facts("team-b", "liar", 500, 0, t(10));
    liar.node = Some("n1".into());
    server.put_pod(liar, t(10));
    for (now, page) in (600..).zip(pages) {
        server.page("n1", page.clone(), t(now));
    }
    let said = Record { busy: 400_000, until: None, ..super::record("team-a", "honest", 7, t(500)) };
    server.page("n0", Page { node: "n0".into(), epoch: 3, records: vec![said], more: false }, t(700));
    server.pass(t(800));
    server.pass(t(801));
    let spent = server.status("team-a", "gpu").spent;
    let liars = server.status("team-b", "gpu").spent;
    let most = if basis == "busy" { "13m10s" } else { "6m35s" };
    let seconds = |text: &str| text.parse::<jiff::Span>().map(|s| s.total(jiff::Unit::Second).unwrap()).unwrap();
    assert!(seconds(&liars) <= seconds(most) + 1.0, "{liars} is more than one device's time");
    (spent, server.treasury.read_from(&"n0".into()), server.acknowledged("n0"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn lies_of_one_node_change_nothing_about_another(
        pages in prop::collection::vec(page(), 0..6), basis in prop::sample::select(vec!["busy", "held"]),
    ) {
        prop_assert_eq!(balances(basis, &pages).0, balances(basis, &[]).0);
        prop_assert_eq!(balances(basis, &pages).1, Some(Cut { epoch: 3, sequence: 7 }));
    }
}

//! What is worth more than what.

use super::*;
use crate::ledger::snapshot::Snapshot;
use crate::testing::cluster;

fn priced(text: &str) -> Snapshot {
    let mut snapshot = cluster(text);
    snapshot.reckon_worth();
    snapshot
}

#[test]
fn a_remainder_nothing_fits_is_worth_nothing() {
    let mut text = String::from("node a gpu=2\n");
    (0..10).for_each(|i| text += &format!("wait p{i} share=810 cpu=1000\nwait q{i} share=470 cpu=1000\n"));
    let worth = priced(&text).worth().clone();
    assert_eq!(worth.filling(190).value, 0.0);
    assert!((worth.filling(1000).value - 1.0).abs() < 1e-6);
    assert!(worth.filling(530).value > 0.4, "{:?}", worth.filling(530));
}

#[test]
fn a_free_card_without_cpu_beside_it_is_worth_nothing() {
    let snapshot = priced("node a cpu=8 gpu=1\nnode b cpu=0 gpu=1\nwait p share=1000 cpu=4000");
    let rest =
        |ix| Rest::of(&snapshot.node_at(crate::ledger::snapshot::NodeIx(ix)).unwrap().leftover(), snapshot.worth());
    let worth = |rest: Rest| snapshot.worth().shared(rest.value, rest.needs_cpu, rest.needs_memory, &rest, (0, 0));
    assert_eq!(worth(rest(1)), 0.0);
    assert!(worth(rest(0)) > 0.9);
}

#[test]
fn time_beside_memory_costs_little() {
    // b-0 has half its memory taken and all its time: a pod that wants time only loses least there.
    let snapshot = priced(
        "node a gpu=2:16Gi
         pod m on a dev=1 mem=8Gi
         wait p share=500",
    );
    let rest = Rest::of(&snapshot.node_at(crate::ledger::snapshot::NodeIx(0)).unwrap().leftover(), snapshot.worth());
    let beside = snapshot.worth().rate(&rest, 0, 0, &[(1, 500)], 0);
    let alone = snapshot.worth().rate(&rest, 0, 0, &[(0, 500)], 0);
    assert!(beside > alone, "{beside:?} {alone:?}");
}

#[test]
fn scarce_models_are_kept_for_those_who_name_them() {
    let mut text = String::from("node a gpu=4:16Gi:T4\nnode b gpu=1:16Gi:V100\n");
    (0..4).for_each(|i| text += &format!("wait p{i} share=1000 model=v100\nwait q{i} share=1000\n"));
    let snapshot = priced(&text);
    let rest =
        |ix| Rest::of(&snapshot.node_at(crate::ledger::snapshot::NodeIx(ix)).unwrap().leftover(), snapshot.worth());
    let of = |ix| snapshot.worth().rate(&rest(ix), 0, 0, &[(0, 0)], 0);
    assert!(of(0) > of(1));
}

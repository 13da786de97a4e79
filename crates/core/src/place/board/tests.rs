//! A board decides as asking everybody does.

use std::sync::Arc;

use proptest::prelude::*;

use super::shape::Shape;
use super::{Board, LONGEST, MOST_LINES};
use crate::laws::{policies, snapshots};
use crate::model::pod::{Pod, PodSpec, Toleration};
use crate::model::policy::{Placement, Policy};
use crate::model::resources::Resources;
use crate::model::time::Time;
use crate::model::units::Bytes;
use crate::place::{Attempt, Kept};
use crate::schedule::Engine;
use crate::testing::cluster;

const NOW: Time = Time::seconds(10_000);

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_remembered_decides_as_asking_everybody_does(
        mut snapshot in snapshots(),
        policy in policies(),
        removed in prop::collection::vec(0usize..14, 0..8),
        rounds in 1usize..4,
        offered in prop::collection::vec(any::<bool>(), 16),
    ) {
        let mut engine = Engine::default();
        let uids: Vec<_> = snapshot.pods().map(|(_, state)| state.pod().uid.clone()).collect();
        let pods: Vec<_> = snapshot.pods().map(|(_, state)| state.pod().clone()).collect();
        for round in 0..rounds {
            if snapshot.is_worth_stale() || round == 1 {
                snapshot.reckon_worth();
            }
            for uid in &uids {
                let Some(ix) = snapshot.find_pod(uid).filter(|ix| snapshot.bound(*ix).is_none()) else { continue };
                let kept = Kept::default();
                let pod = snapshot.pod_at(ix).unwrap().pod().clone();
                let asked = Attempt::new(&snapshot, &policy, ix, &pod, &kept, NOW).unwrap().best();
                let found = engine.decide(&snapshot, &policy, ix, NOW);
                prop_assert_eq!(found.as_ref().ok(), asked.as_ref().ok(), "{}", uid);
                // Of some nodes only, named in any order.
                let some = || snapshot.nodes().enumerate().filter(|(i, _)| offered[i % offered.len()]).map(|(_, n)| n);
                let asked = Attempt::new(&snapshot, &policy, ix, &pod, &kept, NOW).unwrap().best_of(some()).ok();
                let mut names: Vec<_> = some().map(|(ix, _)| ix).collect();
                names.reverse();
                prop_assert_eq!(engine.find_among(&snapshot, &policy, ix, names, NOW), asked, "{} of some", uid);
                if let Ok(spot) = found {
                    let node = snapshot.node_at(spot.node).unwrap().node().name.clone();
                    snapshot.place(uid, &node, spot.grant.map(Arc::new), NOW).unwrap();
                }
            }
            for i in &removed {
                if let Some(pod) = pods.get(*i) {
                    snapshot.remove_pod(&pod.uid);
                    snapshot.put_pod(pod.clone());
                }
            }
        }
    }
}

/// A pod of a shape of its own.
fn of_shape(name: &str, requests: Resources, wishes: &[String]) -> Pod {
    let mut pod = Pod::new("default", name);
    let tolerated =
        |key: &String| Toleration { key: Some(key.as_str().into()), value: Default::default(), effect: None };
    let tolerations = wishes.iter().map(tolerated).collect();
    pod.spec = Arc::new(PodSpec { requests, tolerations, ..PodSpec::default() });
    pod
}

#[test]
fn as_many_shapes_as_may_be_are_remembered_and_those_that_come_again_stay() {
    let mut snapshot = cluster("node a cpu=64\nnode b cpu=64");
    let (policy, kept, mut board) = (Policy::only(Placement::Frag), Kept::default(), Board::default());
    let common = of_shape("common", Resources::of(1000, Bytes::gib(1)), &[]);
    let mut asked = 0;
    for i in 0..3 * MOST_LINES as u64 {
        for pod in [of_shape(&format!("p{i}"), Resources::of(2000, Bytes(i)), &[]), common.clone()] {
            let uid = pod.uid.clone();
            snapshot.put_pod(pod);
            let ix = snapshot.find_pod(&uid).unwrap();
            let pod = snapshot.pod_at(ix).unwrap().pod().clone();
            let attempt = Attempt::new(&snapshot, &policy, ix, &pod, &kept, NOW).unwrap();
            asked += usize::from(pod.uid == common.uid && !board.by_shape.contains_key(&Shape::of(&pod, &policy)));
            let found = attempt.recall(&mut board, None).unwrap().unwrap();
            assert_eq!(found, attempt.best().unwrap());
            snapshot.remove_pod(&uid);
        }
        assert!(board.lines.len() <= MOST_LINES && board.by_shape.len() == board.lines.len(), "after {i}");
    }
    assert!(board.lines.iter().enumerate().all(|(at, line)| board.by_shape.get(&line.shape) == Some(&at)));
    assert_eq!(asked, 1, "how often all nodes were asked for the common one");
}

#[test]
fn a_request_too_long_to_remember_is_answered_all_the_same() {
    let mut snapshot = cluster("node a cpu=64\nnode b cpu=64");
    let (policy, kept, mut board) = (Policy::only(Placement::Frag), Kept::default(), Board::default());
    for (words, remembered) in [(1, 1), (LONGEST, 1)] {
        let wishes: Vec<String> = (0..words).map(|i| format!("taint-{i}")).collect();
        let pod = of_shape("p", Resources::of(1000, Bytes(words as u64)), &wishes);
        snapshot.put_pod(pod.clone());
        let ix = snapshot.find_pod(&pod.uid).unwrap();
        let attempt = Attempt::new(&snapshot, &policy, ix, &pod, &kept, NOW).unwrap();
        assert_eq!(attempt.recall(&mut board, None).is_ok(), words == 1);
        assert_eq!(board.lines.len(), remembered);
        assert_eq!(Engine::default().find(&snapshot, &policy, ix, NOW), Some(attempt.best().unwrap()));
        snapshot.remove_pod(&pod.uid);
    }
}

#[test]
fn agents_that_make_up_models_get_no_tables_and_their_devices_are_used_all_the_same() {
    let mut snapshot = cluster("node a cpu=64 gpu=1\nwait p share=300");
    let made_up = snapshot.nodes().next().unwrap().1.node().clone();
    for i in 0..1000 {
        let mut node = made_up.clone();
        node.inventory.devices[0].model = format!("card-{i}").as_str().into();
        snapshot.put_node(node);
        if i % 200 == 0 {
            snapshot.reckon_worth();
        }
    }
    snapshot.reckon_worth();
    assert_eq!(snapshot.models().len(), 256);
    let (policy, kept, mut board) = (Policy::only(Placement::Frag), Kept::default(), Board::default());
    let (ix, state) = snapshot.waiting().next().unwrap();
    let pod = state.pod().clone();
    let attempt = Attempt::new(&snapshot, &policy, ix, &pod, &kept, NOW).unwrap();
    assert_eq!(attempt.recall(&mut board, None).unwrap(), Some(attempt.best().unwrap()));
}

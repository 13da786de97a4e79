//! A board decides as asking everybody does.

use std::sync::Arc;

use proptest::prelude::*;

use crate::laws::{policies, snapshots};
use crate::place::{Attempt, Kept};
use crate::schedule::Engine;
use crate::time::Time;

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

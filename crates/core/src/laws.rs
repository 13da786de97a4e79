//! What must hold of every cluster, whatever the pods and the policy: tried on random ones.

use std::sync::Arc;

use proptest::prelude::*;

use crate::model::ask::{Class, Gang, GpuAsk, MemoryAsk};
use crate::model::device::Device;
use crate::model::node::Node;
use crate::model::pod::{Pod, PodSpec};
use crate::model::policy::{Placement, Policy};
use crate::model::resources::Resources;
use crate::model::time::Time;
use crate::model::units::{Bytes, Share};
use crate::testing::{ask, share};
use crate::{Engine, Plan, Snapshot, audit, schedule};

const NOW: Time = Time::seconds(10_000);

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (0u32..5, 8u64..40, 4u64..64, prop::sample::select(vec!["A100", "T4"]));
    prop::collection::vec(node, 1..5).prop_map(|nodes| {
        let build = |(i, (gpus, gib, cpus, model)): (usize, (u32, u64, u64, &str))| {
            let mut node = Node::new(format!("n{i}"), Resources::of(cpus * 1000, Bytes::gib(cpus * 4)));
            node.max_pods = 6;
            for d in 0..gpus {
                let mut device = Device::gpu(format!("n{i}-{d}"), d, model, Bytes::gib(gib));
                device.max_tasks = (d % 2 == 0).then_some(3);
                node.inventory.devices.push(device);
            }
            node
        };
        nodes.into_iter().enumerate().map(build).collect()
    })
}

fn asks() -> impl Strategy<Value = Option<GpuAsk>> {
    let memory = prop_oneof![
        Just(MemoryAsk::Nothing),
        (1u64..20).prop_map(|g| MemoryAsk::Bytes(Bytes::gib(g))),
        (1u32..=1000).prop_map(|p| MemoryAsk::Part(Share(p))),
    ];
    let want =
        (1u32..4, memory, 0u32..=1000, any::<bool>(), prop::option::of(prop::sample::select(vec!["A100", "T4"])));
    prop::option::weighted(
        0.9,
        want.prop_map(|(count, memory, time, alone, model)| {
            let mut want = share(Share(time));
            (want.count, want.memory, want.exclusive) = (count, memory, alone);
            let mut ask = ask(want);
            ask.models.only = model.into_iter().map(|m| crate::model::ask::ModelPattern::Part(m.into())).collect();
            ask
        }),
    )
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let pod = (asks(), 0u64..8, 0i32..3, any::<bool>(), prop::option::weighted(0.3, 0u32..2), 0u64..100);
    prop::collection::vec(pod, 0..14).prop_map(|pods| {
        let build = |(i, (ask, cpus, priority, lesser, gang, created)): (usize, _)| {
            let mut pod = Pod::new(if i % 3 == 0 { "x" } else { "y" }, &format!("p{i:02}"));
            let ask: Option<GpuAsk> = ask;
            let gang: Option<u32> = gang;
            pod.spec = Arc::new(PodSpec {
                requests: Resources::of(cpus * 1000, Bytes::gib(cpus)),
                priority,
                ..PodSpec::default()
            });
            pod.created = Time::seconds(created);
            pod.ask = ask.map(|mut ask| {
                ask.class = Some(if lesser { Class::Opportunistic } else { Class::Guarantee });
                ask.gang = gang.map(|g| Gang { name: format!("g{g}").into(), size: 3, min: 2 });
                Arc::new(ask)
            });
            pod
        };
        pods.into_iter().enumerate().map(build).collect()
    })
}

pub(crate) fn snapshots() -> impl Strategy<Value = Snapshot> {
    (nodes(), pods()).prop_map(|(nodes, pods)| {
        let mut snapshot = Snapshot::new();
        nodes.into_iter().for_each(|node| snapshot.put_node(node));
        pods.into_iter().for_each(|pod| snapshot.put_pod(pod));
        snapshot
    })
}

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    prop::sample::select(Placement::NAMES.to_vec()).prop_map(|name| Policy::only(Placement::named(name).unwrap()))
}

/// Policies under which room is made and places are reserved: of some pods, or of all.
fn contended() -> impl Strategy<Value = Policy> {
    (policies(), prop::sample::select(vec![0u64, 9_950, 10_000, 600]), 0u32..4).prop_map(|(mut policy, after, most)| {
        (policy.queue.reserve_after, policy.queue.reservations) = (after, most);
        policy
    })
}

/// The same without gangs.
fn alone(mut snapshot: Snapshot) -> Snapshot {
    let pods: Vec<Pod> = snapshot.pods().map(|(_, state)| state.pod().clone()).collect();
    for mut pod in pods {
        pod.ask = pod.ask.map(|ask| Arc::new(GpuAsk { gang: None, ..(*ask).clone() }));
        snapshot.put_pod(pod);
    }
    snapshot
}

/// Some pods run already, lesser ones first; the others come to a cluster that is full.
fn full(mut snapshot: Snapshot, policy: &Policy, early: &[bool]) -> Snapshot {
    let lesser = |pod: &Pod| policy.class_of(pod) == Class::Opportunistic;
    let first: Vec<_> = snapshot.pods().filter(|(_, state)| lesser(state.pod())).map(|(ix, _)| ix).collect();
    let plan = Engine::default().schedule_some(&mut snapshot, policy, NOW, |ix| first.contains(&ix), usize::MAX);
    for (bind, early) in plan.binds.iter().zip(early) {
        if *early || bind.gang.is_some() {
            snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(Arc::new), Time::seconds(1)).unwrap();
        }
    }
    snapshot
}

/// Who waits for room that is being made, and where.
fn nominated(plan: &Plan) -> Vec<(crate::model::id::PodKey, crate::model::id::NodeName)> {
    let mut waits: Vec<_> =
        plan.waits.iter().filter_map(|wait| Some((wait.key.clone(), wait.nominated.clone()?))).collect();
    waits.sort();
    waits
}

fn sorted(mut reservations: Vec<crate::plan::Reservation>) -> Vec<crate::plan::Reservation> {
    reservations.sort_by(|a, b| (&a.key, &a.node).cmp(&(&b.key, &b.node)));
    reservations
}

/// Binds come true, and whoever is evicted is on its way out.
fn apply(snapshot: &mut Snapshot, plan: &Plan) {
    for eviction in &plan.evictions {
        let Some(pod) = snapshot.pod(&eviction.pod).map(|state| state.pod()) else { continue };
        let mut pod = pod.clone();
        if let crate::model::pod::State::Bound(bound) = &mut pod.state {
            bound.terminating = true;
            snapshot.put_pod(pod);
        }
    }
    for bind in &plan.binds {
        snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(Arc::new), NOW).unwrap();
    }
}

/// The longest that a small pod runs, in rounds.
const LONGEST: u64 = 6;
/// When something is kept for whoever waits, in rounds.
const RESERVE_AFTER: u64 = 10;
/// Once something is kept, whoever is in the way ends within the longest run and nobody follows; the place may change for one where less is
/// in the way, which cannot go on for ever. So many longest runs are far more than it takes.
const PATIENCE: u64 = 20;

/// A stream of small pods, which never ends, keeps all cards busy; one that wants all cards of the largest node comes after it began.
fn rounds_until_the_large_one_runs(
    cards: &[u32],
    stream: &[(u32, u64)],
    per_round: usize,
    mut policy: Policy,
) -> Option<u64> {
    policy.queue.reserve_after = RESERVE_AFTER;
    let mut snapshot = Snapshot::new();
    for (i, cards) in cards.iter().enumerate() {
        let mut node = Node::new(format!("n{i}"), Resources::of(64_000, Bytes::gib(256)));
        let device = |d: u32| Device::gpu(format!("n{i}-{d}"), d, "A100", Bytes::gib(16));
        node.inventory.devices = (0..*cards).map(device).collect();
        snapshot.put_node(node);
    }
    let mut engine = Engine::default();
    let mut running: Vec<(u64, crate::model::id::PodUid)> = Vec::new();
    let mut stream = stream.iter().cycle().enumerate();
    let large = crate::model::id::PodUid::from("x/large");
    let arrives = LONGEST;
    for round in 0..=arrives + RESERVE_AFTER + PATIENCE * LONGEST {
        let now = Time::seconds(round);
        for (_, uid) in running.extract_if(.., |(until, _)| *until <= round) {
            snapshot.remove_pod(&uid);
        }
        let mut ends = std::collections::BTreeMap::new();
        for _ in 0..per_round * cards.len() {
            let Some((number, (tenths, rounds))) = stream.next() else { break };
            let mut pod = Pod::new("x", &format!("small-{number}"));
            (pod.created, pod.ask) = (now, Some(Arc::new(ask(share(Share(tenths * 100))))));
            ends.insert(pod.uid.clone(), round + rounds);
            snapshot.put_pod(pod);
        }
        if round == arrives {
            let mut pod = Pod::new("x", "large");
            let whole = crate::model::ask::DeviceAsk::whole(cards.iter().copied().max().unwrap_or(1));
            (pod.created, pod.ask) = (now, Some(Arc::new(ask(whole))));
            snapshot.put_pod(pod);
        }
        let plan = engine.schedule(&mut snapshot, &policy, now);
        assert_eq!(audit(&snapshot, &plan), []);
        if plan.binds.iter().any(|bind| bind.pod == large) {
            return Some(round - arrives);
        }
        apply(&mut snapshot, &plan);
        running.extend(plan.binds.iter().filter_map(|bind| Some((*ends.get(&bind.pod)?, bind.pod.clone()))));
        // Small ones that found no room are lost: there are always others.
        for uid in plan.waits.into_iter().map(|wait| wait.pod).filter(|uid| *uid != large) {
            snapshot.remove_pod(&uid);
        }
    }
    None
}

fn over_committed(snapshot: &Snapshot) -> bool {
    snapshot.nodes().any(|(_, state)| {
        let total = &state.node().allocatable;
        state.books().iter().any(|book| book.overcommit().is_some())
            || state.used().cpu > total.cpu
            || state.used().memory > total.memory
            || state.pods().len() > state.node().max_pods as usize
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_ever_over_committed(mut snapshot in snapshots(), policy in policies()) {
        let plan = schedule(&snapshot, &policy, NOW);
        prop_assert_eq!(audit(&snapshot, &plan), vec![]);
        apply(&mut snapshot, &plan);
        prop_assert!(!over_committed(&snapshot));
    }

    #[test]
    fn planning_leaves_the_snapshot_as_it_was(mut snapshot in snapshots(), policy in policies()) {
        let before = snapshot.clone();
        Engine::default().schedule(&mut snapshot, &policy, NOW);
        prop_assert!(snapshot == before);
    }

    #[test]
    fn planning_again_after_applying_changes_nothing_with_evictions_and_reservations(
        snapshot in snapshots(),
        policy in contended(),
        early in prop::collection::vec(any::<bool>(), 14),
    ) {
        // A gang's members are placed one after the other, and where the first goes decides whether the last fits: with less room they
        // may happen to fit where they did not with more. What holds of gangs is the next law.
        let mut snapshot = full(alone(snapshot), &policy, &early);
        let mut engine = Engine::default();
        let plan = engine.schedule(&mut snapshot, &policy, NOW);
        prop_assert_eq!(audit(&snapshot, &plan), vec![]);
        apply(&mut snapshot, &plan);
        let again = engine.schedule(&mut snapshot, &policy, NOW);
        prop_assert_eq!((&again.binds, &again.evictions), (&vec![], &vec![]));
        prop_assert_eq!(sorted(again.reservations.clone()), sorted(plan.reservations.clone()));
        prop_assert_eq!(nominated(&again), nominated(&plan));
    }

    /// With gangs, and with moves that policy makes: somebody of higher standing may come to use the room, but nobody else is sent away for
    /// whom room is being made.
    #[test]
    fn nobody_else_has_to_go_for_whom_room_is_made(
        snapshot in snapshots(),
        policy in contended(),
        act in any::<bool>(),
        early in prop::collection::vec(any::<bool>(), 14),
    ) {
        let mut policy = policy;
        policy.defragment.act = act;
        let mut snapshot = full(snapshot, &policy, &early);
        let mut engine = Engine::default();
        let plan = engine.schedule(&mut snapshot, &policy, NOW);
        prop_assert_eq!(audit(&snapshot, &plan), vec![]);
        apply(&mut snapshot, &plan);
        let again = engine.schedule(&mut snapshot, &policy, NOW);
        prop_assert_eq!(audit(&snapshot, &again), vec![]);
        let before = nominated(&plan);
        prop_assert!(!again.evictions.iter().any(|e| before.iter().any(|(key, _)| *key == e.makes_room_for)));
    }

    #[test]
    fn what_is_kept_for_a_sleeper_stays_kept_for_it(
        snapshot in snapshots(),
        policy in contended(),
        early in prop::collection::vec(any::<bool>(), 14),
    ) {
        let mut snapshot = full(alone(snapshot), &policy, &early);
        let mut engine = Engine::default();
        let plan = engine.schedule(&mut snapshot, &policy, NOW);
        apply(&mut snapshot, &plan);
        // Those for whom nothing is kept are tried again while the others sleep: they were refused, and still are.
        let kept: Vec<_> = plan.reservations.iter().map(|r| &r.pod).chain(
            plan.waits.iter().filter(|w| w.nominated.is_some()).map(|w| &w.pod)).cloned().collect();
        let asleep: Vec<_> = kept.iter().filter_map(|uid| snapshot.find_pod(uid)).collect();
        let again = engine.schedule_some(&mut snapshot, &policy, NOW, |ix| !asleep.contains(&ix), usize::MAX);
        prop_assert_eq!((&again.binds, &again.evictions), (&vec![], &vec![]));
        // They are remembered: all awake again, nothing has changed.
        let last = engine.schedule(&mut snapshot, &policy, NOW);
        prop_assert_eq!((&last.binds, &last.evictions), (&vec![], &vec![]));
        prop_assert_eq!(sorted(last.reservations.clone()), sorted(plan.reservations.clone()));
        prop_assert_eq!(nominated(&last), nominated(&plan));
    }

    #[test]
    fn planning_again_after_applying_changes_nothing(mut snapshot in snapshots(), policy in policies()) {
        let plan = schedule(&snapshot, &policy, NOW);
        // An engine that remembers nothing does not know what was kept for whom.
        let settled = plan.reservations.is_empty() && plan.evictions.is_empty();
        apply(&mut snapshot, &plan);
        let again = schedule(&snapshot, &policy, NOW);
        if settled {
            prop_assert_eq!(again.binds, vec![]);
        }
    }

    #[test]
    fn a_least_runtime_never_outlasts_the_policys_ceiling(
        said in prop::option::of(any::<u64>()),
        classes in any::<(bool, Option<bool>, bool)>(),
        (min_runtime, max_min_runtime) in any::<(u32, u32)>(),
    ) {
        let class = |opportunistic| if opportunistic { Class::Opportunistic } else { Class::Guarantee };
        let (asked, now, usual) = (class(classes.0), classes.1.map(class), class(classes.2));
        let (min, max) = (u64::from(min_runtime), u64::from(max_min_runtime));
        let mut policy = Policy { class: usual, ..Policy::default() };
        (policy.preemption.min_runtime, policy.preemption.max_min_runtime) = (min, max);
        let mut ask = ask(share(Share(300)));
        (ask.min_runtime, ask.class) = (said, Some(asked));
        let mut pod = Pod::new("x", "p");
        (pod.ask, pod.class) = (Some(Arc::new(ask)), now);
        let protects = policy.protects(&pod);
        prop_assert!(protects <= min.max(max));
        // Whoever is opportunistic, by his own choice or since his budget is spent, has what everybody has.
        prop_assert!(protects == min || (policy.class_of(&pod) == Class::Guarantee && protects <= max));
    }

    #[test]
    fn the_same_snapshot_gives_the_same_plan(snapshot in snapshots(), policy in policies()) {
        let plan = schedule(&snapshot, &policy, NOW);
        prop_assert_eq!(&plan, &schedule(&snapshot, &policy, NOW));
        let text = serde_json::to_string(&snapshot.record()).unwrap();
        let restored = serde_json::from_str::<crate::ledger::snapshot::Record>(&text).unwrap().restore().unwrap();
        prop_assert_eq!(plan, schedule(&restored, &policy, NOW));
    }

    #[test]
    fn rollback_is_identity(mut snapshot in snapshots(), policy in policies(), evicted in prop::collection::vec(0usize..14, 0..6)) {
        let plan = schedule(&snapshot, &policy, NOW);
        let half = plan.binds.len() / 2;
        apply(&mut snapshot, &Plan { binds: plan.binds[..half].to_vec(), ..Plan::default() });
        let before = snapshot.clone();
        let outer = snapshot.checkpoint();
        for i in &evicted {
            if let Some(bind) = plan.binds[..half].get(*i) {
                snapshot.evict(&bind.pod);
            }
        }
        let inner = snapshot.checkpoint();
        apply(&mut snapshot, &Plan { binds: plan.binds[half..].to_vec(), ..Plan::default() });
        snapshot.commit(inner);
        snapshot.rollback(outer);
        prop_assert!(snapshot == before);
    }

    #[test]
    fn taking_and_returning_everything_leaves_idle_devices(mut snapshot in snapshots(), policy in policies()) {
        let plan = schedule(&snapshot, &policy, NOW);
        apply(&mut snapshot, &plan);
        for bind in &plan.binds {
            snapshot.remove_pod(&bind.pod);
        }
        let idle = snapshot.nodes().all(|(_, s)| s.books().iter().all(|b| b.is_idle() && b.free_share() == b.share && b.slots == 0));
        prop_assert!(idle && snapshot.held().is_empty());
    }

    #[test]
    fn nobody_is_evicted_in_vain(mut snapshot in snapshots(), mut policy in policies(), bound in prop::collection::vec(any::<bool>(), 14)) {
        // Some pods run first, lesser ones too; the others come to a cluster that is full.
        let plan = schedule(&snapshot, &policy, NOW);
        for (bind, stays) in plan.binds.iter().zip(&bound) {
            if *stays {
                snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(Arc::new), Time::seconds(1)).unwrap();
            }
        }
        policy.defragment.propose = false;
        let plan = schedule(&snapshot, &policy, NOW);
        prop_assert_eq!(audit(&snapshot, &plan), vec![]);
        for eviction in &plan.evictions {
            snapshot.remove_pod(&eviction.pod);
        }
        apply(&mut snapshot, &plan);
        for wait in plan.waits.iter().filter(|wait| wait.nominated.is_some()) {
            let ix = snapshot.find_pod(&wait.pod).unwrap();
            let nominated = snapshot.find_node(wait.nominated.as_ref().unwrap()).unwrap();
            let spot = crate::schedule::ask_some(&snapshot, &policy, ix, [nominated], NOW).unwrap().remove(0).1;
            prop_assert!(spot.is_ok(), "{} was made room for and does not fit: {:?}", wait.key, spot);
            let (spot, node) = (spot.unwrap(), wait.nominated.clone().unwrap());
            snapshot.place(&wait.pod, &node, spot.grant.map(Arc::new), NOW).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_waits_runs_in_bounded_time_however_many_small_pods_keep_coming(
        cards in prop::collection::vec(1u32..5, 1..4),
        stream in prop::collection::vec((1u32..=10, 1u64..=LONGEST), 30..60),
        per_round in 1usize..5,
        policy in policies(),
    ) {
        prop_assert!(rounds_until_the_large_one_runs(&cards, &stream, per_round, policy).is_some());
    }
}

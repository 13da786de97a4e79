mod resize;

use std::collections::BTreeMap;

use divvy_api::reader::PodReader;
use divvy_api::wire;
use divvy_cluster::change::{Change, Kind};
use divvy_cluster::effect::{Bind, Effect, Evict, Failure};
use divvy_core::device::{Device, DeviceKind, Inventory};
use divvy_core::grant::{Grant, Slice};
use divvy_core::keys;
use divvy_core::kind::{DeviceScheduler, Gpu, Kinds, Want};
use divvy_core::reason::Obstacle;
use divvy_core::time::Time;
use divvy_core::units::Share;
use serde_json::{Value, json};

use super::*;
use crate::extender::Wanted;

/// A world with this many nodes of two GPUs each, led by us.
fn world(nodes: u32) -> World {
    let mut world = World::new(keys::SCHEDULER);
    for kind in Kind::ALL {
        world.apply(Change::Complete(kind, 0), Time(0));
    }
    for n in 0..nodes {
        world.apply(node(&format!("n{n}"), 1, 2, &[]), Time(0));
    }
    world.take_lead(Time(0));
    world
}

fn node(name: &str, generation: u64, gpus: u32, refused: &[(&str, &str)]) -> Change {
    let devices: Vec<Value> = (0..gpus)
        .map(|i| json!({"id": format!("{name}-{i}"), "index": i, "model": "NVIDIA-H200", "memory": 1u64 << 37, "isolation": ["intercept"]}))
        .collect();
    let refused: BTreeMap<&str, &str> = refused.iter().copied().collect();
    let inventory = json!({"v": 1, "generation": generation, "devices": devices, "refused": refused}).to_string();
    let object: wire::Node = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {(keys::INVENTORY): inventory}},
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", (keys::SLOT): "32"}},
    }))
    .unwrap();
    let (node, problem) = divvy_api::convert::node(object);
    Change::Node(Box::new(node), problem)
}

fn pod(name: &str, version: u32, share: u32, more: Value) -> Value {
    let ask =
        json!({"v": 1, "dialect": "native", "containers": [{"name": "c", "wants": [{"count": 1, "share": share}]}]});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
                     "annotations": {(keys::ASK): ask.to_string()}},
        "spec": {"schedulerName": keys::SCHEDULER,
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", (keys::SLOT): "1"}}}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, more);
    pod
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn seen(pod: Value) -> Change {
    Change::Pod(Box::new(PodReader::default().read(serde_json::from_value(pod).unwrap())))
}

fn binds(effects: &[Effect]) -> Vec<&Bind> {
    effects.iter().filter_map(|e| if let Effect::Bind(bind) = e { Some(bind) } else { None }).collect()
}

fn evictions(effects: &[Effect]) -> Vec<&Evict> {
    effects.iter().filter_map(|e| if let Effect::Evict(evict) = e { Some(evict) } else { None }).collect()
}

fn grant(bind: &Bind) -> Grant {
    serde_json::from_str(&bind.annotations[keys::GRANT]).unwrap()
}

/// The pod as the API server shows it once the bind happened.
fn as_bound(pod: Value, bind: &Bind, version: u32) -> Value {
    let mut pod = pod;
    merge(
        &mut pod,
        json!({"metadata": {"resourceVersion": version.to_string(), "annotations": {(keys::GRANT): bind.annotations[keys::GRANT]}},
               "spec": {"nodeName": bind.node}}),
    );
    pod
}

/// A pod that another scheduler places, as the API server shows it to us, too.
fn theirs(world: &mut World, name: &str, share: u32) -> PodUid {
    world.apply(seen(pod(name, 1, share, json!({"spec": {"schedulerName": "default-scheduler"}}))), Time(1));
    format!("uid-{name}").into()
}

fn decide(world: &mut World) -> Vec<Effect> {
    world.decide(Time(1_000), 100);
    world.take_effects()
}

#[test]
fn a_waiting_pod_is_bound_with_its_grant_on_the_version_it_was_decided_on() {
    let mut world = world(1);
    world.apply(seen(pod("a", 7, 300, json!({}))), Time(1));
    let effects = decide(&mut world);
    let [bind] = binds(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((bind.version.as_str(), bind.node.as_str(), bind.target.uid.as_str()), ("7", "n0", "uid-a"));
    assert_eq!(grant(bind).containers[0].slices[0].share.0, 300);
    assert!(decide(&mut world).is_empty(), "a bind under way is not decided again");
    world.done(&effects[0], Ok(()), Time(2));
    world.apply(seen(as_bound(pod("a", 7, 300, json!({})), bind, 8)), Time(3));
    assert!(world.entries().is_empty());
    assert_eq!(world.counts.attempts, 1);
}

/// GPUs of which a certain share is given short: a mistake that only the audit sees.
#[derive(Debug)]
struct Short;

impl DeviceScheduler for Short {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle> {
        let mut slice = Gpu.slice(device, inventory, want, taken)?;
        if slice.share == Share(666) {
            slice.share = Share(1);
        }
        Ok(slice)
    }
}

#[test]
fn a_plan_that_the_audit_refuses_costs_only_the_pod_that_it_names() {
    let mut world = World { snapshot: Snapshot::with_kinds(Kinds(&[&Short])), ..World::new(keys::SCHEDULER) };
    world.apply(node("n0", 1, 2, &[]), Time(0));
    world.take_lead(Time(0));
    for (name, share) in [("a", 300), ("short", 666), ("b", 300)] {
        world.apply(seen(pod(name, 1, share, json!({}))), Time(1));
    }
    let effects = decide(&mut world);
    let names: Vec<&str> = binds(&effects).iter().map(|bind| &*bind.target.pod.name).collect();
    assert_eq!((names, world.counts.violations), (vec!["a", "b"], 1));
    // It is not tried again at once, and keeps nobody who comes from a place.
    world.apply(seen(pod("c", 1, 300, json!({}))), Time(2));
    assert_eq!(binds(&decide(&mut world)).len(), 1);
    assert_eq!(world.counts.violations, 1);
    assert!(matches!(world.entries()["uid-short"].stand, Stand::Resting(_)));
}

#[test]
fn shares_of_binds_under_way_are_taken_already() {
    let mut world = world(1);
    for name in ["a", "b", "c", "d", "e"] {
        world.apply(seen(pod(name, 1, 600, json!({}))), Time(1));
    }
    let effects = decide(&mut world);
    assert_eq!(binds(&effects).len(), 2, "one per card");
}

#[test]
fn a_conflict_is_looked_at_and_the_pod_tried_on_its_new_version() {
    let mut world = world(1);
    world.apply(seen(pod("a", 7, 300, json!({}))), Time(1));
    let effects = decide(&mut world);
    world.done(&effects[0], Err(Failure::Conflict { message: "changed".into() }), Time(2));
    let looks = world.take_looks();
    assert_eq!(looks.len(), 1);
    assert!(decide(&mut world).is_empty(), "nothing is decided about a pod in doubt");
    let found = PodReader::default().read(serde_json::from_value(pod("a", 9, 300, json!({}))).unwrap());
    world.looked_at(&looks[0], Ok(Some(Box::new(found))), Time(3));
    let effects = decide(&mut world);
    assert_eq!(binds(&effects)[0].version, "9");
}

#[test]
fn a_lost_answer_keeps_the_place_until_it_is_known_what_happened() {
    let mut world = world(1);
    world.apply(seen(pod("a", 7, 1000, json!({}))), Time(1));
    world.apply(seen(pod("b", 7, 1000, json!({}))), Time(1));
    let effects = decide(&mut world);
    let bind = (*binds(&effects)[0]).clone();
    let name = bind.target.pod.name.to_string();
    world.done(&Effect::Bind(bind.clone()), Err(Failure::Unavailable { message: "reset".into() }), Time(2));
    world.apply(seen(pod("c", 1, 1000, json!({}))), Time(3));
    assert!(binds(&decide(&mut world)).is_empty(), "both cards are held");
    // It had happened after all.
    let looks = world.take_looks();
    let bound = as_bound(pod(&name, 7, 1000, json!({})), &bind, 8);
    let found = PodReader::default().read(serde_json::from_value(bound).unwrap());
    world.looked_at(&looks[0], Ok(Some(Box::new(found))), Time(4));
    assert!(!world.entries().contains_key(&bind.target.uid));
    assert!(binds(&decide(&mut world)).is_empty());
}

#[test]
fn a_bind_that_is_refused_rests_longer_each_time_and_lets_others_pass() {
    let mut world = world(1);
    world.apply(seen(pod("a", 7, 300, json!({}))), Time(0));
    let mut at = 1_000;
    let mut rests = Vec::new();
    for _ in 0..4 {
        world.decide(Time(at), 10);
        let effects = world.take_effects();
        let bind = effects.iter().find(|e| matches!(e, Effect::Bind(_))).expect("tried again").clone();
        world.done(&bind, Err(Failure::Refused { code: 403, message: "a webhook says no".into() }), Time(at));
        let told: Vec<Effect> = world.take_effects();
        assert!(told.iter().any(|e| matches!(e, Effect::Tell(event) if event.message.contains("a webhook says no"))));
        let began = at;
        while !world.has_awake() {
            at += 100;
            world.tick(Time(at));
        }
        rests.push(at - began);
    }
    assert_eq!(rests, [500, 1000, 2000, 4000]);
}

#[test]
fn a_hundred_unrelated_events_cause_no_attempt_and_one_relevant_event_causes_one() {
    let mut world = world(2);
    for name in ["a", "b", "c", "d"] {
        world.apply(seen(pod(name, 1, 1000, json!({}))), Time(1));
    }
    let effects = decide(&mut world);
    let placed: Vec<Bind> = binds(&effects).into_iter().cloned().collect();
    assert_eq!(placed.len(), 4);
    for bind in &placed {
        let before = pod(&bind.target.pod.name, 1, 1000, json!({}));
        world.apply(seen(as_bound(before, bind, 2)), Time(2));
    }
    world.apply(seen(pod("waits", 1, 1000, json!({}))), Time(3));
    decide(&mut world);
    let before = world.counts.attempts;
    for n in 0..100u32 {
        match n % 5 {
            // a plain pod of another scheduler comes, runs, and goes
            0 => world.apply(
                seen(json!({"metadata": {"name": format!("x{n}"), "namespace": "o", "uid": format!("x{n}")},
                    "spec": {"nodeName": "n0", "schedulerName": "default-scheduler", "containers": [{"name": "c"}]}})),
                Time(u64::from(n)),
            ),
            1 => world.apply(Change::PodGone(format!("x{}", n - 1).into()), Time(u64::from(n))),
            // a running pod's labels change, our own condition comes back, a node reports the same devices again
            2 => {
                let bind = &placed[(n as usize / 5) % 4];
                let more = json!({"metadata": {"labels": {"n": n.to_string()}}});
                let changed = as_bound(pod(&bind.target.pod.name, 1, 1000, more), bind, 10 + n);
                world.apply(seen(changed), Time(u64::from(n)));
            }
            3 => world.apply(
                seen(pod(
                    "waits",
                    10 + n,
                    1000,
                    json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}),
                )),
                Time(u64::from(n)),
            ),
            _ => world.apply(node("n1", 2 + u64::from(n), 2, &[]), Time(u64::from(n))),
        }
        decide(&mut world);
    }
    assert_eq!(world.counts.attempts, before, "nothing that happened could help the pod that waits");
    world.apply(Change::PodGone(placed[0].target.uid.clone()), Time(200));
    let effects = decide(&mut world);
    assert_eq!(world.counts.attempts, before + 1);
    assert_eq!(binds(&effects)[0].target.pod.name.as_ref(), "waits");
}

#[test]
fn a_thousand_like_pods_that_fit_nowhere_are_tried_once() {
    let mut world = world(1);
    for n in 0..1000 {
        world.apply(seen(pod(&format!("p{n:03}"), 1, 1000, json!({}))), Time(n));
        decide(&mut world);
    }
    assert_eq!(world.counts.placed, 2);
    assert!(world.counts.attempts <= 3, "{} attempts", world.counts.attempts);
    // A card comes free: the oldest takes it, the next is tried in vain, the rest sleep on.
    world.apply(Change::PodGone("uid-p000".into()), Time(5_000));
    let before = world.counts.attempts;
    let mut bound = Vec::new();
    for _ in 0..5 {
        bound.extend(binds(&decide(&mut world)).into_iter().map(|b| b.target.pod.name.to_string()));
    }
    assert_eq!(bound, ["p002"]);
    assert_eq!(world.counts.attempts - before, 2);
}

#[test]
fn a_refused_grant_is_void_and_its_pod_is_evicted_with_the_reason() {
    let mut world = world(1);
    world.apply(seen(pod("a", 1, 1000, json!({}))), Time(1));
    let effects = decide(&mut world);
    let bind = (*binds(&effects)[0]).clone();
    world.apply(seen(as_bound(pod("a", 1, 1000, json!({})), &bind, 2)), Time(2));
    world.apply(node("n0", 2, 2, &[("uid-a", "the card is full")]), Time(3));
    let effects = world.take_effects();
    let [evict] = evictions(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(evict.reason, "node n0 refused its grant: the card is full");
    // Void: two more whole cards fit.
    world.apply(seen(pod("b", 1, 1000, json!({}))), Time(4));
    world.apply(seen(pod("c", 1, 1000, json!({}))), Time(4));
    assert_eq!(binds(&decide(&mut world)).len(), 2);
    // The API server is busy: it is asked again.
    let evict = Effect::Evict((*evict).clone());
    world.done(&evict, Err(Failure::Unavailable { message: "busy".into() }), Time(5));
    world.tick(Time(3_000));
    assert_eq!(evictions(&world.take_effects()).len(), 1);
}

#[test]
fn a_pod_on_a_failed_device_is_evicted_where_its_node_says_so_and_no_other_nodes_pod_is() {
    let mut world = world(2);
    world.apply(seen(pod("a", 1, 1000, json!({}))), Time(1));
    let effects = decide(&mut world);
    let bind = (*binds(&effects)[0]).clone();
    let (here, elsewhere) = if bind.node.as_str() == "n0" { ("n0", "n1") } else { ("n1", "n0") };
    world.apply(seen(as_bound(pod("a", 1, 1000, json!({})), &bind, 2)), Time(2));
    let says = |name: &str| {
        let Change::Node(mut said, problem) = node(name, 2, 2, &[]) else { panic!("no node") };
        said.inventory.evict = [("uid-a".to_owned(), "GPU-1: XID 79".to_owned())].into();
        Change::Node(said, problem)
    };
    world.apply(says(elsewhere), Time(3));
    assert!(evictions(&world.take_effects()).is_empty(), "it is not {elsewhere}'s pod");
    world.apply(says(here), Time(4));
    let effects = world.take_effects();
    let [evict] = evictions(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(evict.reason, format!("a device of its node {here} failed: GPU-1: XID 79"));
    // A disruption budget forbids it: it is asked for again, however often.
    let evict = Effect::Evict((*evict).clone());
    for n in 1..100 {
        world.done(&evict, Err(Failure::Blocked { message: "a budget".into() }), Time(n * 10_000));
        world.tick(Time(n * 10_000 + 9_000));
        assert_eq!(evictions(&world.take_effects()).len(), 1, "{n}");
    }
}

#[test]
fn another_scheduler_is_told_the_best_of_what_it_offers_and_that_as_nodes_change() {
    let mut world = world(3);
    let names = |of: &[u32]| of.iter().map(|n| format!("n{n}")).collect::<Vec<_>>();
    let ask = |world: &mut World, name: &str, of: &[u32]| {
        let uid = theirs(world, name, 1000);
        world.filter(&uid, names(of), Wanted::Best, Time(1))
    };
    assert_eq!(ask(&mut world, "a", &[2, 1, 0]).fit, ["n0"]);
    assert_eq!(ask(&mut world, "b", &[2, 1]).fit, ["n1"], "only of those that are offered");
    // Asked about is not held: two bind to the first node, and it is full.
    for name in ["a", "b"] {
        world.bind_for(&format!("uid-{name}").into(), &"n0".into(), Time(3)).unwrap();
    }
    assert_eq!(ask(&mut world, "c", &[2, 1, 0]), Advice { fit: names(&[1]), ..Advice::default() });
    let none = ask(&mut world, "d", &[0]);
    assert_eq!((none.fit, none.refused["n0"].why), (Vec::new(), Why::Full));
    world.apply(Change::PodGone("uid-a".into()), Time(6));
    assert_eq!(ask(&mut world, "e", &[0, 1, 2]).fit, ["n0"], "what is left of a node goes first");
    world.apply(Change::NodeGone("n2".into()), Time(8));
    assert_eq!(ask(&mut world, "f", &[2]).refused["n2"].why, Why::Unknown);
    let uid = theirs(&mut world, "g", 1000);
    assert_eq!(world.filter(&uid, names(&[1, 0]), Wanted::Each, Time(9)).fit, ["n1", "n0"]);
}

#[test]
fn a_question_about_a_pod_that_the_api_server_never_showed_changes_nothing() {
    let mut world = world(1);
    for name in ["a", "b"] {
        let more = json!({"metadata": {"annotations": {(keys::CLASS_NOW): "opportunistic"}}});
        world.apply(seen(pod(name, 1, 1000, more)), Time(1));
    }
    let effects = decide(&mut world);
    for (n, effect) in effects.iter().enumerate() {
        world.done(effect, Ok(()), Time(2 + n as u64));
    }
    world.take_effects();
    let before = (world.snapshot().clone(), world.entries().len(), world.counts);
    let made_up: PodUid = "made-up".into();
    for wanted in [Wanted::Best, Wanted::Each, Wanted::One] {
        assert!(world.filter(&made_up, vec!["n0".to_owned()], wanted, Time(9)).fit.is_empty());
    }
    let victims = vec![("n0".to_owned(), vec!["uid-a".into(), "uid-b".into()])];
    assert!(world.preempt(&made_up, victims, Time(9)).is_empty());
    assert_eq!(world.prioritize(&made_up, &["n0".to_owned()], 10), [0]);
    assert!(world.bind_for(&made_up, &"n0".into(), Time(9)).is_err());
    assert!(decide(&mut world).is_empty(), "nobody is bound, nobody leaves");
    assert_eq!((world.snapshot().clone(), world.entries().len(), world.counts), before);
    assert!(!world.knows(&made_up) && !world.has_advice(&made_up));
}

#[test]
fn another_scheduler_is_told_on_which_nodes_its_victims_make_room_and_nobody_leaves_yet() {
    let mut world = world(2);
    // The first node has two whole cards taken, the second one and a half.
    for (name, share, node) in [("a", 1000, "n0"), ("b", 1000, "n0"), ("c", 1000, "n1"), ("d", 500, "n1")] {
        let uid = theirs(&mut world, name, share);
        world.filter(&uid, vec![node.to_owned()], Wanted::Best, Time(1));
        world.bind_for(&uid, &node.into(), Time(2)).unwrap();
    }
    let (whole, half) = (theirs(&mut world, "whole", 1000), theirs(&mut world, "half", 500));
    let offers = || vec![("n0".to_owned(), vec!["uid-b".into()]), ("n1".to_owned(), Vec::new())];
    assert_eq!(world.preempt(&whole, offers(), Time(3)), [("n0".to_owned(), vec!["uid-b".into()])]);
    assert_eq!(world.preempt(&half, offers(), Time(3)), offers());
    let still = world.filter(&whole, vec!["n0".to_owned()], Wanted::Best, Time(4));
    assert_eq!((still.fit, still.refused["n0"].why), (Vec::new(), Why::Full), "it was only tried out");
}

/// A world of one node, full of pods of the lesser class, in which a pod with a guarantee waits that a disruption budget keeps waiting.
fn kept_by_a_budget() -> World {
    let mut world = world(1);
    let budget = json!({"metadata": {"name": "keep", "namespace": "team"},
                        "spec": {"selector": {"matchLabels": {"app": "lesser"}}}, "status": {"disruptionsAllowed": 0}});
    world.apply(Change::Budget(divvy_api::convert::budget(serde_json::from_value(budget).unwrap())), Time(0));
    let more = json!({"metadata": {"labels": {"app": "lesser"}, "annotations": {(keys::CLASS_NOW): "opportunistic"}}});
    for name in ["a", "b"] {
        world.apply(seen(pod(name, 1, 1000, more.clone())), Time(1));
    }
    let effects = decide(&mut world);
    for bind in binds(&effects) {
        let before = pod(&bind.target.pod.name, 1, 1000, more.clone());
        world.apply(seen(as_bound(before, bind, 2)), Time(2));
    }
    let greater = json!({"metadata": {"annotations": {(keys::CLASS_NOW): "guarantee"}}});
    world.apply(seen(pod("greater", 1, 1000, greater)), Time(3));
    assert!(evictions(&decide(&mut world)).is_empty());
    world
}

#[test]
fn a_pod_that_a_disruption_budget_keeps_waiting_is_tried_when_the_budget_goes() {
    let mut world = kept_by_a_budget();
    let before = world.counts.attempts;
    world.apply(Change::BudgetGone("other".into(), "keep".into()), Time(4));
    assert!(evictions(&decide(&mut world)).is_empty());
    assert_eq!(world.counts.attempts, before, "a budget of other pods is none of its business");
    world.apply(Change::BudgetGone("team".into(), "keep".into()), Time(5));
    assert_eq!(evictions(&decide(&mut world)).len(), 1);
    assert_eq!(world.counts.attempts, before + 1);
}

#[test]
fn an_eviction_that_is_always_refused_is_given_up_and_the_pod_tried_anew() {
    let mut world = kept_by_a_budget();
    world.apply(Change::BudgetGone("team".into(), "keep".into()), Time(5));
    let effects = decide(&mut world);
    let evict = Effect::Evict((*evictions(&effects)[0]).clone());
    // Another budget came meanwhile, of which the API server knows first.
    let blocked = || Err(Failure::Blocked { message: "disruption budget".into() });
    for n in 0..5 {
        world.done(&evict, blocked(), Time(10_000 + n));
    }
    let before = world.counts.attempts;
    decide(&mut world);
    assert_eq!(world.counts.attempts, before + 1);
}

/// A member of a gang of four that each want a whole card, created at this second.
fn member(name: &str, created: &str) -> Value {
    let ask = json!({"v": 1, "dialect": "native", "gang": {"name": "g", "size": 4, "min": 4},
                     "containers": [{"name": "c", "wants": [{"count": 1, "share": 1000}]}]});
    let more = json!({"metadata": {"creationTimestamp": created, "annotations": {(keys::ASK): ask.to_string()}}});
    pod(name, 1, 1000, more)
}

/// A world in which a scheduler died after it had bound two members of a gang of four.
fn torn(nodes: u32, created_of_the_rest: &str) -> World {
    let mut before = world(2);
    let names = ["a", "b", "c", "d"];
    for name in names {
        before.apply(seen(member(name, "1970-01-01T00:00:00Z")), Time(1));
    }
    let effects = decide(&mut before);
    let placed = binds(&effects);
    assert_eq!(placed.len(), 4);
    let mut after = world(nodes);
    for name in names {
        let bind = placed.iter().find(|b| b.target.pod.name.as_ref() == name && b.node.as_str() == "n0");
        after.apply(
            seen(match bind {
                Some(bind) => as_bound(member(name, "1970-01-01T00:00:00Z"), bind, 2),
                None => member(name, created_of_the_rest),
            }),
            Time(2_000),
        );
    }
    after
}

#[test]
fn a_gang_that_was_bound_in_part_is_completed_when_there_is_room() {
    let mut world = torn(2, "1970-01-01T00:00:00Z");
    assert_eq!(binds(&decide(&mut world)).len(), 2);
    world.tick(Time(60_000));
    assert!(evictions(&world.take_effects()).is_empty());
}

#[test]
fn a_gang_that_was_bound_in_part_and_cannot_be_completed_leaves_as_a_whole() {
    let mut world = torn(1, "1970-01-01T00:00:00Z");
    assert!(binds(&decide(&mut world)).is_empty());
    world.tick(Time(3_000));
    world.tick(Time(10_000));
    assert!(evictions(&world.take_effects()).is_empty(), "it has two seconds per member");
    world.tick(Time(11_000));
    let effects = world.take_effects();
    let evicted = evictions(&effects);
    assert_eq!(evicted.len(), 2);
    let said =
        "its gang g could not be completed: 2 of at least 4 members were bound, and there was no room for more in 8 s";
    assert_eq!(evicted[0].reason, said);
}

/// A member of a group of KubeShare that waits for this many.
fn of_group(name: &str, min: u32) -> Value {
    let ask = json!({"v": 1, "dialect": "kubeshare", "gang": {"name": "g", "size": min.max(1), "min": min},
                     "containers": [{"name": "c", "wants": [{"count": 1, "share": 300}]}]});
    let more = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z", "annotations": {(keys::ASK): ask.to_string()}}});
    pod(name, 1, 300, more)
}

#[test]
fn an_odd_pod_does_not_tear_the_group_that_runs_without_it() {
    let mut world = world(1);
    for (name, min) in [("a", 2), ("b", 2), ("odd", 3)] {
        world.apply(seen(of_group(name, min)), Time(1));
    }
    assert_eq!(binds(&decide(&mut world)).len(), 2);
    world.tick(Time(60_000));
    world.tick(Time(120_000));
    assert!(evictions(&world.take_effects()).is_empty());
}

#[test]
fn whoever_only_names_the_group_starts_at_once_and_wakes_those_who_waited_for_one_more() {
    let mut world = world(1);
    world.apply(seen(of_group("a", 2)), Time(1));
    assert!(binds(&decide(&mut world)).is_empty());
    world.apply(seen(of_group("ps", 0)), Time(2));
    let mut bound = binds(&decide(&mut world)).len();
    bound += binds(&decide(&mut world)).len();
    assert_eq!(bound, 2);
}

#[test]
fn ks_28_a_bound_pod_names_its_cell_as_the_policys_file_does() {
    let mut world = world(1);
    let mut policy = ClusterPolicy::default();
    let file = json!({"cellTypes": {"NODE": {"childCellType": "NVIDIA-H200", "childCellNumber": 2, "isNodeLevel": true},
                                    "ROW": {"childCellType": "NODE", "childCellNumber": 1}},
                      "cells": [{"cellType": "ROW", "cellChildren": [{"cellId": "n0"}]}]});
    policy.scheduling.cells = Some(serde_json::from_value(file).unwrap());
    world.apply(Change::Policy(1, Ok(Arc::new(policy))), Time(1));
    world.apply(seen(of_group("a", 0)), Time(1));
    let effects = decide(&mut world);
    assert_eq!(binds(&effects)[0].annotations[keys::KUBESHARE_CELL_ID], "1/n0/2");
}

#[test]
fn a_gang_that_was_whole_and_lost_members_waits_for_their_successors() {
    let mut world = torn(1, "1970-01-01T00:01:00Z");
    decide(&mut world);
    world.tick(Time(100_000));
    world.tick(Time(200_000));
    assert!(evictions(&world.take_effects()).is_empty());
}

/// Three of a Job's gang have ended well, and the fourth failed: its successor runs. One of a Job that runs once more does not.
#[test]
fn ks_17_who_comes_after_members_that_ended_well_waits_for_nobody_and_a_new_run_starts_together() {
    let of_job = |name: &str, job: &str| {
        let mut pod = member(name, "1970-01-01T00:00:00Z");
        pod["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "j", "uid": job, "controller": true}]);
        pod
    };
    let finished = |pod: Value| {
        Change::Finished(Box::new(divvy_api::convert::pod(serde_json::from_value(pod).unwrap(), |_| false).pod))
    };
    let mut world = world(1);
    for name in ["a", "b"] {
        world.apply(finished(of_job(name, "job")), Time(1));
    }
    world.apply(seen(of_job("again", "job")), Time(2));
    let effects = decide(&mut world);
    assert!(binds(&effects).is_empty());
    let told =
        |effect: &Effect| matches!(effect, Effect::Explain(explain) if explain.message.contains("has 3 of 4 members"));
    assert!(effects.iter().any(told), "{effects:?}");
    world.apply(finished(of_job("c", "job")), Time(3));
    assert_eq!(binds(&decide(&mut world)).len(), 1, "three have ended well, and it is the fourth");
    world.apply(finished(of_job("again", "job")), Time(4));
    world.apply(Change::PodGone("uid-again".into()), Time(4));
    world.apply(seen(of_job("new", "job, once more")), Time(5));
    assert!(binds(&decide(&mut world)).is_empty());
}

#[test]
fn a_stale_or_broken_inventory_costs_the_node_its_devices_and_is_told_once() {
    let mut world = world(0);
    world.apply(node("n0", 5, 2, &[]), Time(1));
    world.apply(node("n0", 4, 2, &[]), Time(2));
    world.apply(node("n0", 4, 2, &[]), Time(3));
    let told: Vec<String> = world
        .take_effects()
        .into_iter()
        .filter_map(|e| if let Effect::Tell(event) = e { Some(event.message) } else { None })
        .collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("stale (generation 4 after 5)"), "{told:?}");
    world.apply(seen(pod("a", 1, 300, json!({}))), Time(4));
    assert!(binds(&decide(&mut world)).is_empty());
    world.apply(node("n0", 6, 2, &[]), Time(5));
    assert_eq!(binds(&decide(&mut world)).len(), 1, "a newer inventory brings the devices back");
}

#[test]
fn a_pod_that_came_past_the_webhook_waits_with_the_webhooks_words() {
    let mut world = world(1);
    let mut past = pod("a", 1, 300, json!({}));
    past["metadata"]["annotations"] = json!({});
    past["spec"]["containers"][0]["resources"] = json!({"limits": {(keys::GPU_SHARE): "3000"}});
    world.apply(seen(past), Time(1));
    let effects = decide(&mut world);
    let told = effects
        .iter()
        .find_map(|e| if let Effect::Explain(explain) = e { Some(explain.message.clone()) } else { None });
    assert!(told.as_ref().is_some_and(|t| t.contains(keys::GPU_SHARE)), "{told:?}");
    assert!(binds(&effects).is_empty());
}

#[test]
fn people_are_told_once_per_reason_and_not_too_often() {
    let mut world = world(0);
    world.apply(seen(pod("a", 1, 300, json!({}))), Time(1));
    world.decide(Time(10_000), 10);
    let explained = |effects: &[Effect]| effects.iter().filter(|e| matches!(e, Effect::Explain(_))).count();
    assert_eq!(explained(&world.take_effects()), 1);
    // A node comes that does not help: another sentence, but the first was told a moment ago.
    let (mut small, _) = (node("n0", 1, 0, &[]), ());
    if let Change::Node(node, _) = &mut small {
        node.allocatable.cpu = 1;
    }
    world.apply(small, Time(10_100));
    world.apply(
        Change::Policy(
            1,
            Ok(std::sync::Arc::new(divvy_api::policy::ClusterPolicy {
                scheduling: divvy_core::Policy { max_tasks: Some(3), ..Default::default() },
                ..Default::default()
            })),
        ),
        Time(10_200),
    );
    world.decide(Time(10_300), 10);
    assert_eq!(explained(&world.take_effects()), 0);
    world.tick(Time(15_100));
    assert_eq!(explained(&world.take_effects()), 1);
    world.tick(Time(30_000));
    assert_eq!(explained(&world.take_effects()), 0);
}

#[test]
fn a_follower_keeps_up_and_does_nothing_until_it_leads() {
    let mut world = world(1);
    world.follow();
    world.apply(seen(pod("a", 1, 300, json!({}))), Time(1));
    world.apply(node("n0", 2, 2, &[("uid-gone", "old")]), Time(2));
    assert!(evictions(&world.take_effects()).is_empty());
    world.take_lead(Time(3));
    assert_eq!(binds(&decide(&mut world)).len(), 1);
}

/// A pod of its own age and standing, of which nothing is told by others of its shape.
fn aged(name: &str, share: u32, created: &str) -> Change {
    seen(pod(name, 1, share, json!({"metadata": {"creationTimestamp": created}})))
}

#[test]
fn who_has_waited_long_is_woken_and_not_overtaken_by_those_who_come_while_it_sleeps() {
    let mut world = world(1);
    for name in ["a", "b"] {
        world.apply(aged(name, 600, "1970-01-01T00:00:00Z"), Time(1));
    }
    assert_eq!(binds(&decide(&mut world)).len(), 2);
    world.apply(aged("large", 1000, "1970-01-01T00:00:00Z"), Time(2_000));
    world.decide(Time(2_000), 100);
    assert!(binds(&world.take_effects()).is_empty());
    // Nothing changes for ten minutes; then a card is kept for it, and it sleeps on.
    world.tick(Time(601_000));
    world.decide(Time(601_000), 100);
    assert!(binds(&world.take_effects()).is_empty());
    // Both cards have room for these; one of the cards is kept.
    for name in ["s1", "s2"] {
        world.apply(aged(name, 400, "1970-01-01T00:10:05Z"), Time(605_000));
    }
    world.decide(Time(605_000), 100);
    assert_eq!(binds(&world.take_effects()).len(), 1);
}

/// A pod of gpu-manager's users that kube-scheduler is to place.
fn vcuda(name: &str, node: &str) -> Value {
    let ask =
        json!({"v": 1, "dialect": "gpu-manager", "containers": [{"name": "c", "wants": [{"count": 1, "share": 500}]}]});
    let more = json!({
        "metadata": {"annotations": {(keys::ASK): ask.to_string()}},
        "spec": {"schedulerName": "default-scheduler", "nodeName": node},
    });
    pod(name, 1, 500, more)
}

#[test]
fn a_pod_that_kube_scheduler_bound_itself_gets_its_grant_and_what_its_users_look_for() {
    let mut world = world(1);
    world.apply(seen(vcuda("a", "n0")), Time(1));
    world.tick(Time(1_000));
    let effects = world.take_effects();
    let annotations = effects.iter().find_map(|effect| match effect {
        Effect::Annotate(annotate) => Some(&annotate.annotations),
        _ => None,
    });
    let annotations = annotations.unwrap_or_else(|| panic!("{effects:?}"));
    let text = |key: &str| annotations.get(key).and_then(|value| value.as_deref());
    assert!(text(keys::GRANT).is_some());
    assert_eq!(text(&format!("{}0", keys::VCUDA_GPU_INDEX)), Some("0"));
    assert_eq!((text(keys::VCUDA_NODE), text(keys::VCUDA_ASSIGNED)), (Some("n0"), Some("false")));
    assert!(text(keys::VCUDA_TIME).is_some());
}

#[test]
fn gpu_admissions_users_get_the_first_of_equal_nodes_by_name() {
    let mut world = world(0);
    let names = ["n2", "n0", "n1"];
    for name in names {
        world.apply(node(name, 1, 2, &[]), Time(0));
    }
    let asking = seen(vcuda("a", ""));
    let Change::Pod(pod) = &asking else { panic!("a pod is a pod") };
    let uid = pod.pod.uid.clone();
    world.apply(asking, Time(1));
    let advice = world.filter(&uid, names.map(String::from).into(), Wanted::One, Time(1));
    assert_eq!(advice.fit.len(), 3);
    assert_eq!(world.best(&uid).map(|name| name.as_str()), Some("n0"));
}

#[test]
fn an_autoscaler_learns_which_template_would_do_and_nothing_of_it_is_remembered() {
    let world = world(1);
    let template = |name: &str, gpus: u32| match node(name, 1, gpus, &[]) {
        Change::Node(node, _) => *node,
        other => panic!("{other:?}"),
    };
    let asking = |gpus: u64| {
        let ask = json!({"v": 1, "dialect": "native", "containers": [{"name": "c", "wants": [{"count": gpus, "share": 1000}]}]});
        let more = json!({"metadata": {"annotations": {(keys::ASK): ask.to_string()}}});
        PodReader::default().read(serde_json::from_value(pod("dry", 1, 1000, more)).unwrap())
    };
    let names = || ["n0", "small", "large"].map(String::from).to_vec();
    assert_eq!(world.strangers(names()), ["small", "large"]);
    let before = world.snapshot().clone();
    let templates = || vec![template("small", 1), template("large", 4)];
    assert_eq!(world.imagine(asking(4), names(), templates(), Time(1)).fit, ["large"]);
    let none = world.imagine(asking(8), names(), templates(), Time(1));
    assert_eq!((none.fit.len(), none.refused.len()), (0, 3));
    assert!(none.refused["large"].text.contains("GPU"), "{none:?}");
    let mut kept_out = templates();
    kept_out[1].labels.insert(keys::NODE_OPT_IN.into(), "false".into());
    assert!(world.imagine(asking(4), names(), kept_out, Time(1)).fit.is_empty(), "a template may be kept out, too");
    assert!(*world.snapshot() == before && !world.has_awake());
}

#[test]
fn who_waited_for_a_quota_is_tried_when_the_last_quota_of_its_namespace_goes() {
    let mut world = world(1);
    let nominal = divvy_core::quota::Amounts { share: Some(100), ..Default::default() };
    let limit = divvy_core::quota::Limit { nominal, ..Default::default() };
    let quota = divvy_core::quota::Quota { name: "q".into(), limits: vec![limit], waits: true, ..Default::default() };
    world.apply(Change::Quota("team".into(), "q".into(), Some(quota)), Time(0));
    world.apply(seen(pod("a", 1, 300, json!({}))), Time(1));
    assert_eq!(binds(&decide(&mut world)).len(), 0);
    world.apply(Change::QuotaGone("team".into(), "q".into()), Time(2));
    assert_eq!(binds(&decide(&mut world)).len(), 1);
}

#[test]
fn who_was_kept_off_a_zone_is_tried_on_all_of_it_when_the_pod_that_did_is_gone() {
    let mut world = world(0);
    for name in ["n0", "n1"] {
        let mut change = node(name, 1, 2, &[]);
        if let Change::Node(node, _) = &mut change {
            node.labels.extend([("zone", "z"), ("host", name)].map(|(key, value)| (key.into(), value.into())));
        }
        world.apply(change, Time(0));
    }
    let apart = json!({"metadata": {"labels": {"app": "loner"}}, "spec": {"nodeSelector": {"host": "n0"}, "affinity": {"podAntiAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
    let loner = pod("loner", 1, 100, apart);
    world.apply(seen(loner.clone()), Time(1));
    let effects = decide(&mut world);
    let bind = binds(&effects)[0].clone();
    world.done(&effects[0], Ok(()), Time(2));
    world.apply(seen(as_bound(loner, &bind, 2)), Time(3));
    let x = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeSelector": {"host": "n1"}}});
    world.apply(seen(pod("x", 1, 100, x)), Time(4));
    assert_eq!(binds(&decide(&mut world)).len(), 0);
    world.apply(Change::PodGone("uid-loner".into()), Time(5));
    assert_eq!(binds(&decide(&mut world)).len(), 1);
}

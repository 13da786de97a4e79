//! Other amounts for pods that hold devices.

use divvy_cluster::effect::{Annotate, Condition};
use divvy_core::device::Isolation;
use divvy_core::quota::{Amounts, Limit, Quota};

use super::*;

/// A pod that was bound with a share of 300, and the grant it has.
fn bound(world: &mut World) -> (Value, Grant) {
    let waits = pod("a", 1, 300, json!({}));
    world.apply(seen(waits.clone()), Time(1));
    let effects = decide(world);
    let bind = binds(&effects)[0].clone();
    world.done(&effects[0], Ok(()), Time(2));
    let bound = as_bound(waits, &bind, 2);
    world.apply(seen(bound.clone()), Time(3));
    world.take_effects();
    (bound, grant(&bind))
}

fn with(pod: &Value, key: &str, grant: &Grant) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"][key] = json!(serde_json::to_string(grant).unwrap());
    pod
}

fn share(mut grant: Grant, share: u32) -> Grant {
    grant.containers[0].slices[0].share = divvy_core::units::Share(share);
    grant
}

fn admissions(effects: &[Effect]) -> Vec<Grant> {
    let text = |effect: &Effect| match effect {
        Effect::Annotate(Annotate { annotations, .. }) => annotations.get(keys::GRANT_ADMITTED).cloned().flatten(),
        _ => None,
    };
    effects.iter().filter_map(text).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn conditions(effects: &[Effect]) -> Vec<&Condition> {
    effects.iter().filter_map(|e| if let Effect::Condition(said) = e { Some(said) } else { None }).collect()
}

fn held(world: &World) -> u64 {
    let sum = |held: &divvy_core::quota::Held| held.sum(None, divvy_core::quota::What::Share);
    world.snapshot().holdings().get("team").map_or(0, sum)
}

fn limit(world: &mut World, share: u64) {
    let nominal = Amounts { share: Some(share), ..Amounts::default() };
    let limits = vec![Limit { nominal, ..Limit::default() }];
    let quota = Quota { name: "q".into(), limits, ..Quota::default() };
    world.apply(Change::Quota("team".into(), "q".into(), Some(quota)), Time(3));
}

#[test]
fn a_wish_that_fits_is_admitted_and_counts_from_then_on() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    let wished = with(&pod, keys::GRANT_OVERRIDE, &share(grant.clone(), 700));
    world.apply(seen(wished.clone()), Time(4));
    let effects = world.take_effects();
    assert_eq!(admissions(&effects), [Grant { at: 4, ..share(grant.clone(), 700) }]);
    assert_eq!(held(&world), 700);
    // What is seen meanwhile is older than what was decided.
    world.apply(seen(wished.clone()), Time(5));
    assert_eq!((held(&world), admissions(&world.take_effects()).len()), (700, 0));
    world.done(&effects[0], Ok(()), Time(6));
    let admitted = with(&wished, keys::GRANT_ADMITTED, &admissions(&effects)[0]);
    world.apply(seen(admitted.clone()), Time(7));
    world.tick(Time(20_000));
    assert_eq!((held(&world), admissions(&world.take_effects()).len()), (700, 0), "once");
    // Taken back, it has what it was granted first.
    let mut back = admitted;
    back["metadata"]["annotations"].as_object_mut().unwrap().remove(keys::GRANT_OVERRIDE);
    world.apply(seen(back), Time(8));
    assert_eq!(admissions(&world.take_effects()), [Grant { at: 8, ..grant }]);
    assert_eq!(held(&world), 300);
}

#[test]
fn a_wish_beyond_the_quota_counts_for_nothing_and_is_refused_with_the_figures_until_there_is_room() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    limit(&mut world, 600);
    let wished = with(&pod, keys::GRANT_OVERRIDE, &share(grant.clone(), 700));
    world.apply(seen(wished.clone()), Time(4));
    let effects = world.take_effects();
    let [said] = conditions(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((said.kind, said.holds, said.reason), (keys::CONDITION_RESIZED, false, "Refused"));
    assert_eq!(said.message, "quota q: 0.4 of share wanted, 0.3 held, 0.6 allowed");
    assert_eq!((admissions(&effects).len(), held(&world)), (0, 300));
    // The same answer is not given twice.
    world.tick(Time(10_000));
    assert!(world.take_effects().is_empty());
    limit(&mut world, 800);
    world.tick(Time(20_000));
    assert_eq!((admissions(&world.take_effects()).len(), held(&world)), (1, 700));
}

#[test]
fn a_wish_beyond_what_others_leave_is_refused_and_one_that_is_taken_back_is_over() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    let wished = with(&pod, keys::GRANT_OVERRIDE, &share(grant, 1000));
    for name in ["b", "c"] {
        let waits = super::pod(name, 1, 600, json!({}));
        world.apply(seen(waits.clone()), Time(3));
        let effects = decide(&mut world);
        let bind = binds(&effects)[0].clone();
        world.done(&effects[0], Ok(()), Time(3));
        world.apply(seen(as_bound(waits, &bind, 2)), Time(3));
    }
    world.take_effects();
    world.apply(seen(wished), Time(4));
    let effects = world.take_effects();
    assert!(conditions(&effects)[0].message.contains("share 1 wanted, 0.4 free"), "{effects:?}");
    world.apply(seen(pod), Time(5));
    let effects = world.take_effects();
    assert_eq!(conditions(&effects)[0].reason, "TakenBack");
    world.tick(Time(20_000));
    assert!(world.take_effects().is_empty());
}

#[test]
fn a_wish_for_anything_but_amounts_is_refused_by_name_and_counts_for_nothing() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    let other = |change: fn(&mut divvy_core::grant::Slice)| {
        let mut other = grant.clone();
        change(&mut other.containers[0].slices[0]);
        other
    };
    for (wish, what) in [
        (other(|s| s.device = "n0-1".into()), "device"),
        (other(|s| s.isolation = Isolation::None), "isolation"),
        (other(|s| s.exclusive = true), "exclusive"),
    ] {
        world.apply(seen(with(&pod, keys::GRANT_OVERRIDE, &wish)), Time(4));
        let effects = world.take_effects();
        assert!(conditions(&effects)[0].message.contains(what), "{effects:?}");
        assert_eq!((admissions(&effects).len(), held(&world)), (0, 300));
        // Nor does it count where somebody who may write anything has written it into the place of what was admitted.
        world.apply(seen(with(&pod, keys::GRANT_ADMITTED, &wish)), Time(5));
        assert_eq!(held(&world), 300);
        world.take_effects();
    }
    let mut garbage = pod.clone();
    garbage["metadata"]["annotations"][keys::GRANT_OVERRIDE] = json!("{");
    world.apply(seen(garbage), Time(6));
    assert!(conditions(&world.take_effects())[0].message.contains("cannot be read"));
    assert_eq!(held(&world), 300);
}

#[test]
fn amounts_that_could_not_be_written_are_admitted_again_and_meanwhile_count_unless_nothing_happened() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    let wished = with(&pod, keys::GRANT_OVERRIDE, &share(grant, 700));
    world.apply(seen(wished), Time(4));
    let effects = world.take_effects();
    world.done(&effects[0], Err(Failure::Unavailable { message: "no answer".into() }), Time(5));
    assert_eq!(held(&world), 700, "it may have happened");
    world.tick(Time(5_000));
    let effects = world.take_effects();
    assert_eq!(admissions(&effects).len(), 1);
    world.done(&effects[0], Err(Failure::Blocked { message: "busy".into() }), Time(5_000));
    assert_eq!(held(&world), 300);
    world.tick(Time(10_000));
    assert_eq!((admissions(&world.take_effects()).len(), held(&world)), (1, 700));
}

#[test]
fn a_replica_that_follows_admits_nothing_and_does_when_it_leads() {
    let mut world = world(1);
    let (pod, grant) = bound(&mut world);
    world.follow();
    world.apply(seen(with(&pod, keys::GRANT_OVERRIDE, &share(grant, 700))), Time(4));
    world.tick(Time(5));
    assert!(admissions(&world.take_effects()).is_empty() && held(&world) == 300);
    world.take_lead(Time(6));
    world.tick(Time(7));
    assert_eq!((admissions(&world.take_effects()).len(), held(&world)), (1, 700));
}

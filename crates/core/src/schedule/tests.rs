//! A cluster in, a plan out.

use expect_test::{Expect, expect};

use crate::policy::{Placement, Policy};
use crate::testing::{cluster, describe};
use crate::time::Time;
use crate::{Engine, audit, schedule};

fn check(text: &str, policy: &Policy, expected: Expect) {
    let snapshot = cluster(text);
    let plan = schedule(&snapshot, policy, Time::seconds(1000));
    assert_eq!(audit(&snapshot, &plan), []);
    expected.assert_eq(&describe(&plan));
}

fn pack() -> Policy {
    Policy::only(Placement::Binpack)
}

#[test]
fn shares_fill_a_device_before_the_next_is_touched() {
    check(
        "node a gpu=2
         pod  p0 on a dev=1 share=300
         wait p1 share=500 at=1
         wait p2 share=500 at=2",
        &pack(),
        expect![[r#"
            bind p1 to a (a-1)
            bind p2 to a (a-0)
        "#]],
    );
}

#[test]
fn class_goes_before_priority_before_age() {
    check(
        "node a gpu=1
         wait late share=1000 class=guarantee at=9
         wait urgent share=1000 class=opportunistic prio=100 at=1
         wait old share=1000 class=opportunistic at=0",
        &pack(),
        expect![[r#"
            bind late to a (a-0)
            wait urgent: 0/1 nodes fit: 1 without a GPU with enough free share (a: a-0 share 1 wanted, 0 free)
            wait old: 0/1 nodes fit: 1 without a GPU with enough free share (a: a-0 share 1 wanted, 0 free)
        "#]],
    );
}

#[test]
fn namespaces_take_turns_by_what_they_hold() {
    check(
        "node a gpu=4
         pod  x/held on a dev=0 share=1000
         wait x/first share=1000 at=0
         wait x/second share=1000 at=1
         wait y/first share=1000 at=5
         wait y/second share=1000 at=6",
        &pack(),
        expect![[r#"
            bind first to a (a-1)
            bind first to a (a-2)
            bind second to a (a-3)
            wait second: 0/1 nodes fit: 1 without a GPU with enough free share (a: a-0 share 1 wanted, 0 free)
        "#]],
    );
}

#[test]
fn ks_18_a_gang_waits_for_its_members() {
    check(
        "node a gpu=4
         wait g1 share=1000 gang=g:4:4
         wait g2 share=1000 gang=g:4:4
         wait g3 share=1000 gang=g:4:4",
        &pack(),
        expect![[r#"
            wait g1: gang default/g has 3 of 4 members
            wait g2: gang default/g has 3 of 4 members
            wait g3: gang default/g has 3 of 4 members
        "#]],
    );
    check(
        "node a gpu=4
         wait g1 share=1000 gang=g:4:4
         wait g2 share=1000 gang=g:4:4
         wait g3 share=1000 gang=g:4:4
         wait g4 share=1000 gang=g:4:4",
        &pack(),
        expect![[r#"
            bind g1 to a (a-0)
            bind g2 to a (a-1)
            bind g3 to a (a-2)
            bind g4 to a (a-3)
        "#]],
    );
}

#[test]
fn ks_19_a_gang_without_room_for_its_minimum_starts_nobody_and_holds_nothing() {
    check(
        "node a gpu=2
         wait g1 share=1000 gang=g:4:4
         wait g2 share=1000 gang=g:4:4
         wait g3 share=1000 gang=g:4:4
         wait g4 share=1000 gang=g:4:4
         wait single share=1000 at=9",
        &pack(),
        expect![[r#"
            bind single to a (a-0)
            wait g1: gang default/g needs room for 4 members at once, there is room for 2
            wait g2: gang default/g needs room for 4 members at once, there is room for 2
            wait g3: gang default/g needs room for 4 members at once, there is room for 2
            wait g4: gang default/g needs room for 4 members at once, there is room for 2
        "#]],
    );
}

#[test]
fn a_gang_that_fits_at_its_minimum_starts_with_as_many_as_fit() {
    check(
        "node a gpu=2
         wait g1 share=1000 gang=g:3:2
         wait g2 share=1000 gang=g:3:2
         wait g3 share=1000 gang=g:3:2",
        &pack(),
        expect![[r#"
            bind g1 to a (a-0)
            bind g2 to a (a-1)
            wait g3: 0/1 nodes fit: 1 without a GPU with enough free share (a: a-0 share 1 wanted, 0 free)
        "#]],
    );
}

#[test]
fn answers_of_nodes_are_folded_most_frequent_first_with_the_closest_as_example() {
    check(
        "node a gpu=1:16Gi
         node b gpu=1:24Gi
         node c gpu=1:80Gi:H100
         node d taint=dedicated gpu=1:80Gi
         node e
         wait big mem=40Gi notmodel=h100",
        &pack(),
        expect![[r#"
            wait big: 0/5 nodes fit: 2 without a GPU with enough free memory (b: b-0 40 GiB of memory wanted, 24 GiB free); 1 tainted dedicated; 1 without a GPU; 1 without a GPU of the model wanted (c: c-0 another model)
        "#]],
    );
}

#[test]
fn only_those_who_are_awake_are_tried_and_the_first_of_them_first() {
    let mut snapshot = cluster(
        "node a gpu=1
         wait p1 share=300 at=1
         wait p2 share=300 at=2
         wait p3 share=300 at=3",
    );
    let asleep = snapshot.find_pod(&"default/p1".into());
    let asleep = asleep.or_else(|| snapshot.waiting().map(|(ix, _)| ix).next());
    let plan = Engine::default().schedule_some(&mut snapshot, &pack(), Time::seconds(9), |ix| Some(ix) != asleep, 1);
    assert_eq!(describe(&plan), "bind p2 to a (a-0)\n");
}

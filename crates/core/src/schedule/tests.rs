//! A cluster in, a plan out.

use expect_test::{Expect, expect};

use crate::ledger::snapshot::DisruptionBudget;
use crate::model::labels::Selector;
use crate::model::policy::{Placement, Policy, Preemption};
use crate::model::time::Time;
use crate::testing::{cluster, describe};
use crate::{Engine, audit, schedule};

fn check(text: &str, policy: &Policy, expected: Expect) {
    let snapshot = cluster(text);
    let plan = schedule(&snapshot, policy, Time::seconds(1000));
    assert_eq!(audit(&snapshot, &plan), []);
    expected.assert_eq(&describe(&plan));
}

/// Nothing is kept for anybody, however long it has waited.
fn pack() -> Policy {
    let mut policy = Policy::only(Placement::Binpack);
    policy.queue.reserve_after = 0;
    policy
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

/// The same group of KubeShare's pods, and one more that is not like the others.
fn group(more: &str) -> String {
    format!(
        "node a gpu=4
         wait w1 share=500 dialect=kubeshare dprio=1 gang=g:2:2 at=1
         wait w2 share=500 dialect=kubeshare dprio=1 gang=g:2:2 at=2
         {more}"
    )
}

#[test]
fn an_odd_pod_of_a_kubeshare_group_waits_alone() {
    check(
        &group("wait odd share=500 dialect=kubeshare dprio=1 gang=g:3:3 at=3"),
        &pack(),
        expect![[r#"
            bind w1 to a (a-0)
            bind w2 to a (a-0)
            wait odd: members of gang default/g disagree: its oldest member waits for 2, this one for 3
        "#]],
    );
    check(
        &group("wait odd share=500 dialect=kubeshare dprio=7 gang=g:2:2 at=3"),
        &pack(),
        expect![[r#"
            bind w1 to a (a-0)
            bind w2 to a (a-0)
            wait odd: members of gang default/g disagree: its oldest member has priority 1, this one 7
        "#]],
    );
    // The oldest says what holds, and who disagrees is no company.
    check(
        "node a gpu=4
         wait first share=500 dialect=kubeshare gang=g:2:2 at=1
         wait odd share=500 dialect=kubeshare gang=g:3:3 at=2",
        &pack(),
        expect![[r#"
            wait odd: members of gang default/g disagree: its oldest member waits for 2, this one for 3
            wait first: gang default/g has 1 of 2 members
        "#]],
    );
}

#[test]
fn members_of_a_kubeshare_group_need_only_agree_about_the_minimum() {
    check(
        &group("wait w3 share=500 dialect=kubeshare dprio=1 gang=g:3:2 at=3"),
        &pack(),
        expect![[r#"
            bind w1 to a (a-0)
            bind w2 to a (a-0)
            bind w3 to a (a-1)
        "#]],
    );
}

#[test]
fn a_pod_that_only_names_its_kubeshare_group_is_placed_by_itself_and_counts() {
    let ps = "share=500 dialect=kubeshare gang=g:1:0 at=3";
    check(
        &group(&format!("wait ps {ps}")),
        &pack(),
        expect![[r#"
            bind w1 to a (a-0)
            bind w2 to a (a-0)
            bind ps to a (a-1)
        "#]],
    );
    check(
        &format!("node a gpu=4\nwait ps {ps}\nwait w1 share=500 dialect=kubeshare gang=g:3:3"),
        &pack(),
        expect![[r#"
            bind ps to a (a-0)
            wait w1: gang default/g has 2 of 3 members
        "#]],
    );
    check(
        &format!("node a gpu=4\npod ps on a {ps}\nwait w1 share=500 dialect=kubeshare gang=g:2:2"),
        &pack(),
        expect![[r#"
            bind w1 to a (a-0)
        "#]],
    );
}

#[test]
fn members_of_a_native_gang_must_say_the_same() {
    check(
        "node a gpu=4
         wait g1 share=500 gang=g:2:2
         wait g2 share=500 gang=g:3:2",
        &pack(),
        expect![[r#"
            wait g1: members of gang default/g disagree: size and minimum must be the same on all
            wait g2: members of gang default/g disagree: size and minimum must be the same on all
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

#[test]
fn the_fewest_and_least_pods_are_evicted_from_one_device() {
    check(
        "node a gpu=2
         pod  small1 on a dev=0 share=300 class=opportunistic
         pod  small2 on a dev=0 share=300 class=opportunistic
         pod  large on a dev=1 share=900 class=opportunistic
         wait p share=1000 class=guarantee",
        &pack(),
        expect![[r#"
            evict large from a for p
            wait p [a]: room is being made on a: 1 pods are leaving
        "#]],
    );
}

#[test]
fn only_a_higher_class_or_priority_evicts_and_the_polite_never_do() {
    for (victim, pod) in [
        ("class=guarantee", "class=guarantee"),
        ("class=opportunistic prio=5", "class=opportunistic prio=5"),
        ("class=guarantee minrun=2000", "class=guarantee prio=1"),
        ("class=opportunistic", "class=guarantee polite"),
        ("class=guarantee", "class=opportunistic prio=100"),
    ] {
        let text = format!("node a gpu=1\npod v on a dev=0 share=600 {victim}\nwait p share=600 {pod}");
        let plan = schedule(&cluster(&text), &pack(), Time::seconds(1000));
        assert_eq!(plan.evictions, [], "{text}");
        assert_eq!(plan.waits.len(), 1, "{text}");
    }
    for (victim, pod) in [
        ("class=opportunistic", "class=guarantee"),
        ("class=opportunistic prio=5", "class=opportunistic prio=6"),
        ("class=guarantee minrun=900", "class=guarantee prio=1"),
        // An opportunistic pod has no say in it.
        ("class=opportunistic minrun=2000", "class=guarantee"),
    ] {
        let text = format!("node a gpu=1\npod v on a dev=0 share=600 {victim}\nwait p share=600 {pod}");
        let plan = schedule(&cluster(&text), &pack(), Time::seconds(1000));
        assert_eq!(plan.evictions.len(), 1, "{text}");
        assert_eq!(plan.waits[0].nominated.as_ref().unwrap().as_str(), "a", "{text}");
    }
}

#[test]
fn what_a_pod_says_of_its_least_runtime_holds_up_to_the_policys_ceiling() {
    let policy = Policy { preemption: Preemption { max_min_runtime: 3600, ..Preemption::default() }, ..pack() };
    for (since, goes) in [(3599, 0), (3600, 1)] {
        let victim = "pod v on a dev=0 share=600 class=guarantee minrun=3153600000";
        let text = format!("node a gpu=1\n{victim}\nwait p share=600 class=guarantee prio=1");
        let plan = schedule(&cluster(&text), &policy, Time::seconds(since));
        assert_eq!(plan.evictions.len(), goes, "after {since} s");
    }
}

#[test]
fn nobody_is_evicted_where_it_would_not_help() {
    check(
        "node a gpu=1:16Gi
         pod  v on a dev=0 share=600 class=opportunistic
         wait p mem=40Gi class=guarantee",
        &pack(),
        expect![[r#"
            wait p: 0/1 nodes fit: 1 without a GPU with enough free memory (a: a-0 40 GiB of memory wanted, 16 GiB free)
        "#]],
    );
}

#[test]
fn nobody_is_evicted_whom_a_disruption_budget_keeps() {
    let evicted = |budgets: &[(&str, u32)]| {
        let mut snapshot = cluster(
            "node a gpu=1
             node b gpu=1
             pod  web on a dev=0 share=1000 class=opportunistic label:app=web
             pod  db on b dev=0 share=1000 class=opportunistic prio=5 label:app=db
             wait p share=1000 class=guarantee prio=1
             wait q share=1000 class=guarantee",
        );
        let namespace = snapshot.pods().next().unwrap().1.pod().key.namespace.clone();
        let budget = |(app, allowed): &(&str, u32)| DisruptionBudget {
            namespace: namespace.clone(),
            name: (*app).into(),
            selector: Some(if *app == "all" { Selector(Vec::new()) } else { Selector::equals([("app", *app)]) }),
            allowed: *allowed,
        };
        snapshot.surroundings_mut().budgets = budgets.iter().map(budget).collect();
        let plan = schedule(&snapshot, &pack(), Time::seconds(1000));
        plan.evictions.iter().map(|eviction| eviction.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(evicted(&[]), ["web", "db"]);
    assert_eq!(evicted(&[("web", 0)]), ["db"], "the cheaper one is kept");
    assert_eq!(evicted(&[("web", 1), ("db", 1)]), ["web", "db"]);
    assert_eq!(evicted(&[("all", 1)]), ["web"], "one of both may go");
    assert_eq!(evicted(&[("all", 0)]), [""; 0]);
    assert_eq!(evicted(&[("web", 5), ("all", 5)]), ["db"], "nobody can evict a pod of two budgets");
}

#[test]
fn a_gang_is_evicted_as_a_whole_or_not_at_all() {
    check(
        "node a gpu=1
         node b gpu=1
         node c gpu=1
         pod  g1 on a dev=0 share=1000 class=opportunistic gang=g:2:2
         pod  g2 on b dev=0 share=1000 class=opportunistic gang=g:2:2
         pod  single on c dev=0 share=1000 class=opportunistic prio=7
         wait p share=1000 class=guarantee prio=1
         wait q share=1000 class=guarantee",
        &pack(),
        expect![[r#"
            evict g1 from a for p
            evict g2 from b for p
            wait p [a]: room is being made on a: 2 pods are leaving
            wait q [b]: room is being made on b: 1 pods are leaving
        "#]],
    );
}

#[test]
fn room_is_made_for_a_whole_gang_or_for_none_of_it() {
    let text = "node a gpu=1
         node b gpu=1
         pod  v1 on a dev=0 share=1000 class=opportunistic
         pod  v2 on b dev=0 share=1000 class=CLASS
         wait g1 share=1000 class=guarantee gang=g:2:2
         wait g2 share=1000 class=guarantee gang=g:2:2";
    check(
        &text.replace("CLASS", "opportunistic"),
        &pack(),
        expect![[r#"
            evict v1 from a for g1
            evict v2 from b for g2
            wait g1 [a]: room is being made on a: 1 pods are leaving
            wait g2 [b]: room is being made on b: 1 pods are leaving
        "#]],
    );
    check(
        &text.replace("CLASS", "guarantee"),
        &pack(),
        expect![[r#"
            wait g1: gang default/g needs room for 2 members at once, there is room for 0
            wait g2: gang default/g needs room for 2 members at once, there is room for 0
        "#]],
    );
}

#[test]
fn room_is_made_for_several_members_of_a_gang_on_one_node() {
    check(
        "node a gpu=2
         pod  v1 on a dev=0 share=1000 class=opportunistic
         pod  v2 on a dev=1 share=1000 class=opportunistic
         wait g1 share=1000 class=guarantee gang=g:2:2
         wait g2 share=1000 class=guarantee gang=g:2:2",
        &pack(),
        expect![[r#"
            evict v1 from a for g1
            evict v2 from a for g2
            wait g1 [a]: room is being made on a: 1 pods are leaving
            wait g2 [a]: room is being made on a: 1 pods are leaving
        "#]],
    );
}

#[test]
fn what_is_kept_for_a_sleeper_is_not_given_to_those_who_come_meanwhile() {
    // Room is made for p, and something is reserved for q; both sleep when s comes, which would fit where they wait.
    let mut snapshot = cluster(
        "node a gpu=1
         node b gpu=1
         pod  v on a dev=0 share=600 class=opportunistic
         pod  w on b dev=0 share=600 class=guarantee
         wait p share=1000 class=guarantee prio=9 at=990
         wait q share=1000 class=guarantee at=0",
    );
    let mut policy = pack();
    policy.queue.reserve_after = 100;
    let mut engine = Engine::default();
    let plan = engine.schedule(&mut snapshot, &policy, Time::seconds(1000));
    expect![[r#"
        evict v from a for p
        wait p [a]: room is being made on a: 1 pods are leaving
        wait q: 0/2 nodes fit: 1 kept for default/p, which waits longer; 1 without a GPU with enough free share (b: b-0 share 1 wanted, 0.4 free)
        keep b (b-0) for q
    "#]]
    .assert_eq(&describe(&plan));
    let pod = crate::testing::pod("wait s share=300 class=guarantee at=1000", &snapshot);
    let late = pod.uid.clone();
    snapshot.put_pod(pod);
    let mut only = |snapshot: &mut crate::Snapshot, seconds: u64| {
        let ix = snapshot.find_pod(&late);
        let plan = engine.schedule_some(snapshot, &policy, Time::seconds(seconds), |of| Some(of) == ix, usize::MAX);
        plan.binds.len()
    };
    assert_eq!(only(&mut snapshot, 1001), 0);
    // Nobody is seen to leave, and nobody came to look for another place: nothing is kept for ever.
    assert_eq!(only(&mut snapshot, 1200), 1);
}

#[test]
fn while_others_leave_nobody_more_is_told_to() {
    check(
        "node a gpu=1
         pod  v on a dev=0 share=600 class=opportunistic leaving
         wait p share=600 class=guarantee",
        &pack(),
        expect![[r#"
            wait p [a]: room is being made on a: 1 pods are leaving
        "#]],
    );
}

#[test]
fn moves_that_let_a_pod_in_are_proposed_and_done_only_by_policy() {
    let text = "node a gpu=1
         node b gpu=1
         pod  x on a dev=0 share=300 class=opportunistic
         pod  y on b dev=0 share=500 class=guarantee
         wait p share=1000 class=opportunistic";
    check(
        text,
        &pack(),
        expect![[r#"
            wait p: 0/2 nodes fit: 2 without a GPU with enough free share (a: a-0 share 1 wanted, 0.7 free)
            propose p on a: x a->b
        "#]],
    );
    let mut act = pack();
    act.defragment.act = true;
    check(
        text,
        &act,
        expect![[r#"
            evict x from a for p
            wait p [a]: room is being made on a: 1 pods are leaving
            propose p on a: x a->b
        "#]],
    );
    let mut never = pack();
    never.defragment.propose = false;
    check(
        text,
        &never,
        expect![[r#"
            wait p: 0/2 nodes fit: 2 without a GPU with enough free share (a: a-0 share 1 wanted, 0.7 free)
        "#]],
    );
}

#[test]
fn whoever_has_waited_long_is_not_overtaken_for_ever() {
    // A stream of small pods, each of which ends after three rounds, beside one that needs both cards.
    let mut snapshot = cluster("node a gpu=2\nwait big count=2 whole at=0");
    let mut policy = pack();
    policy.queue.reserve_after = 100;
    let mut engine = Engine::default();
    let mut running: Vec<(u64, crate::model::id::PodUid)> = Vec::new();
    let big = "default/big".into();
    let mut ran_at = None;
    // The stream is there first: the big one never finds both cards idle by chance.
    for round in 0..60u64 {
        let now = Time::seconds(round * 10);
        running.retain(|(until, uid)| {
            if *until <= round {
                snapshot.remove_pod(uid);
            }
            *until > round
        });
        for n in 0..2 {
            let pod = crate::testing::pod(&format!("wait s{round}-{n} share=600 at={}", round * 10), &snapshot);
            snapshot.put_pod(pod);
        }
        if round == 0 {
            // Not yet there in the first round.
            let plan = engine.schedule_some(&mut snapshot, &policy, now, |ix| ix.0 != 0, usize::MAX);
            apply(&mut snapshot, &plan, now, round, &mut running);
            continue;
        }
        let plan = engine.schedule(&mut snapshot, &policy, now);
        assert_eq!(audit(&snapshot, &plan), []);
        if plan.binds.iter().any(|bind| bind.pod == big) {
            ran_at = Some(now);
            break;
        }
        apply(&mut snapshot, &plan, now, round, &mut running);
    }
    let ran_at = ran_at.expect("the big pod never ran");
    assert!(ran_at <= Time::seconds(160), "{ran_at:?}");
}

fn apply(
    snapshot: &mut crate::Snapshot,
    plan: &crate::Plan,
    now: Time,
    round: u64,
    running: &mut Vec<(u64, crate::model::id::PodUid)>,
) {
    for bind in &plan.binds {
        snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(std::sync::Arc::new), now).unwrap();
        running.push((round + 3, bind.pod.clone()));
    }
}

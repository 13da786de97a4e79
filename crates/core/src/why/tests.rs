//! What people are told.

use expect_test::{Expect, expect};

use super::why;
use crate::model::policy::{Placement, Policy};
use crate::model::time::Time;
use crate::testing::cluster;

fn check(text: &str, pod: &str, expected: Expect) {
    let snapshot = cluster(text);
    let ix = snapshot.find_pod(&format!("default/{pod}").as_str().into()).unwrap();
    let why = why(&snapshot, &Policy::only(Placement::Frag), ix, Time::seconds(1000));
    expected.assert_eq(&why.to_string());
}

#[test]
fn the_amount_that_has_to_shrink_least_is_named() {
    check(
        "node a cpu=8 gpu=1:16Gi
         pod  held on a dev=0 mem=6Gi cpu=2000
         wait p mem=12Gi cpu=4000",
        "p",
        expect![
            "0/1 nodes fit: 1 without a GPU with enough free memory (a: a-0 12 GiB of memory wanted, 10 GiB free). It would run now with 10 GiB of device memory instead of 12 GiB. When it runs is unknown: those in its way have not said how long they take"
        ],
    );
}

#[test]
fn a_rule_is_named_where_no_amount_helps() {
    check(
        "node a gpu=1:16Gi:T4
         wait p share=500 model=h100",
        "p",
        expect![
            "0/1 nodes fit: 1 without a GPU of the model wanted (a: a-0 another model). It would run now on any model. When it runs is unknown: those in its way have not said how long they take"
        ],
    );
    check(
        "node a gpu=1 taint=dedicated
         wait p share=500",
        "p",
        expect![
            "0/1 nodes fit: 1 tainted dedicated. It would run now if it tolerated dedicated. When it runs is unknown: those in its way have not said how long they take"
        ],
    );
}

#[test]
fn when_it_runs_follows_from_what_others_said() {
    let text = "node a gpu=1
                node b gpu=1
                pod  x on a dev=0 share=900 since=100 lasts=5000
                pod  y on b dev=0 share=900 since=200 deadline=3000
                wait p share=800";
    check(
        text,
        "p",
        expect![
            "0/2 nodes fit: 2 without a GPU with enough free share (a: a-0 share 0.8 wanted, 0.1 free). It would run now with a share of 0.1 instead of 0.8. As things stand it runs by 3200 s after the epoch"
        ],
    );
}

#[test]
fn a_gang_is_told_how_many_of_it_would_fit() {
    check(
        "node a gpu=2
         wait g1 share=1000 gang=g:3:3
         wait g2 share=1000 gang=g:3:3
         wait g3 share=1000 gang=g:3:3",
        "g1",
        expect![
            "gang default/g needs room for 3 members at once, there is room for 2. It would run now if 2 members of the gang could start without the other 1. When it runs is unknown: those in its way have not said how long they take"
        ],
    );
}

#[test]
fn whoever_fits_is_told_so() {
    check("node a gpu=1\nwait p share=500", "p", expect!["it can run now"]);
}

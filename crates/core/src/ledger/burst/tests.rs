use proptest::prelude::*;

use super::*;
use crate::model::device::{DeviceKind, Isolation};
use crate::model::units::Share;

const POLICIES: [MemoryBurst; 3] = [MemoryBurst::Allow, MemoryBurst::SameNamespace, MemoryBurst::Forbid];

fn slice(memory: Bytes, memory_limit: Bytes) -> Slice {
    Slice {
        device: "G".into(),
        kind: DeviceKind::Gpu,
        memory,
        memory_limit,
        share: Share(100),
        share_limit: Share::WHOLE,
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    }
}

fn uid(i: usize) -> PodUid {
    format!("p{i}").into()
}

/// A card of 80 GiB with pods `p0`, `p1`, ... of these namespaces that have booked so many GiB.
fn card(pods: &[(&str, u64)]) -> Card {
    let tenant = |(namespace, gib): &(&str, u64)| Tenant {
        namespace: (*namespace).into(),
        booked: Bytes::gib(*gib),
        borrows: true,
    };
    let tenants = pods.iter().enumerate().map(|(i, pod)| (uid(i), tenant(pod)));
    Card { memory: Bytes::gib(80), tenants: tenants.collect() }
}

/// What pods may use of it, in GiB.
fn ceilings(card: &Card, burst: MemoryBurst) -> Vec<u64> {
    (0..card.tenants.len()).map(|i| card.ceiling(&uid(i), burst).0 >> 30).collect()
}

#[test]
fn what_a_pod_may_borrow_shrinks_as_others_book() {
    assert_eq!(ceilings(&card(&[("a", 0)]), MemoryBurst::Allow), [80]);
    assert_eq!(ceilings(&card(&[("a", 0), ("b", 40)]), MemoryBurst::Allow), [40, 80]);
    assert_eq!(ceilings(&card(&[("a", 0), ("b", 40), ("a", 30)]), MemoryBurst::Allow), [10, 50, 40]);
    assert_eq!(ceilings(&card(&[("a", 0), ("b", 50), ("a", 30)]), MemoryBurst::Allow), [0, 50, 30]);
    assert_eq!(ceilings(&card(&[("a", 60), ("b", 60)]), MemoryBurst::Allow), [60, 60], "promised more than once");
}

#[test]
fn a_policy_may_keep_borrowing_within_a_namespace_or_forbid_it() {
    let (alike, mixed) = (card(&[("a", 10), ("a", 40)]), card(&[("a", 10), ("a", 20), ("b", 0)]));
    assert_eq!(ceilings(&alike, MemoryBurst::SameNamespace), [40, 70]);
    assert_eq!(ceilings(&mixed, MemoryBurst::SameNamespace), [10, 20, 0]);
    assert_eq!(ceilings(&alike, MemoryBurst::Forbid), [10, 40]);
}

#[test]
fn a_container_has_no_more_than_its_grant_allows_and_no_less_than_it_booked() {
    let of = |memory, most, ceiling| limit(&slice(Bytes::gib(memory), Bytes::gib(most)), Bytes::gib(ceiling)).0 >> 30;
    assert_eq!((of(0, 80, 40), of(8, 16, 40), of(8, 16, 12), of(8, 16, 4)), (40, 16, 12, 8));
    let whole = Slice { exclusive: true, ..slice(Bytes::ZERO, Bytes::gib(80)) };
    assert_eq!(limit(&whole, Bytes::ZERO), Bytes::gib(80));
}

#[test]
fn who_is_furthest_above_its_booking_leaves_for_an_owner_and_for_nobody_else() {
    let card = card(&[("a", 0), ("b", 40), ("c", 20), ("d", 0)]);
    let used = |gib: [u64; 4]| move |pod: &PodUid| Bytes::gib(gib[pod.as_str()[1..].parse::<usize>().unwrap()]);
    let leaves = |gib, asked| card.borrower(&uid(1), Bytes::gib(asked), used(gib));
    assert_eq!(leaves([30, 10, 20, 20], 10), Ok((&uid(0), Bytes::gib(30))));
    assert_eq!(leaves([10, 10, 40, 20], 10), Ok((&uid(2), Bytes::gib(20))), "of equals the first");
    assert_eq!(leaves([30, 10, 20, 20], 30), Ok((&uid(0), Bytes::gib(30))), "up to its booking");
    assert_eq!(leaves([30, 10, 20, 20], 31), Err(Spared::NotBooked));
    assert_eq!(leaves([0, 10, 20, 0], 10), Err(Spared::NoBorrower), "nobody is above its booking");
    assert_eq!(card.borrower(&uid(0), Bytes(1), used([0, 0, 40, 0])), Err(Spared::NotBooked), "it has booked nothing");
    assert_eq!(card.borrower(&"x".into(), Bytes(1), |_| Bytes::ZERO), Err(Spared::NotBooked), "it is not on the card");
    let mut fixed = card.clone();
    fixed.tenants.get_mut(&uid(0)).unwrap().borrows = false;
    assert_eq!(
        fixed.borrower(&uid(1), Bytes(1), used([60, 10, 20, 1])),
        Ok((&uid(3), Bytes::gib(1))),
        "who may not borrow is counted wrong"
    );
}

fn cards() -> impl Strategy<Value = Card> {
    let pods = prop::collection::vec((prop::sample::select(vec!["a", "b"]), 0u64..30), 1..6);
    pods.prop_map(|pods| card(&pods))
}

proptest! {
    #[test]
    fn nobody_is_kept_below_a_booking_and_nobody_borrows_what_another_has_booked(
        card in cards(),
        burst in prop::sample::select(&POLICIES[..]),
        more in 0u64..80,
    ) {
        let booked: Bytes = card.tenants.values().map(|tenant| tenant.booked).sum();
        for (pod, tenant) in &card.tenants {
            let slice = slice(tenant.booked, Bytes(tenant.booked.0 + (more << 30)));
            let may = limit(&slice, card.ceiling(pod, burst));
            prop_assert!(may >= tenant.booked && may <= slice.memory_limit);
            prop_assert!(may.0 + (booked.0 - tenant.booked.0) <= card.memory.0.max(booked.0), "{card:?} lets {pod} have {may}");
        }
    }

    #[test]
    fn who_is_alone_has_its_limit_unless_borrowing_is_forbidden(booked in 0u64..80, more in 0u64..80) {
        let card = card(&[("a", booked)]);
        let slice = slice(Bytes::gib(booked), Bytes::gib((booked + more).min(80)));
        let may = |burst| limit(&slice, card.ceiling(&uid(0), burst));
        prop_assert_eq!(may(MemoryBurst::Allow), slice.memory_limit);
        prop_assert_eq!(may(MemoryBurst::SameNamespace), slice.memory_limit);
        prop_assert_eq!(may(MemoryBurst::Forbid), slice.memory);
    }

    #[test]
    fn within_a_namespace_is_as_allowed_where_all_are_of_one_and_as_forbidden_where_not(card in cards()) {
        let first = &card.tenants[&uid(0)].namespace;
        let alike = card.tenants.values().all(|tenant| tenant.namespace == *first);
        let as_if = if alike { MemoryBurst::Allow } else { MemoryBurst::Forbid };
        prop_assert_eq!(ceilings(&card, MemoryBurst::SameNamespace), ceilings(&card, as_if));
    }

    #[test]
    fn a_booking_never_lets_another_pod_have_more(card in cards(), gib in 0u64..40, burst in prop::sample::select(&POLICIES[..])) {
        let before = ceilings(&card, burst);
        let mut more = card.clone();
        more.tenants.insert("z".into(), Tenant { namespace: "b".into(), booked: Bytes::gib(gib), borrows: true });
        let after = (0..before.len()).map(|i| more.ceiling(&uid(i), burst).0 >> 30);
        prop_assert!(after.zip(before).all(|(after, before)| after <= before));
    }

    #[test]
    fn only_a_pod_above_its_booking_leaves_and_none_is_further_above(
        card in cards(),
        used in prop::collection::vec(0u64..60, 6),
        asked in 0u64..40,
    ) {
        let used = |pod: &PodUid| Bytes::gib(used[pod.as_str()[1..].parse::<usize>().unwrap()]);
        let above = |pod: &PodUid| used(pod).saturating_sub(card.tenants[pod].booked);
        let owner = uid(0);
        match card.borrower(&owner, Bytes::gib(asked), used) {
            Ok((pod, by)) => {
                prop_assert!(*pod != owner && by == above(pod) && by > CLEARLY);
                prop_assert!(card.tenants.keys().all(|other| *other == owner || above(other) <= by));
                prop_assert!(used(&owner).0 + (asked << 30) <= card.tenants[&owner].booked.0);
            }
            Err(Spared::NotBooked) => prop_assert!(used(&owner).0 + (asked << 30) > card.tenants[&owner].booked.0),
            Err(Spared::NoBorrower) => prop_assert!(card.tenants.keys().all(|other| *other == owner || above(other) <= CLEARLY)),
        }
    }
}

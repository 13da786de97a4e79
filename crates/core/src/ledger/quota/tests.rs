use proptest::prelude::*;

use super::*;
use crate::model::ask::{Class, DeviceAsk};
use crate::model::time::Time;
use crate::testing::ask;

const MIB: u64 = 1 << 20;

fn held(model: &str, devices: u64, share: u64, mib: u64) -> Held {
    Held::of(&Model::from(model), Usage { devices, share, memory: mib * MIB })
}

fn everybody(of: &[(&str, Held)]) -> BTreeMap<Namespace, Held> {
    of.iter().map(|(namespace, held)| (Namespace::from(*namespace), held.clone())).collect()
}

fn quota(nominal: Amounts) -> Quota {
    Quota { name: "q".into(), limits: vec![Limit { nominal, ..Limit::default() }], ..Quota::default() }
}

fn share(thousandths: u64) -> Amounts {
    Amounts { share: Some(thousandths), ..Amounts::default() }
}

fn memory(mib: u64) -> Amounts {
    Amounts { memory: Some(mib * MIB), ..Amounts::default() }
}

fn asking(count: u32, memory: MemoryAsk) -> GpuAsk {
    ask(DeviceAsk { count, memory, ..DeviceAsk::default() })
}

#[test]
fn hm_06_memory_is_counted_for_every_card() {
    let quotas = Quotas([("ns".into(), vec![quota(memory(2000))])].into());
    let used = everybody(&[("ns", held("T4", 1, 0, 1000))]);
    let admits =
        |count, mib| quotas.admits(&used, &"ns".into(), &asking(count, MemoryAsk::Bytes(Bytes::mib(mib)))).is_ok();
    assert!(admits(1, 100) && admits(2, 400));
    assert!(!admits(1, 1024) && !admits(2, 1024));
    let said = quotas.admits(&used, &"ns".into(), &asking(2, MemoryAsk::Bytes(Bytes::mib(1024)))).unwrap_err();
    assert_eq!(said[0].to_string(), "quota q: 2 GiB of GPU memory wanted, 1000 MiB held, 2000 MiB allowed");
}

#[test]
fn hm_07_a_quota_of_nothing_blocks_absolute_asks_at_once_and_parts_of_cards_when_a_card_is_chosen() {
    let quotas = Quotas([("ns".into(), vec![quota(memory(0))])].into());
    let nobody = BTreeMap::new();
    assert!(quotas.admits(&nobody, &"ns".into(), &asking(1, MemoryAsk::Bytes(Bytes::mib(1)))).is_err());
    assert!(quotas.admits(&nobody, &"ns".into(), &asking(1, MemoryAsk::Part(Share(500)))).is_ok());
    assert!(matches!(quotas.check(&nobody, &"ns".into(), &held("T4", 1, 0, 8000)), Verdict::Exceeds(_)));
}

#[test]
fn tk_24_a_quota_per_model_and_pool() {
    let m40 = Limit { model: Some("M40".into()), nominal: share(1000), ..Limit::default() };
    let foo = Quota { name: "q".into(), pools: vec!["public".into()], limits: vec![m40], ..Quota::default() };
    let quotas = Quotas([("foo".into(), vec![foo])].into());
    let used = everybody(&[("foo", held("Tesla-M40", 1, 600, 0))]);
    let check = |model: &str, share: u64| quotas.check(&used, &"foo".into(), &held(model, 1, share, 0));
    assert!(matches!(check("Tesla-M40", 500), Verdict::Exceeds(_)));
    assert_eq!(check("Tesla-M40", 400), Verdict::Fits);
    assert!(quotas.allows_pool(&"foo".into(), Some("public")));
    assert!(!quotas.allows_pool(&"foo".into(), Some("private")) && !quotas.allows_pool(&"foo".into(), None));
    assert!(quotas.allows_pool(&"bar".into(), None), "a namespace without a quota is not restricted");
}

#[test]
fn a_quota_that_lets_pods_wait_refuses_only_what_could_never_fit() {
    let waits = Quota { waits: true, ..quota(memory(2000)) };
    let quotas = Quotas([("ns".into(), vec![waits])].into());
    let used = everybody(&[("ns", held("T4", 1, 0, 1500))]);
    let admits = |mib| quotas.admits(&used, &"ns".into(), &asking(1, MemoryAsk::Bytes(Bytes::mib(mib)))).is_ok();
    assert!(admits(1000) && admits(2000) && !admits(2001));
}

fn cohort() -> Quotas {
    let of = |lend: Option<u64>| {
        let limit =
            Limit { nominal: share(2000), lend: Amounts { share: lend, ..Amounts::default() }, ..Limit::default() };
        vec![Quota { name: "q".into(), cohort: Some("c".into()), limits: vec![limit], ..Quota::default() }]
    };
    Quotas([("a".into(), of(None)), ("b".into(), of(Some(1500)))].into())
}

#[test]
fn a_namespace_borrows_what_others_of_its_cohort_do_not_use_and_lend() {
    let quotas = cohort();
    let check = |a: u64, b: u64, who: &str, want: u64| {
        let used = everybody(&[("a", held("T4", 1, a, 0)), ("b", held("T4", 1, b, 0))]);
        quotas.check(&used, &who.into(), &held("T4", 1, want, 0))
    };
    assert_eq!(check(1000, 0, "a", 1000), Verdict::Fits);
    assert_eq!(check(2000, 0, "a", 1500), Verdict::Borrows);
    assert!(matches!(check(2000, 0, "a", 1600), Verdict::Exceeds(_)), "b keeps 500 for itself");
    assert_eq!(check(0, 2000, "b", 2000), Verdict::Borrows);
    // a borrowed 1500; b wants its own.
    let Verdict::Reclaims(lent) = check(3500, 500, "b", 1000) else { panic!("b has a right to it") };
    assert!(lent[0].to_string().ends_with("lent to others of the cohort"), "{}", lent[0]);
}

#[test]
fn what_was_borrowed_is_given_back_by_the_fewest_least_and_youngest() {
    let quotas = cohort();
    let pod = |name: &str, share: u64, class: Class, since: u64| Holder {
        uid: name.into(),
        namespace: "a".into(),
        held: held("T4", 1, share, 0),
        class,
        priority: 0,
        since: Time::seconds(since),
    };
    let holders = [
        pod("old", 2000, Class::Guarantee, 1),
        pod("young", 500, Class::Guarantee, 9),
        pod("gap", 500, Class::Opportunistic, 2),
        pod("big", 1000, Class::Opportunistic, 1),
    ];
    let mut used = everybody(&[("b", held("T4", 1, 0, 0))]);
    for holder in &holders {
        used.entry("a".into()).or_default().add(&holder.held);
    }
    let victims = |want: u64| reclaim(&quotas, &used, &"b".into(), &held("T4", 1, want, 0), &holders);
    assert_eq!(victims(500), Some(vec!["gap".into()]));
    assert_eq!(victims(1000), Some(vec!["big".into()]), "the smaller one would be evicted in vain");
    assert_eq!(victims(2000), Some(vec!["gap".into(), "big".into(), "young".into()]));
    assert_eq!(victims(2100), None, "more than its own");
}

proptest! {
    /// Nobody is evicted in vain, nobody who holds only his own, and afterwards the pod fits.
    #[test]
    fn reclaim_is_enough_and_not_too_much(shares in prop::collection::vec((1u64..1500, any::<bool>(), 0u64..9), 0..6), want in 1u64..2500) {
        let quotas = cohort();
        let holders: Vec<Holder> = shares.iter().enumerate().map(|(i, (share, lesser, since))| Holder {
            uid: format!("p{i}").into(),
            namespace: "a".into(),
            held: held("T4", 1, *share, 0),
            class: if *lesser { Class::Opportunistic } else { Class::Guarantee },
            priority: 0,
            since: Time::seconds(*since),
        }).collect();
        let mut used = everybody(&[]);
        holders.iter().for_each(|h| used.entry("a".into()).or_default().add(&h.held));
        let want = held("T4", 1, want, 0);
        if let Some(victims) = reclaim(&quotas, &used, &"b".into(), &want, &holders) {
            let without = |spared: Option<&crate::model::id::PodUid>| {
                let mut left = used.clone();
                for holder in holders.iter().filter(|h| victims.contains(&h.uid) && Some(&h.uid) != spared) {
                    left.entry("a".into()).or_default().take(&holder.held);
                }
                quotas.check(&left, &"b".into(), &want)
            };
            prop_assert!(matches!(without(None), Verdict::Fits | Verdict::Borrows));
            for victim in &victims {
                prop_assert!(matches!(without(Some(victim)), Verdict::Reclaims(_)));
            }
        }
    }
}

#[test]
fn a_device_that_is_held_alone_counts_once_however_often_it_is_promised() {
    let mut node = crate::testing::node("node a gpu=1:16Gi");
    let device = &mut node.inventory.devices[0];
    (device.bookable_share, device.bookable_memory) = (Some(Share(2000)), Some(Bytes::gib(24)));
    let alone = Charge { exclusive: true, ..Charge::default() };
    let whole = Usage { devices: 1, share: 1000, memory: Bytes::gib(16).0 };
    assert_eq!(Usage::of(&alone, device), whole);
    device.bookable_memory = Some(Bytes::gib(15));
    assert_eq!(Usage::of(&alone, device).memory, Bytes::gib(15).0, "what is kept back is nobody's");
}

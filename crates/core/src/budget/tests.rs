//! Accounts through their days, as short stories. One device costs one GPU second per second; time is told in seconds.

use super::*;
use crate::model::ask::{Class, Role};
use crate::model::device::{Device, DeviceKind, Inventory, Isolation};
use crate::model::grant::{ContainerGrant, Grant, Slice};
use crate::model::id::{Namespace, PodKey, PodUid};
use crate::model::time::Time;
use crate::model::units::{Bytes, Share};

pub(super) const fn t(seconds: u64) -> Time {
    Time::seconds(seconds)
}

pub(super) fn key(name: &str) -> AccountKey {
    AccountKey { namespace: Some("team".into()), name: name.into() }
}

pub(super) fn device(share: u32) -> HeldDevice {
    HeldDevice {
        device: "GPU-0".into(),
        model: "H200".into(),
        share: Share(share),
        memory: Bytes::ZERO,
        of_share: Share::WHOLE,
        of_memory: Bytes::gib(141),
        alone: false,
    }
}

pub(super) fn hold(name: &str, share: u32, from: u64) -> Hold {
    Hold::new(PodUid::from(name), PodKey::new("team", name), "n0".into(), t(from), vec![device(share)])
}

pub(super) fn terms(seconds: i64) -> Terms {
    Terms {
        amount: Amount::units(seconds),
        cost: CostRule { prices: Prices::time(), ..CostRule::default() },
        ..Terms::default()
    }
}

/// Periods of so many seconds from the epoch on.
pub(super) struct Every(pub(super) u64);

impl Calendar for Every {
    fn bucket(&self, _: &AccountKey, at: Time) -> (Time, Time) {
        let length = self.0 * 1000;
        let start = at.0 / length * length;
        (Time(start), Time(start + length))
    }
}

const DAY: Every = Every(1000);

/// A team with one budget.
fn team(terms: Terms) -> Accounting {
    let mut accounting = Accounting::new(t(0));
    accounting.put_account(&key("b"), terms, t(0), 1, &DAY);
    accounting.cover(&"team".into(), vec![key("b")], t(0));
    accounting
}

fn left(accounting: &Accounting) -> String {
    accounting.balance(&key("b")).unwrap().left().to_string()
}

fn class(accounting: &Accounting) -> Class {
    accounting.standing(&"team".into()).class
}

fn entry(kind: EntryKind, seconds: i64, at: u64) -> Entry {
    Entry { kind, amount: Amount::units(seconds), at: t(at) }
}

#[test]
fn a_slice_is_charged_for_the_time_it_is_held() {
    let mut a = team(terms(100));
    a.open(hold("p", 500, 10));
    a.advance(t(50), &DAY);
    assert_eq!(left(&a), "80");
    a.close(&"p".into(), End { at: t(60), evicted: false });
    a.advance(t(500), &DAY);
    assert_eq!(left(&a), "75");
}

#[test]
fn an_end_that_is_seen_late_takes_back_what_was_charged_too_much() {
    let mut a = team(terms(100));
    a.open(hold("p", 1000, 0));
    a.advance(t(50), &DAY);
    a.close(&"p".into(), End { at: t(20), evicted: false });
    assert_eq!(left(&a), "80");
}

#[test]
fn gs_09_an_account_runs_empty_at_its_exact_moment_and_is_never_overdrawn_without_grace() {
    let mut a = team(terms(30));
    a.open(hold("p", 500, 0));
    let happened = a.advance(t(500), &DAY);
    let at: Vec<(Time, What)> = happened.iter().map(|h| (h.at, h.what)).collect();
    assert_eq!(at, [(t(60), What::Emptied), (t(60), What::Out)]);
    assert_eq!((left(&a).as_str(), class(&a)), ("0", Class::Opportunistic));
    let lines = a.lines(&"team".into(), t(0), t(500));
    assert_eq!(
        lines.iter().map(|l| (l.from, l.to, l.opportunistic)).collect::<Vec<_>>(),
        [(t(0), t(60), false), (t(60), t(500), true)]
    );
}

#[test]
fn gs_07_opportunistic_time_is_recorded_and_costs_nothing_unless_the_budget_says_so() {
    let mut free = team(terms(0));
    free.open(hold("p", 1000, 0));
    free.advance(t(100), &DAY);
    assert_eq!(left(&free), "0");
    let lines = free.lines(&"team".into(), t(0), t(100));
    assert_eq!((lines[0].to, lines[0].charged[0].1), (t(100), Amount::ZERO));

    let mut terms = terms(10);
    terms.cost.opportunistic = 50;
    let mut half = team(terms);
    half.open(hold("p", 1000, 0));
    half.advance(t(100), &DAY);
    assert_eq!(left(&half), "-45");
}

#[test]
fn the_period_turns_and_pods_are_in_budget_again() {
    let mut a = team(terms(30));
    a.open(hold("p", 1000, 980));
    a.advance(t(990), &DAY);
    assert_eq!(left(&a), "20");
    let happened = a.advance(t(1040), &DAY);
    let at: Vec<(Time, What)> = happened.iter().map(|h| (h.at, h.what)).collect();
    assert_eq!(at, [(t(1000), What::Turned), (t(1030), What::Emptied), (t(1030), What::Out)]);
    a.advance(t(2001), &DAY);
    assert_eq!((left(&a).as_str(), class(&a)), ("29", Class::Guarantee));
}

#[test]
fn what_is_left_is_carried_over_up_to_the_limit_and_debt_always_is() {
    let mut rule = terms(100);
    rule.carry = Carry { percent: 50, at_most: Some(Amount::units(30)) };
    let mut a = team(rule.clone());
    a.advance(t(1000), &DAY);
    assert_eq!(left(&a), "130");
    // Half of 130 would be 65.
    a.advance(t(2000), &DAY);
    assert_eq!(left(&a), "130");
    // A charge that comes to light after the turn lessens what was carried.
    let mut late = hold("p", 1000, 1800);
    late.end = Some(End { at: t(1910), evicted: false });
    a.open(late);
    assert_eq!(left(&a), "110");

    let mut indebted = team(terms(100));
    indebted.put_account(&key("b"), Terms { grace: 50_000, ..terms(100) }, t(0), 1, &DAY);
    indebted.open(hold("p", 1000, 0));
    indebted.advance(t(1000), &DAY);
    assert_eq!(left(&indebted), "50", "overdrawn by the 50 seconds of grace");
}

#[test]
fn running_pods_go_on_during_the_grace_and_then_make_room() {
    let mut a = team(Terms { grace: 20_000, on_exhaustion: OnExhaustion::Stop, ..terms(10) });
    a.open(hold("p", 1000, 0));
    a.advance(t(15), &DAY);
    let standing = a.standing(&"team".into());
    assert_eq!((standing.class, standing.stop, standing.grace_until), (Class::Guarantee, false, Some(t(30))));
    a.advance(t(30), &DAY);
    let standing = a.standing(&"team".into());
    assert_eq!((standing.class, standing.stop, standing.grace_until), (Class::Opportunistic, true, None));
    assert_eq!(standing.because, Some((key("b"), t(30))));
    assert_eq!(left(&a), "-20");
}

#[test]
fn a_top_up_brings_an_account_back_at_its_own_moment() {
    let mut a = team(terms(10));
    a.open(hold("p", 1000, 0));
    a.advance(t(20), &DAY);
    assert!(a.post(&key("b"), "e1", entry(EntryKind::TopUp, 5, 30)));
    assert!(!a.post(&key("b"), "e1", entry(EntryKind::TopUp, 5, 30)), "the same entry counts once");
    let happened = a.advance(t(40), &DAY);
    let at: Vec<(Time, What)> = happened.iter().map(|h| (h.at, h.what)).collect();
    assert_eq!(at, [(t(30), What::Back), (t(35), What::Emptied), (t(35), What::Out)]);
    a.post(&key("b"), "e2", entry(EntryKind::Credit, 8, 40));
    a.post(&key("b"), "e3", entry(EntryKind::Debit, 3, 40));
    a.advance(t(41), &DAY);
    assert_eq!((left(&a).as_str(), class(&a)), ("4", Class::Guarantee));
}

#[test]
fn a_pod_that_divvy_evicted_gets_back_what_the_rule_says() {
    let mut a = team(Terms { refunds: Refunds { percent: 50, window: Some(20_000) }, ..terms(100) });
    a.open(hold("p", 1000, 0));
    a.advance(t(60), &DAY);
    a.close(&"p".into(), End { at: t(60), evicted: true });
    a.advance(t(70), &DAY);
    let balance = a.balance(&key("b")).unwrap();
    assert_eq!((balance.spent, balance.refunded), (Amount::units(60), Amount::units(10)));
    let lines = a.lines(&"team".into(), t(0), t(70));
    assert_eq!(lines[0].refunded, [(key("b"), Amount::units(10))]);
}

#[test]
fn a_pod_is_in_budget_while_all_its_budgets_are_and_each_charges_by_its_own_prices() {
    let pool = AccountKey { namespace: None, name: "pool".into() };
    let mut a = team(terms(1000));
    let mut rich = terms(30);
    rich.cost.prices = Prices { by_model: vec![("h200".into(), Price(7_200_000))], ..Prices::default() };
    a.put_account(&pool, rich, t(0), 1, &DAY);
    a.cover(&"team".into(), vec![pool.clone(), key("b")], t(0));
    a.open(hold("p", 1000, 0));
    a.advance(t(900), &DAY);
    // 7.2 an hour: 0.002 a second.
    assert_eq!(a.balance(&pool).unwrap().spent, Amount::micros(1_800_000));
    a.put_account(&pool, terms(1), t(0), 1, &DAY);
    let happened = a.advance(t(901), &DAY);
    assert_eq!(happened[0].what, What::Emptied);
    assert_eq!(class(&a), Class::Opportunistic);
    a.advance(t(950), &DAY);
    assert_eq!(left(&a), "100", "the other budget pays nothing for it from then on");
}

#[test]
fn new_prices_hold_from_now_on() {
    let mut a = team(terms(1000));
    a.open(hold("p", 1000, 0));
    a.advance(t(100), &DAY);
    let mut dear = terms(1000);
    dear.cost.prices.otherwise = Some(Price(2 * Price::TIME.0));
    a.put_account(&key("b"), dear, t(0), 1, &DAY);
    a.advance(t(200), &DAY);
    assert_eq!(left(&a), "700");
}

#[test]
fn a_resized_pod_costs_what_it_holds_since() {
    let mut a = team(terms(1000));
    a.open(hold("p", 1000, 0));
    a.advance(t(100), &DAY);
    a.change(&"p".into(), vec![device(500)], t(60));
    a.advance(t(160), &DAY);
    assert_eq!(left(&a), "890");
}

#[test]
fn a_budget_charges_from_its_creation_on() {
    let mut a = Accounting::new(t(0));
    a.open(hold("p", 1000, 0));
    a.advance(t(105), &DAY);
    a.put_account(&key("b"), terms(100), t(100), 1, &DAY);
    a.cover(&"team".into(), vec![key("b")], t(100));
    a.advance(t(110), &DAY);
    assert_eq!(left(&a), "90");
    // The other way round: the pod comes to light after the budget.
    let mut b = team(terms(100));
    b.remove_account(&key("b"));
    b.put_account(&key("b"), terms(100), t(100), 1, &DAY);
    b.cover(&"team".into(), vec![key("b")], t(100));
    b.open(hold("p", 1000, 0));
    b.advance(t(110), &DAY);
    assert_eq!(left(&b), "90");
}

#[test]
fn a_rolling_window_gives_back_what_falls_out_of_it() {
    const STEP: Every = Every(100);
    let mut a = Accounting::new(t(0));
    a.put_account(&key("b"), terms(60), t(0), 3, &STEP);
    a.cover(&"team".into(), vec![key("b")], t(0));
    a.open(hold("p", 200, 0));
    a.advance(t(299), &STEP);
    assert_eq!(left(&a), "0.2");
    let happened = a.advance(t(320), &STEP);
    assert_eq!(happened.iter().map(|h| (h.at, h.what)).collect::<Vec<_>>(), [(t(300), What::Turned)]);
    assert_eq!(left(&a), "16", "the first hundred seconds fell out, twenty came in");
}

#[test]
fn busy_time_is_charged_when_it_is_reported_and_once() {
    let mut rule = terms(1000);
    rule.cost.basis = Basis::Busy;
    let mut a = team(rule);
    a.open(hold("p", 500, 0));
    a.advance(t(100), &DAY);
    assert_eq!(left(&a), "1000");
    let record = |at: u64, busy: u64| Record {
        sequence: at,
        at: t(at),
        pod: PodKey::new("team", "p"),
        uid: "p".into(),
        container: "main".into(),
        held: device(500),
        granted: t(0),
        until: None,
        busy: busy * 1000,
    };
    assert!(a.report(&"n0".into(), &record(60, 30), t(200)));
    assert!(a.report(&"n0".into(), &record(60, 30), t(200)));
    assert!(a.report(&"n0".into(), &record(30, 20), t(200)), "an older one");
    assert_eq!(left(&a), "970");
    a.advance(t(200), &DAY);
    a.report(&"n0".into(), &record(150, 90), t(200));
    assert_eq!(left(&a), "910");
}

#[test]
fn what_a_node_says_about_pods_that_did_not_run_on_it_changes_nothing() {
    let mut a = team(terms(1000));
    a.open(hold("p", 500, 0));
    a.advance(t(100), &DAY);
    let of_p = Record {
        sequence: 1,
        at: t(60),
        pod: PodKey::new("team", "p"),
        uid: "p".into(),
        container: "main".into(),
        held: device(1000),
        granted: t(0),
        until: Some(t(50)),
        busy: 0,
    };
    let before = a.clone();
    assert!(!a.report(&"elsewhere".into(), &of_p, t(100)), "another node");
    assert!(!a.report(&"n0".into(), &Record { uid: "ghost".into(), ..of_p.clone() }, t(100)), "nobody saw this pod");
    assert!(
        !a.report(&"n0".into(), &Record { pod: PodKey::new("other", "p"), ..of_p.clone() }, t(100)),
        "another namespace"
    );
    assert_eq!(a, before);
    assert!(a.report(&"n0".into(), &of_p, t(100)));
    assert_eq!(left(&a), "975", "it left after 50 seconds, and held half a card whatever its node says");
}

#[test]
fn a_node_cannot_make_a_container_busier_than_time_allows_nor_a_pods_books_large() {
    let mut rule = terms(1000);
    rule.cost.basis = Basis::Busy;
    let mut a = team(rule);
    a.open(hold("p", 500, 0));
    a.advance(t(100), &DAY);
    let lie = |container: &str, device: HeldDevice, at: u64| Record {
        sequence: at,
        at: t(at),
        pod: PodKey::new("team", "p"),
        uid: "p".into(),
        container: container.into(),
        held: device,
        granted: t(0),
        until: None,
        busy: u64::MAX,
    };
    a.report(&"n0".into(), &lie("main", device(500), 10_000), t(100));
    a.report(&"n0".into(), &lie("main", HeldDevice { device: "another".into(), ..device(500) }, 50), t(100));
    assert_eq!(left(&a), "900", "one device, for a hundred seconds");
    for n in 0..3000 {
        a.report(&"n0".into(), &lie(&format!("c{n}"), device(500), 50), t(100));
    }
    assert_eq!(a.hold(&"p".into()).unwrap().busy.len(), 1024);
}

#[test]
fn the_forecast_names_the_moment_or_says_that_it_lasts() {
    let mut a = team(terms(300));
    a.open(hold("p", 500, 0));
    a.advance(t(100), &DAY);
    let rate = a.burning()[&key("b")];
    let forecast = a.forecast(&key("b"), rate).unwrap();
    assert_eq!((forecast.empty_at, forecast.turns_at), (Some(t(600)), t(1000)));
    assert_eq!(rate.hourly(), Amount::units(1800));
    a.post(&key("b"), "e", entry(EntryKind::TopUp, 300, 100));
    assert_eq!(a.forecast(&key("b"), rate).unwrap().empty_at, None);
    let down: Vec<String> = a.burn_down(&key("b"), 2).iter().map(|(_, left)| left.to_string()).collect();
    assert_eq!(down, ["300", "275", "550"]);
}

#[test]
fn a_namespace_without_a_budget_is_in_budget() {
    let a = Accounting::new(t(0));
    let standing = a.standing(&Namespace::from("free"));
    assert_eq!((standing.class, standing.stop, standing.because), (Class::Guarantee, false, None));
}

#[test]
fn an_init_container_that_ends_lowers_the_cost() {
    let container = |name: &str, role: Role, share: u32| ContainerGrant {
        name: name.into(),
        role,
        slices: vec![Slice {
            device: "GPU-0".into(),
            kind: DeviceKind::Gpu,
            memory: Bytes::ZERO,
            memory_limit: Bytes::ZERO,
            share: Share(share),
            share_limit: Share::WHOLE,
            exclusive: false,
            isolation: Isolation::Intercept,
            partition: None,
        }],
    };
    let containers = vec![container("init", Role::Init, 800), container("main", Role::Main, 200)];
    let grant = Grant { v: Grant::VERSION, at: 0, policy: String::new(), containers, claim: None };
    let devices = vec![Device::gpu("GPU-0", 0, "H200", Bytes::gib(141))];
    let inventory = Inventory { devices, ..Inventory::default() };
    let parts = |done: bool| cost::held(&grant, &inventory, done).iter().map(HeldDevice::dominant).sum::<u64>();
    assert_eq!((parts(false), parts(true)), (800_000, 200_000));
}

#[test]
fn an_account_stored_after_it_came_back_is_brought_back_to_the_moment_it_was_out_and_comes_back_again() {
    let mut first = team(terms(30));
    first.open(hold("p", 1000, 0));
    first.advance(t(50), &DAY);
    assert_eq!(class(&first), Class::Opportunistic);
    first.post(&key("b"), "more", entry(EntryKind::TopUp, 100, 60));
    first.advance(t(70), &DAY);
    assert_eq!(class(&first), Class::Guarantee);
    // Another account was stored earlier, at 40: all go on from there.
    let mut second = Accounting::new(t(40));
    second.restore(key("b"), first.account(&key("b")).unwrap().clone(), t(70));
    second.cover(&"team".into(), vec![key("b")], t(40));
    first.holds().for_each(|hold| second.restore_hold(hold.clone()));
    second.advance(t(70), &DAY);
    assert_eq!(class(&second), Class::Guarantee);
    assert_eq!(left(&second), left(&first));
}

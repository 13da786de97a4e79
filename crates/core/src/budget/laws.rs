//! What must hold of every account, whatever pods, people and nodes do and in whatever order it is told.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{Every, device, hold, key, t, terms};
use super::*;
use crate::model::id::{NodeName, PodKey, PodUid};
use crate::model::time::Time;

const PERIOD: Every = Every(200);
const END: u64 = 500;

/// A pod's life: share in thousandths, begin, end, whether Divvy evicted it, whether its owner wanted it opportunistic.
#[derive(Clone, Debug)]
struct Life {
    share: u32,
    from: u64,
    to: Option<u64>,
    evicted: bool,
    by_choice: bool,
    busy: Vec<(u64, u64)>,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let busy = prop::collection::vec((0u64..END, 0u64..2000), 0..4);
    let life = (1u32..=1000, 0u64..END, prop::option::of(1u64..300), any::<bool>(), prop::bool::weighted(0.2), busy);
    let life = life.prop_map(|(share, from, length, evicted, by_choice, mut busy)| {
        busy.sort_unstable();
        // A counter never goes back.
        let mut most = 0;
        for (_, count) in &mut busy {
            most = most.max(*count);
            *count = most;
        }
        Life { share, from, to: length.map(|l| (from + l).min(END)), evicted, by_choice, busy }
    });
    prop::collection::vec(life, 1..7)
}

/// Something an account is told.
#[derive(Clone, Debug)]
enum Fact {
    Open(Hold),
    Close(PodUid, End),
    Report(Record),
    Post(String, Entry),
}

fn facts(lives: &[Life]) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (i, life) in lives.iter().enumerate() {
        let name = format!("p{i}");
        let mut open = hold(&name, life.share, life.from);
        open.by_choice = life.by_choice;
        facts.push(Fact::Open(open));
        for (sequence, (at, busy)) in life.busy.iter().enumerate() {
            facts.push(Fact::Report(Record {
                sequence: sequence as u64,
                at: t(*at),
                pod: PodKey::new("team", name.as_str()),
                uid: name.as_str().into(),
                container: "main".into(),
                held: device(life.share),
                granted: t(life.from),
                until: None,
                busy: *busy,
            }));
        }
        if let Some(to) = life.to {
            facts.push(Fact::Close(name.as_str().into(), End { at: t(to), evicted: life.evicted }));
        }
    }
    facts
}

fn tell(accounting: &mut Accounting, fact: &Fact) {
    match fact {
        Fact::Open(hold) => accounting.open(hold.clone()),
        Fact::Close(uid, end) => accounting.close(uid, *end),
        Fact::Report(record) => {
            accounting.report(&NodeName::from("n0"), record, t(END));
        }
        Fact::Post(id, entry) => {
            accounting.post(&key("b"), id, entry.clone());
        }
    }
}

fn rule(amount: i64, basis: Basis) -> Terms {
    let mut terms = terms(amount);
    terms.cost.basis = basis;
    terms.cost.opportunistic = 30;
    terms.grace = 7_000;
    terms.carry = Carry { percent: 40, at_most: None };
    terms.refunds = Refunds { percent: 70, window: Some(50_000) };
    terms
}

fn team(terms: Terms) -> Accounting {
    let mut accounting = Accounting::new(t(0));
    accounting.put_account(&key("b"), terms, t(0), 1, &PERIOD);
    accounting.cover(&"team".into(), vec![key("b")], t(0));
    accounting
}

/// A permutation, given as numbers to sort by, with some facts told more than once.
fn shuffled(facts: &[Fact], order: &[u8]) -> Vec<Fact> {
    let keyed = |(i, fact): (usize, &Fact)| (order.get(i).copied().unwrap_or(0), fact.clone());
    let mut all: Vec<(u8, Fact)> = facts.iter().enumerate().map(keyed).collect();
    let again: Vec<(u8, Fact)> =
        all.iter().filter(|(n, _)| n % 3 == 0).map(|(n, f)| (n.wrapping_mul(7), f.clone())).collect();
    all.extend(again);
    all.sort_by_key(|(n, _)| *n);
    // A hold must be open before it is closed and before its node is believed about it.
    let mut told: Vec<Fact> = Vec::new();
    let (opens, rest): (Vec<_>, Vec<_>) = all.into_iter().map(|(_, f)| f).partition(|f| matches!(f, Fact::Open(_)));
    told.extend(opens);
    told.extend(rest);
    told
}

/// What the pods cost, worked out one millisecond-exact stretch at a time and without any of the code under test.
fn integral(lives: &[Life]) -> u128 {
    let cost = |life: &Life| {
        let millis = u128::from(life.to.unwrap_or(END).max(life.from) - life.from) * 1000;
        let percent = if life.by_choice { 30 } else { 100 };
        // Thousandths of a device times milliseconds are millionths of a GPU second; then hundredths of the price.
        millis * u128::from(life.share) * percent
    };
    lives.iter().map(cost).sum()
}

fn spent_ever(accounting: &Accounting) -> Amount {
    accounting.account(&key("b")).map(|a| a.buckets.iter().map(|b| b.spent).sum()).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Charges are conserved: their sum is the integral of what was held times its price, to the millisecond, however often and
    /// whenever somebody looked.
    #[test]
    fn charges_are_the_integral_of_grants_times_price(lives in lives(), looks in prop::collection::vec(1u64..END * 1000, 0..6)) {
        // One period holds all, and there is enough: every pod runs in its own class from begin to end.
        let all = Every(10_000);
        let mut accounting = Accounting::new(t(0));
        accounting.put_account(&key("b"), rule(1_000_000, Basis::Held), t(0), 1, &all);
        accounting.cover(&"team".into(), vec![key("b")], t(0));
        let mut looks = looks;
        looks.sort_unstable();
        let facts = facts(&lives);
        for fact in &facts[..facts.len() / 2] {
            tell(&mut accounting, fact);
        }
        for look in looks {
            accounting.advance(Time(look), &all);
        }
        for fact in &facts[facts.len() / 2..] {
            tell(&mut accounting, fact);
        }
        accounting.advance(t(END), &all);
        let expected = integral(&lives);
        prop_assert_eq!(spent_ever(&accounting), Amount::micros(i64::try_from(expected / 100).unwrap()) + Amount::micros(i64::try_from(expected % 100).unwrap()).percent(1));
    }

    /// Looking more often changes nothing: not the balances, not when accounts ran empty, not the trail.
    #[test]
    fn the_outcome_does_not_depend_on_when_somebody_looked(lives in lives(), amount in 0i64..200, looks in prop::collection::vec(1u64..END * 1000, 0..8)) {
        let run = |looks: &[u64]| {
            let mut accounting = team(rule(amount, Basis::Held));
            for fact in facts(&lives) {
                tell(&mut accounting, &fact);
            }
            let mut happened = Vec::new();
            for look in looks {
                happened.extend(accounting.advance(Time(*look), &PERIOD));
            }
            happened.extend(accounting.advance(t(END), &PERIOD));
            (accounting, happened)
        };
        let mut sorted = looks;
        sorted.sort_unstable();
        prop_assert_eq!(run(&sorted), run(&[]));
    }

    /// Order and duplication of what is told do not matter.
    #[test]
    fn order_and_duplication_of_reports_do_not_matter(lives in lives(), amount in 0i64..200, busy in any::<bool>(), order in prop::collection::vec(any::<u8>(), 40)) {
        let basis = if busy { Basis::Busy } else { Basis::Held };
        let facts = facts(&lives);
        let run = |facts: &[Fact]| {
            // Late: everything is told after the time it speaks of, so nothing depends on class.
            let mut accounting = team(rule(if amount % 2 == 0 { 1_000_000 } else { amount }, basis));
            if amount % 2 == 0 {
                accounting.advance(t(END), &PERIOD);
            }
            for fact in facts {
                tell(&mut accounting, fact);
            }
            accounting.advance(t(END), &PERIOD);
            accounting
        };
        let (one, other) = (run(&facts), run(&shuffled(&facts, &order)));
        prop_assert_eq!(one.account(&key("b")), other.account(&key("b")));
        prop_assert_eq!(one.holds().collect::<Vec<_>>(), other.holds().collect::<Vec<_>>());
    }

    /// Refunds never exceed charges, pod by pod.
    #[test]
    fn refunds_never_exceed_charges(lives in lives(), amount in 0i64..200, percent in 0u8..=255, window in prop::option::of(0u64..400_000)) {
        let mut rule = rule(amount, Basis::Held);
        rule.refunds = Refunds { percent, window };
        let mut accounting = team(rule);
        for fact in facts(&lives) {
            tell(&mut accounting, &fact);
            accounting.advance(Time(accounting.at().0 + 40_000).min(t(END)), &PERIOD);
        }
        accounting.advance(t(END), &PERIOD);
        for hold in accounting.holds() {
            prop_assert!(accounting.refund(hold, &key("b")) <= accounting.cost(hold, &key("b")));
        }
        for bucket in &accounting.account(&key("b")).unwrap().buckets {
            prop_assert!(bucket.refunded >= Amount::ZERO && bucket.spent >= Amount::ZERO);
        }
    }

    /// No balance changes without a line of the trail: what lines, entries and grants say adds up to the balance, up to the one
    /// millionth by which each pod's lines are rounded down.
    #[test]
    fn no_balance_changes_without_an_audit_line(lives in lives(), amount in 0i64..200, entries in prop::collection::vec((0u64..END, 0i64..50, 0u8..3), 0..4)) {
        let mut accounting = team(rule(amount, Basis::Held));
        let kinds = [EntryKind::TopUp, EntryKind::Credit, EntryKind::Debit];
        let mut all = facts(&lives);
        for (i, (at, seconds, kind)) in entries.iter().enumerate() {
            let entry = Entry { kind: kinds[usize::from(*kind)], amount: Amount::units(*seconds), at: t(*at) };
            all.push(Fact::Post(format!("e{i}"), entry));
        }
        for fact in &all {
            tell(&mut accounting, fact);
        }
        accounting.advance(t(END), &PERIOD);
        let account = accounting.account(&key("b")).unwrap();
        for bucket in &account.buckets {
            let lines = accounting.lines(&"team".into(), bucket.start, bucket.end.min(accounting.at()));
            let charged: i64 = lines.iter().flat_map(|l| &l.charged).map(|(_, a)| a.floor_micros()).sum();
            let slack = lives.len() as i64 + 1;
            let spent = bucket.spent.floor_micros();
            prop_assert!((spent - charged).abs() <= slack, "spent {spent}, lines {charged}");
        }
        let balance = account.balance(accounting.at());
        let posted: Amount = account.entries.values().filter(|e| account.current().is_some_and(|b| b.start <= e.at)).map(Entry::signed).sum();
        prop_assert_eq!(balance.left(), balance.granted + balance.carried + posted + balance.refunded - balance.spent);
        prop_assert_eq!(balance.adjusted, posted);
    }

    /// Killed at any moment and brought back from what is stored, an account ends where an undisturbed one ends.
    #[test]
    fn a_restart_from_what_was_stored_changes_nothing(lives in lives(), amount in 0i64..200, checkpoint in 1u64..END * 1000, killed in 0u64..100_000) {
        let mut undisturbed = team(rule(amount, Basis::Held));
        let facts = facts(&lives);
        facts.iter().for_each(|fact| tell(&mut undisturbed, fact));

        // The first life: everything is accounted for up to the checkpoint, something more is done after it, and then it dies.
        let mut first = undisturbed.clone();
        first.advance(Time(checkpoint), &PERIOD);
        let mut dying = first.clone();
        dying.advance(Time(checkpoint + killed).min(t(END)), &PERIOD);

        // The second life: accounts as the first one stored them last, holds as they are known from trail and pods.
        let mut second = Accounting::new(Time(checkpoint));
        second.restore(key("b"), first.account(&key("b")).unwrap().clone(), Time(checkpoint));
        second.cover(&"team".into(), vec![key("b")], Time(checkpoint));
        dying.holds().for_each(|hold| second.restore_hold(hold.clone()));
        second.advance(t(END), &PERIOD);
        undisturbed.advance(t(END), &PERIOD);
        let balances = |a: &Accounting| a.account(&key("b")).map(|x| (x.balance(a.at()), x.timeline.clone(), x.empty_since));
        prop_assert_eq!(balances(&second), balances(&undisturbed));
    }

    /// The same of several accounts that were stored at different moments, some of them rolling, and killed again and again: whatever
    /// an account went through between the oldest stored moment and its own (turns, graces, being out and back) is as it was.
    #[test]
    fn accounts_stored_at_different_moments_restart_as_they_were(
        lives in lives(),
        amounts in (0i64..200, 0i64..200, 0i64..200),
        entries in prop::collection::vec((0u64..END, 0i64..50, 0u8..3), 0..4),
        deaths in prop::collection::vec(prop::collection::vec(1u64..END * 1000, 4), 1..4),
        folded in prop::option::of(0u64..END),
    ) {
        let names = ["b", "rolling", "pool"].map(key);
        let calendar = Mixed;
        let mut undisturbed = Accounting::new(t(0));
        for (name, amount, window) in [(&names[0], amounts.0, 1), (&names[1], amounts.1, 3), (&names[2], amounts.2, 1)] {
            undisturbed.put_account(name, rule(amount, Basis::Held), t(0), window, &calendar);
        }
        undisturbed.cover(&"team".into(), names.to_vec(), t(0));
        let mut all = facts(&lives);
        let kinds = [EntryKind::TopUp, EntryKind::Credit, EntryKind::Debit];
        for (i, (at, seconds, kind)) in entries.iter().enumerate() {
            let entry = Entry { kind: kinds[usize::from(*kind)], amount: Amount::units(*seconds), at: t(*at) };
            all.push(Fact::Post(format!("e{i}"), entry));
        }
        all.iter().for_each(|fact| tell(&mut undisturbed, fact));
        let mut living = undisturbed.clone();
        undisturbed.advance(t(END), &calendar);

        let mut deaths = deaths;
        deaths.iter_mut().for_each(|moments| moments.sort_unstable());
        deaths.sort();
        // How far each account's sums were drawn when it was last stored.
        let mut drawn: BTreeMap<AccountKey, Time> = names.clone().into_iter().map(|name| (name, Time(0))).collect();
        for moments in deaths {
            // Each account is stored at a moment of its own, in an order of its own, and what is over may be folded in between.
            let (kept, mut stored) = (living.holds().cloned().collect::<Vec<Hold>>(), Vec::new());
            for (i, at) in moments[..3].iter().enumerate() {
                living.advance(Time(*at).max(living.at()), &calendar);
                let name = &names[(i + moments[3] as usize) % 3];
                let account = living.account(name).unwrap().clone();
                let decided = living.at().max(account.decided);
                drawn.insert(name.clone(), account.through);
                stored.push((name.clone(), account, decided));
                // Nobody folds again before every account was stored since.
                let all_stored = names.iter().all(|name| living.account(name).unwrap().through <= drawn[name]);
                if let Some(through) = folded.filter(|_| all_stored) {
                    living.fold(t(through).min(living.at()));
                }
            }
            let mut again = Accounting::new(stored.iter().map(|(_, _, at)| *at).min().unwrap());
            stored.into_iter().for_each(|(name, account, at)| again.restore(name, account, at));
            again.cover(&"team".into(), names.to_vec(), again.at());
            kept.into_iter().for_each(|hold| again.restore_hold(hold));
            living = again;
        }
        living.advance(t(END), &calendar);
        let outcome = |a: &Accounting| names.clone().map(|name| {
            let account = a.account(&name).unwrap();
            let buckets: Vec<_> = account.buckets.iter().map(|b| (b.start, b.end, b.granted, b.spent, b.refunded)).collect();
            // Folding forgets when accounts were out before the first pod that is known one by one.
            let timeline = folded.is_none().then(|| account.timeline.clone());
            (account.balance(a.at()), account.timeline.is_out(a.at()), timeline, account.empty_since, buckets)
        });
        prop_assert_eq!(outcome(&living), outcome(&undisturbed));
    }

    /// Folding what is over into sums changes no balance, whenever it is done.
    #[test]
    fn folding_changes_no_balance(lives in lives(), amount in 0i64..200, through in 0u64..END) {
        let mut accounting = team(rule(amount, Basis::Held));
        facts(&lives).iter().for_each(|fact| tell(&mut accounting, fact));
        let mut folded = accounting.clone();
        accounting.advance(t(END), &PERIOD);
        folded.advance(t(END / 2), &PERIOD);
        folded.fold(t(through.min(END / 2)));
        folded.advance(t(END), &PERIOD);
        folded.fold(t(through));
        prop_assert_eq!(folded.balance(&key("b")), accounting.balance(&key("b")));
        // And it can be stored: what is left in memory and the sums make the same balance again.
        let mut again = Accounting::new(t(END));
        again.restore(key("b"), folded.account(&key("b")).unwrap().clone(), t(END));
        folded.holds().for_each(|hold| again.restore_hold(hold.clone()));
        prop_assert_eq!(again.balance(&key("b")), accounting.balance(&key("b")));
    }
}

/// A rolling account moves in steps of a minute, the others turn as in the other laws.
struct Mixed;

impl Calendar for Mixed {
    fn bucket(&self, account: &AccountKey, at: Time) -> (Time, Time) {
        if &*account.name == "rolling" { Every(60).bucket(account, at) } else { PERIOD.bucket(account, at) }
    }
}

#[test]
fn the_integral_of_a_known_day_is_what_people_would_say() {
    let life = Life { share: 500, from: 0, to: Some(100), evicted: false, by_choice: false, busy: Vec::new() };
    assert_eq!(integral(&[life]), 100_000 * 500 * 100);
}

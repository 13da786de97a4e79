//! Balances, as they are shown: the core's accounts themselves, or what the budget controller says in its objects' status.

use std::collections::BTreeMap;

use divvy_api::budget::{BudgetSpec, BudgetStatus, Period, State, Unit, read_amount};
use divvy_core::budget::{Accounting, Amount};
use divvy_core::time::Time;

use crate::view::Budget;

/// Points of a burn-down.
const POINTS: u64 = 48;
/// Points of a burn-down that is put together as statuses come.
const REMEMBERED: usize = 1_000;
/// A period that ends later than this never ends: ten years, in milliseconds.
const NEVER: u64 = 10 * 366 * 86_400_000;
/// GPU seconds in a GPU hour.
const HOUR: f64 = 3_600.0;

/// How every budget stands.
pub fn of(accounting: &Accounting) -> Vec<Budget> {
    let burning = accounting.burning();
    let hours = |amount: Amount| amount.floor_micros() as f64 / 1e6 / HOUR;
    let budget = |key: &divvy_core::budget::AccountKey| {
        let account = accounting.account(key)?;
        let balance = accounting.balance(key)?;
        let (from, to) = account.period()?;
        let out = account.timeline.is_out(accounting.at());
        let forecast = accounting.forecast(key, burning.get(key).copied().unwrap_or_default());
        let state = match (out, account.empty_since) {
            (true, _) => "out of budget",
            (false, Some(_)) => "in grace",
            (false, None) => "in budget",
        };
        Some(Budget {
            name: key.to_string(),
            namespaces: key.namespace.iter().map(|namespace| namespace.to_string()).collect(),
            unit: "GPU hours".into(),
            total: hours(balance.total()),
            spent: hours(balance.spent),
            from: from.0,
            to: to.0,
            state: state.into(),
            out,
            empty_at: forecast.and_then(|forecast| forecast.empty_at).map(|at| at.0),
            burn: accounting.burn_down(key, POINTS).into_iter().map(|(at, left)| (at.0, hours(left))).collect(),
        })
    };
    accounting.accounts().filter_map(|(key, _)| budget(key)).collect()
}

/// Balances as the status of budgets tells them. What was left is remembered from when we first heard of it.
#[derive(Debug, Default)]
pub struct Balances(BTreeMap<String, Budget>);

impl Balances {
    /// How a budget stands now; one of the whole cluster has no namespace.
    pub fn hear(&mut self, namespace: Option<&str>, name: &str, spec: &BudgetSpec, status: &BudgetStatus, now: Time) {
        let name = key(namespace, name);
        // Nothing is known before the controller has seen it; a template has no balance.
        if status.observed_generation == 0 || status.state == State::Template {
            self.0.remove(&name);
            return;
        }
        let unit = spec.money.as_ref().map_or(Unit::Time, |money| Unit::Money(money.currency.clone()));
        let (total, left, hourly) =
            (number(&unit, &status.total), number(&unit, &status.left), number(&unit, &status.per_hour));
        let empty_at = (hourly > 0.0 && left > 0.0).then(|| now.0.saturating_add((left / hourly * HOUR * 1e3) as u64));
        let (from, to) = period(spec, status, now);
        // Who never renews has no end but this.
        let to = to.unwrap_or_else(|| empty_at.unwrap_or(now.0).max(now.0));
        let mut burn =
            self.0.remove(&name).filter(|known| known.from == from).map(|known| known.burn).unwrap_or_default();
        if burn.len() == REMEMBERED {
            burn.remove(0);
        }
        burn.push((now.0, left));
        let budget = Budget {
            name: name.clone(),
            namespaces: namespace.map(str::to_owned).into_iter().collect(),
            unit: match unit {
                Unit::Time => "GPU hours".into(),
                Unit::Money(currency) => currency,
            },
            total,
            spent: total - left,
            from,
            to,
            state: match status.state {
                State::InBudget | State::Template => "in budget".into(),
                State::Grace => "in grace".into(),
                State::OutOfBudget => "out of budget".into(),
                State::Stopped => "out of budget: pods are stopped".into(),
                State::Invalid => format!("not followed: {}", status.message),
            },
            out: matches!(status.state, State::OutOfBudget | State::Stopped),
            empty_at: empty_at.filter(|at| *at < to),
            burn,
        };
        self.0.insert(name, budget);
    }

    /// A budget is gone.
    pub fn forget(&mut self, namespace: Option<&str>, name: &str) {
        self.0.remove(&key(namespace, name));
    }

    /// How every budget stands.
    pub fn all(&self) -> Vec<Budget> {
        self.0.values().cloned().collect()
    }
}

fn key(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// When the period began, and when it ends if it does.
fn period(spec: &BudgetSpec, status: &BudgetStatus, now: Time) -> (u64, Option<u64>) {
    let Some(books) = &status.books else { return (now.0, None) };
    let rolling = spec.period.as_ref().is_some_and(|period| period.rolling.is_some());
    let window = if rolling { Period::STEPS } else { 1 };
    let counted = &books.buckets[books.buckets.len().saturating_sub(window)..];
    match counted.first().zip(counted.last()) {
        Some((first, last)) if last.end < now.0.saturating_add(NEVER) => (first.start, Some(last.end)),
        _ => (books.since, None),
    }
}

/// An amount in a status: `2h30m`, `-5m`, `12.5 EUR`. In hours, or in the currency.
fn number(unit: &Unit, text: &str) -> f64 {
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |text| (-1.0, text));
    let amount = read_amount(unit, text.split(' ').next().unwrap_or_default()).unwrap_or_default();
    let number = sign * amount.floor_micros() as f64 / 1e6;
    if *unit == Unit::Time { number / HOUR } else { number }
}

#[cfg(test)]
mod tests {
    use divvy_api::budget::spec::Money;
    use divvy_api::budget::status::{BookBucket, Books};

    use super::*;

    fn status(state: State, left: &str, total: &str, per_hour: &str) -> BudgetStatus {
        BudgetStatus {
            observed_generation: 1,
            state,
            left: left.into(),
            total: total.into(),
            per_hour: per_hour.into(),
            ..BudgetStatus::default()
        }
    }

    #[test]
    fn a_status_becomes_a_balance_whose_course_is_remembered_until_the_period_turns() {
        let hour = 3_600_000;
        let time = BudgetSpec { gpu_time: Some("20h".into()), ..BudgetSpec::default() };
        let mut balances = Balances::default();
        let mut hear = |left: &str, at: u64, start: u64| {
            let mut status = status(State::InBudget, left, "20h", "2h");
            let bucket = BookBucket { start, end: start + 30 * 24 * hour, ..BookBucket::default() };
            status.books = Some(Books { buckets: vec![bucket], ..Books::default() });
            balances.hear(Some("red"), "time", &time, &status, Time(at));
            balances.all()
        };
        hear("20h", hour, hour);
        let all = hear("17h30m", 2 * hour, hour);
        let budget = &all[0];
        assert_eq!((budget.name.as_str(), budget.unit.as_str()), ("red/time", "GPU hours"));
        assert_eq!((budget.total, budget.spent), (20.0, 2.5));
        assert_eq!(budget.burn, [(hour, 20.0), (2 * hour, 17.5)]);
        assert_eq!(budget.empty_at, Some(2 * hour + 8 * hour + 45 * 60_000));
        let turned = hear("20h", 3 * hour, 3 * hour);
        assert_eq!(turned[0].burn, [(3 * hour, 20.0)]);
        balances.forget(Some("red"), "time");
        assert!(balances.all().is_empty());
    }

    #[test]
    fn money_debts_and_budgets_that_cannot_be_followed_are_told() {
        let money = Money { amount: "500".into(), currency: "EUR".into(), ..Money::default() };
        let spec = BudgetSpec { money: Some(money), ..BudgetSpec::default() };
        let mut balances = Balances::default();
        balances.hear(None, "all", &spec, &status(State::OutOfBudget, "-12.5 EUR", "500 EUR", "3 EUR"), Time(5));
        let wrong = BudgetStatus { message: "no amount".into(), ..status(State::Invalid, "", "", "") };
        balances.hear(Some("blue"), "odd", &spec, &wrong, Time(5));
        balances.hear(None, "each", &spec, &status(State::Template, "", "", ""), Time(5));
        let all = balances.all();
        assert_eq!(all.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), ["all", "blue/odd"]);
        assert_eq!((all[0].spent, all[0].out, all[0].unit.as_str()), (512.5, true, "EUR"));
        assert_eq!(all[1].state, "not followed: no amount");
    }
}

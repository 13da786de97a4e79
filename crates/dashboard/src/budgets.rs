//! The core's accounts, as they are shown.

use divvy_core::budget::{Accounting, Amount};

use crate::view::Budget;

/// Points of a burn-down.
const POINTS: u64 = 48;
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

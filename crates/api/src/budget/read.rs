//! What a budget's or a quota's words mean to the core. Every mistake is told at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::budget::{self, Amount, Carry, CostRule, OnExhaustion, Price, Prices, Reference, Refunds, Terms};
use divvy_core::quota::{Amounts, Limit, Quota};
use divvy_core::units::{Bytes, Share};
use divvy_dialects::QuotaKeys;
use jiff::tz::TimeZone;

use super::length;
use super::quota::{AmountsSpec, GpuQuotaSpec, LimitSpec, OtherModels, WhenExceeded};
use super::spec::{Action, Basis, BudgetSpec, Every, Measure};
use crate::policy::ClusterPolicy;

/// What a budget counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds of whole devices.
    Time,
    /// A currency.
    Money(String),
}

impl Unit {
    /// An amount as people read it: `2h30m`, `-5m`, `12.5 EUR`.
    pub fn text(&self, amount: Amount) -> String {
        match self {
            Unit::Money(currency) => format!("{amount} {currency}"),
            Unit::Time => {
                let millis = amount.floor_micros() / 1000;
                let words = length::text(millis.unsigned_abs());
                if millis <= -1000 { format!("-{words}") } else { words }
            }
        }
    }
}

/// How often a budget is granted anew.
#[derive(Clone, Debug, PartialEq)]
pub enum Period {
    /// Never.
    Once,
    /// With every calendar period.
    Calendar(Every, TimeZone),
    /// What was spent in so many milliseconds counts.
    Rolling(u64),
}

impl Period {
    /// Steps of a rolling window.
    pub const STEPS: usize = 30;

    /// How many buckets count.
    pub fn window(&self) -> usize {
        if matches!(self, Period::Rolling(_)) { Period::STEPS } else { 1 }
    }
}

/// A budget as the core knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetTerms {
    /// What it says.
    pub terms: Terms,
    /// What it counts in.
    pub unit: Unit,
    /// How often it is granted anew.
    pub period: Period,
}

/// Reads an amount of this unit.
pub fn read_amount(unit: &Unit, text: &str) -> Result<Amount, String> {
    match unit {
        Unit::Time => time(text).ok_or_else(|| {
            format!(
                "{text:?} is not a length of time; write it as 150m, 20h or 1d12h, because the budget counts GPU time"
            )
        }),
        Unit::Money(currency) => Amount::parse(text).filter(|a| *a >= Amount::ZERO).ok_or_else(|| {
            format!(
                "{text:?} is not an amount of {currency}; write it as 500 or 99.50, because the budget counts money"
            )
        }),
    }
}

fn time(text: &str) -> Option<Amount> {
    let millis = length::millis(text)?;
    i64::try_from(millis.checked_mul(1000)?).ok().map(Amount::micros)
}

/// Reads a budget, or tells all that is wrong with it. What models cost about which it says nothing is in `usual`.
pub fn read_budget(spec: &BudgetSpec, usual: &[(Arc<str>, Price)]) -> Result<BudgetTerms, Vec<String>> {
    let mut wrong = Vec::new();
    let (unit, amount, prices) = what(spec, usual, &mut wrong);
    let mut millis = |field: &str, text: Option<&String>| -> u64 {
        let Some(text) = text else { return 0 };
        length::millis(text).unwrap_or_else(|| {
            wrong.push(format!("{field}: {text:?} is not a length of time; write it as 10m, 20h or 1d12h"));
            0
        })
    };
    let exhaustion = spec.on_exhaustion.clone().unwrap_or_default();
    let grace = millis("onExhaustion.grace", exhaustion.grace.as_ref());
    let refunds = spec.refunds.as_ref();
    let window = refunds.and_then(|r| r.within.as_ref()).map(|text| millis("refunds.within", Some(text)));
    let rolling = spec.period.as_ref().and_then(|p| p.rolling.as_ref());
    let rolling = rolling.map(|text| millis("period.rolling", Some(text)));
    if let Some(length) = rolling
        && length < 86_400_000
    {
        wrong.push("period.rolling: a rolling period is at least a day (1d)".to_owned());
    }
    let period = period(spec, rolling, &mut wrong);
    let carry = spec.carry_over.as_ref().map_or(Carry::default(), |carry| {
        let most = carry.at_most.as_ref().and_then(|text| match read_amount(&unit, text) {
            Ok(amount) => Some(amount),
            Err(problem) => {
                wrong.push(format!("carryOver.atMost: {problem}"));
                None
            }
        });
        Carry { percent: carry.percent, at_most: most }
    });
    if matches!(period, Period::Rolling(_) | Period::Once) && spec.carry_over.is_some() {
        wrong.push("carryOver: only a calendar period ends and leaves something over".to_owned());
    }
    let cost = spec.cost.clone().unwrap_or_default();
    let reference = cost.reference.as_ref().and_then(|r| match bytes(&r.memory) {
        Some(memory) => Some(Reference { share: Share(r.share), memory }),
        None => {
            wrong.push(format!("cost.reference.memory: {:?} is not an amount of memory; write it as 8Gi", r.memory));
            None
        }
    });
    let terms = Terms {
        amount,
        carry,
        cost: CostRule {
            basis: match cost.of {
                Some(Basis::Busy) => budget::Basis::Busy,
                _ => budget::Basis::Held,
            },
            measure: match cost.measure {
                Some(Measure::Mean) => budget::Measure::Mean,
                _ => budget::Measure::Dominant,
            },
            reference,
            prices,
            opportunistic: cost.opportunistic.unwrap_or(0),
        },
        grace,
        on_exhaustion: match exhaustion.action {
            Some(Action::Stop) => OnExhaustion::Stop,
            _ => OnExhaustion::Demote,
        },
        refunds: refunds.map_or(Refunds { percent: 100, window: None }, |r| Refunds { percent: r.percent, window }),
    };
    if wrong.is_empty() { Ok(BudgetTerms { terms, unit, period }) } else { Err(wrong) }
}

/// Unit, amount and prices.
fn what(spec: &BudgetSpec, usual: &[(Arc<str>, Price)], wrong: &mut Vec<String>) -> (Unit, Amount, Prices) {
    match (&spec.gpu_time, &spec.money) {
        (Some(text), None) => {
            let amount = read_amount(&Unit::Time, text).unwrap_or_else(|problem| {
                wrong.push(format!("gpuTime: {problem}"));
                Amount::ZERO
            });
            (Unit::Time, amount, Prices::time())
        }
        (None, Some(money)) => {
            let unit = Unit::Money(money.currency.clone());
            let amount = read_amount(&unit, &money.amount).unwrap_or_else(|problem| {
                wrong.push(format!("money.amount: {problem}"));
                Amount::ZERO
            });
            let mut price = |field: String, text: &str| match price(text) {
                Some(price) => Some(price),
                None => {
                    wrong.push(format!("{field}: {text:?} is not a price; write it as 2.50"));
                    None
                }
            };
            let mut by_model: Vec<(Arc<str>, Price)> = Vec::new();
            for (model, text) in &money.prices {
                by_model.extend(price(format!("money.prices.{model}"), text).map(|p| (Arc::from(model.as_str()), p)));
            }
            let otherwise = money.other_price.as_deref().and_then(|text| price("money.otherPrice".to_owned(), text));
            if by_model.is_empty() && otherwise.is_none() && usual.is_empty() {
                let mend = "give prices or otherPrice, or modelPrices in the GpuPolicy";
                wrong.push(format!("money: without prices nothing would ever cost anything; {mend}"));
            }
            (unit, amount, Prices { by_model, otherwise, usual: usual.to_vec() })
        }
        _ => {
            wrong.push("a budget is an amount of gpuTime or of money: give exactly one".to_owned());
            (Unit::Time, Amount::ZERO, Prices::time())
        }
    }
}

fn price(text: &str) -> Option<Price> {
    u64::try_from(Amount::parse(text)?.floor_micros()).ok().map(Price)
}

fn period(spec: &BudgetSpec, rolling: Option<u64>, wrong: &mut Vec<String>) -> Period {
    let Some(period) = &spec.period else { return Period::Once };
    let zone = match period.time_zone.as_deref() {
        None | Some("UTC" | "Etc/UTC") => TimeZone::UTC,
        Some(name) => TimeZone::get(name).unwrap_or_else(|_| {
            wrong.push(format!("period.timeZone: {name:?} is not a time zone; write it as Europe/Berlin"));
            TimeZone::UTC
        }),
    };
    match (period.every, rolling) {
        (Some(every), None) => Period::Calendar(every, zone),
        (None, Some(length)) => Period::Rolling(length),
        _ => {
            wrong.push("period: a period is a calendar's (every) or rolling: give exactly one".to_owned());
            Period::Once
        }
    }
}

fn bytes(text: &str) -> Option<Bytes> {
    let ok = text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric());
    let amount = crate::quantity::units(text);
    (ok && (amount > 0 || text.starts_with('0'))).then_some(Bytes(amount))
}

/// What a ResourceQuota (`spec.hard`) that speaks HAMi's words says in ours.
pub fn from_resource_quota(hard: &BTreeMap<String, String>, policy: &ClusterPolicy) -> Option<GpuQuotaSpec> {
    let keys = QuotaKeys::read(hard, &policy.dialects)?;
    let limit = LimitSpec {
        memory: keys.memory_mib.map(|mib| format!("{mib}Mi")),
        share: keys.share.map(|share| u32::try_from(share).unwrap_or(u32::MAX)),
        ..LimitSpec::default()
    };
    Some(GpuQuotaSpec { limits: vec![limit], ..GpuQuotaSpec::default() })
}

/// Reads a quota, or tells all that is wrong with it.
pub fn read_quota(name: &str, spec: &GpuQuotaSpec) -> Result<Quota, Vec<String>> {
    let mut wrong = Vec::new();
    let mut amounts = |field: String, spec: &AmountsSpec| {
        let memory = spec.memory.as_ref().and_then(|text| match bytes(text) {
            Some(bytes) => Some(bytes.0),
            None => {
                wrong.push(format!("{field}.memory: {text:?} is not an amount of memory; write it as 80Gi"));
                None
            }
        });
        Amounts { devices: spec.devices.map(u64::from), share: spec.share.map(u64::from), memory }
    };
    let mut limits = Vec::new();
    for (index, limit) in spec.limits.iter().enumerate() {
        let field = format!("limits[{index}]");
        let own = AmountsSpec { devices: limit.devices, share: limit.share, memory: limit.memory.clone() };
        limits.push(Limit {
            model: limit.model.as_deref().map(Arc::from),
            nominal: amounts(field.clone(), &own),
            borrow: amounts(format!("{field}.borrow"), &limit.borrow.clone().unwrap_or_default()),
            lend: amounts(format!("{field}.lend"), &limit.lend.clone().unwrap_or_default()),
        });
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Quota {
        name: name.into(),
        cohort: spec.cohort.as_deref().map(Arc::from),
        pools: spec.pools.iter().map(|pool| Arc::from(pool.as_str())).collect(),
        limits,
        only_named: spec.other_models == Some(OtherModels::Refuse),
        waits: spec.when_exceeded == Some(WhenExceeded::Wait),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn budget(spec: Value) -> Result<BudgetTerms, Vec<String>> {
        read_budget(&serde_json::from_value(spec).unwrap(), &[])
    }

    #[test]
    fn a_budget_of_time_is_read() {
        let read = budget(json!({"gpuTime": "150m", "period": {"every": "month", "timeZone": "Europe/Berlin"},
            "carryOver": {"percent": 50, "atMost": "1h"}, "onExhaustion": {"action": "stop", "grace": "10m"}}))
        .unwrap();
        assert_eq!(read.terms.amount, Amount::units(9000));
        assert_eq!((read.terms.carry.percent, read.terms.carry.at_most), (50, Some(Amount::units(3600))));
        assert_eq!((read.terms.grace, read.terms.on_exhaustion), (600_000, OnExhaustion::Stop));
        assert_eq!(
            read.terms.refunds.percent, 100,
            "what Divvy took away is given back unless somebody says otherwise"
        );
        assert_eq!(read.unit.text(Amount::micros(-5_500_000)), "-5s");
        assert_eq!(read.period.window(), 1);
    }

    #[test]
    fn a_budget_of_money_is_read() {
        let read = budget(
            json!({"money": {"amount": "99.50", "currency": "EUR", "prices": {"H200": "2.5"}, "otherPrice": "1"},
            "period": {"rolling": "30d"}, "refunds": {"percent": 50, "within": "1h"}}),
        )
        .unwrap();
        assert_eq!(read.terms.cost.prices.of("NVIDIA-H200"), Some(Price(2_500_000)));
        assert_eq!(read.terms.cost.prices.of("Tesla-T4"), Some(Price(1_000_000)));
        assert_eq!(read.unit.text(read.terms.amount), "99.5 EUR");
        assert_eq!((read.period.window(), read.terms.refunds.window), (30, Some(3_600_000)));
    }

    #[test]
    fn what_a_budget_does_not_price_costs_what_the_policy_says() {
        let usual = [("H200".into(), Price(4_000_000)), ("A100".into(), Price(2_000_000))];
        let read = |money: serde_json::Value| {
            let spec = serde_json::from_value(json!({"money": money})).unwrap();
            read_budget(&spec, &usual).map(|read| read.terms.cost.prices)
        };
        let prices = read(json!({"amount": "1", "currency": "EUR", "prices": {"H2": "9"}})).unwrap();
        assert_eq!(
            prices.of("NVIDIA-H200"),
            Some(Price(9_000_000)),
            "its own price goes first, however short its name"
        );
        assert_eq!(prices.of("NVIDIA-A100-SXM4-80GB"), Some(Price(2_000_000)));
        assert_eq!(prices.of("Tesla-T4"), None);
        let prices = read(json!({"amount": "1", "currency": "EUR", "otherPrice": "1"})).unwrap();
        assert_eq!(prices.of("NVIDIA-A100-SXM4-80GB"), Some(Price(1_000_000)));
        assert!(read(json!({"amount": "1", "currency": "EUR"})).is_ok());
        let spec = serde_json::from_value(json!({"money": {"amount": "1", "currency": "EUR"}})).unwrap();
        assert!(read_budget(&spec, &[]).unwrap_err()[0].contains("modelPrices in the GpuPolicy"));
    }

    #[test]
    fn every_mistake_of_a_budget_is_named_at_once() {
        let wrong = budget(json!({"money": {"amount": "x", "currency": "EUR", "prices": {"H200": "a lot"}},
            "period": {"every": "month", "timeZone": "Europe/Nowhere"}, "onExhaustion": {"grace": "soon"},
            "carryOver": {"percent": 10, "atMost": "1h"}, "cost": {"reference": {"share": 500, "memory": "much"}}}))
        .unwrap_err();
        for part in ["money.amount", "money.prices.H200", "timeZone", "grace", "carryOver.atMost", "reference.memory"] {
            assert!(wrong.iter().any(|w| w.contains(part)), "{part} is not in {wrong:?}");
        }
        assert!(
            budget(json!({})).is_err()
                && budget(json!({"gpuTime": "1h", "money": {"amount": "1", "currency": "E"}})).is_err()
        );
    }

    #[test]
    fn a_quota_is_read_with_what_it_borrows_and_lends() {
        let spec = serde_json::from_value(json!({"cohort": "all", "whenExceeded": "wait", "limits": [
            {"share": 4000, "memory": "80Gi", "borrow": {"share": 1000}}, {"model": "H200", "devices": 2, "lend": {"devices": 0}}]}))
        .unwrap();
        let quota = read_quota("q", &spec).unwrap();
        assert!(quota.waits);
        assert_eq!(quota.limits[0].nominal.memory, Some(80 << 30));
        assert_eq!((quota.limits[0].borrow.share, quota.limits[0].borrow.memory), (Some(1000), None));
        assert_eq!(quota.limits[1].lend.devices, Some(0));
        let spec = serde_json::from_value(json!({"limits": [{"memory": "lots", "lend": {"memory": "-1"}}]})).unwrap();
        assert_eq!(read_quota("q", &spec).unwrap_err().len(), 2);
    }
}

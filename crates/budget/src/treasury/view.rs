//! What the HTTP API tells.

use divvy_core::budget::AccountKey;
use divvy_core::id::Namespace;
use divvy_core::time::Time;
use serde_json::{Value, json};

use super::Treasury;
use super::status::Common;
use crate::calendar::exact;
use crate::write::Write;

/// Points of a burn-down.
const POINTS: u64 = 48;

impl Treasury {
    /// How a namespace stands with its budgets. The first three fields are GPUSharing's: minutes for a budget of time, else money;
    /// of several budgets those of the one with least left.
    pub fn view(&self, namespace: &Namespace) -> Value {
        let Some(accounting) = &self.accounting else { return Value::Null };
        let standing = accounting.standing(namespace);
        let mut budgets = Vec::new();
        let mut least: Option<(f64, f64)> = None;
        for key in accounting.covering(namespace) {
            let (Some(account), Some(budget)) = (accounting.account(key), self.budgets.get(key)) else { continue };
            let Some(terms) = &budget.in_force else { continue };
            let balance = account.balance(accounting.at());
            let number = |amount: divvy_core::budget::Amount| {
                let units = amount.floor_micros() as f64 / 1e6;
                if terms.unit == divvy_api::budget::Unit::Time { units / 60.0 } else { units }
            };
            let (left, total) = (number(balance.left()).max(0.0), number(balance.total()));
            if least.is_none_or(|(known, _)| left < known) {
                least = Some((left, total));
            }
            budgets.push(self.budget_view(key));
        }
        let charges = accounting.lines(namespace, hour_before(accounting.at()), accounting.at());
        json!({
            "budget_available": !budgets.is_empty() && standing.because.is_none() && standing.grace_until.is_none() || budgets.is_empty(),
            "budget": least.map(|(_, total)| total),
            "budget_remaining": least.map(|(left, _)| left),
            "namespace": namespace,
            "class": crate::facts::class_name(standing.class),
            "stopped": standing.stop,
            "accountedUntil": exact(accounting.at()),
            "budgets": budgets,
            "charges": charges.iter().map(|line| self.line(line)).collect::<Vec<_>>(),
            "unaccounted": self.sheets.unaccounted_of(namespace),
        })
    }

    /// How one balance stands, and how it came to that.
    fn budget_view(&self, key: &AccountKey) -> Value {
        let (Some(accounting), Some(budget)) = (&self.accounting, self.budgets.get(key)) else { return Value::Null };
        let Some(terms) = &budget.in_force else { return Value::Null };
        let point =
            |(at, amount): (Time, divvy_core::budget::Amount)| json!({"at": exact(at), "left": amount.to_string()});
        let burn_down: Vec<Value> = accounting.burn_down(key, POINTS).into_iter().map(point).collect();
        let mut status = json!(self.status_of(key));
        if let Some(fields) = status.as_object_mut() {
            fields.remove("books");
            fields.remove("conditions");
        }
        json!({
            "name": key.name,
            "scope": if key.namespace.is_some() { "namespace" } else { "cluster" },
            "unit": match &terms.unit { divvy_api::budget::Unit::Time => "seconds", divvy_api::budget::Unit::Money(c) => c },
            "status": status,
            "burnDown": burn_down,
        })
    }

    /// All balances in brief, for whoever may see all namespaces.
    pub fn view_all(&self) -> Value {
        let one = |key: &AccountKey| {
            let mut status = json!(self.status_of(key));
            if let Some(fields) = status.as_object_mut() {
                fields.remove("books");
                fields.remove("conditions");
            }
            json!({"namespace": key.namespace, "name": key.name, "status": status})
        };
        json!({"budgets": self.budgets.keys().map(one).collect::<Vec<_>>()})
    }

    /// A budget's status as of now.
    pub fn status_of(&self, key: &AccountKey) -> Option<divvy_api::budget::BudgetStatus> {
        let accounting = self.accounting.as_ref()?;
        let common = Common::of(self, accounting);
        let budget = self.budgets.get(key)?;
        Some(self.status_now(accounting, &common, key, budget))
    }

    /// Names of objects in a list of writes, for logs and tests.
    pub fn names(writes: &[Write]) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Budget { key, .. } => format!("budget {key}"),
            Write::Template { name, .. } => format!("template {name}"),
            Write::Copy { namespace, name, .. } => format!("copy {namespace}/{name}"),
            Write::QuotaCopy { namespace, name, .. } => format!("quota copy {namespace}/{name}"),
            Write::Quota { namespace, name, .. } => format!("quota {namespace}/{name}"),
            Write::Charges { name, .. } => format!("charges {name}"),
            Write::Forget { name } => format!("forget {name}"),
            Write::Class { target, class, .. } => format!("{} {}", target.pod, crate::facts::class_name(*class)),
            Write::Stop { target, .. } => format!("stop {}", target.pod),
            Write::Acknowledge { node, .. } => format!("acknowledge {node}"),
        };
        writes.iter().map(name).collect()
    }
}

fn hour_before(at: Time) -> Time {
    Time(at.0.saturating_sub(super::HOUR))
}

//! What a budget's status says: for people first, and exactly beside it.

use std::collections::BTreeMap;

use divvy_api::budget::{BudgetStatus, BudgetTerms, Period, State};
use divvy_api::policy::spec::Condition;
use divvy_core::budget::{Account, AccountKey, Accounting, Amount, OnExhaustion, Rate};
use divvy_core::time::Time;

use super::kept::Budget;
use super::{Origin, Treasury};
use crate::calendar::{FOREVER, exact, spoken, stamp};
use crate::store;
use crate::write::Write;

/// What is worked out once for all statuses.
pub(super) struct Common {
    rates: BTreeMap<AccountKey, Rate>,
    pods: BTreeMap<AccountKey, u32>,
    unaccounted: BTreeMap<divvy_core::id::Namespace, u32>,
}

impl Common {
    pub(super) fn of(treasury: &Treasury, accounting: &Accounting) -> Common {
        let mut pods: BTreeMap<AccountKey, u32> = BTreeMap::new();
        for hold in accounting.holds().filter(|hold| hold.ended().is_none()) {
            for (key, _) in hold.spans.last().into_iter().flat_map(|span| &span.tariffs) {
                *pods.entry(key.clone()).or_default() += 1;
            }
        }
        Common { rates: accounting.burning(), pods, unaccounted: treasury.sheets.count_unaccounted() }
    }
}

/// The condition that says whether an object is acted on.
pub(super) fn followed(before: &[Condition], read: Result<(), &Vec<String>>, now: Time) -> Vec<Condition> {
    let (status, reason, message) = match read {
        Ok(()) => ("True", "Understood", String::new()),
        Err(wrong) => ("False", "Invalid", wrong.join("; ")),
    };
    let known = before.iter().find(|c| c.kind == "Followed" && c.status == status);
    let since = known.map_or_else(|| stamp(now), |c| c.last_transition_time.clone());
    vec![Condition {
        kind: "Followed".into(),
        status: status.into(),
        reason: reason.into(),
        message,
        last_transition_time: since,
    }]
}

impl Treasury {
    /// Statuses that must be written now because they say something new, and those whose numbers are old, oldest first.
    pub(super) fn statuses(&self, common: &Common, now: Time) -> (Vec<Write>, Vec<Write>) {
        let Some(accounting) = &self.accounting else { return Default::default() };
        let pause = self.settings.refresh.max(self.budgets.len() as u64 * 100);
        let (mut urgent, mut later) = (Vec::new(), Vec::new());
        for (key, budget) in &self.budgets {
            let age = now.millis_since(budget.written);
            // Formatting is most of the work: what is fresh and cannot have changed its state is left alone.
            let status = self.status(accounting, common, key, budget, now);
            let known = &budget.status;
            let news = status.state != known.state
                || status.observed_generation != known.observed_generation
                || status.booked != known.booked
                || status.conditions != known.conditions
                || status.granted != known.granted
                || (status.books.is_some() && known.books.is_none());
            let numbers = status.left != known.left || status.pods != known.pods || status.empty != known.empty;
            let write = || Write::Budget {
                key: key.clone(),
                version: budget.version.clone(),
                status: Box::new(status.clone()),
            };
            if news {
                urgent.push(write());
            } else if (numbers && age >= pause) || age >= pause.max(60_000) {
                later.push((budget.written, write()));
            }
        }
        later.sort_by_key(|(written, _)| *written);
        (urgent, later.into_iter().map(|(_, write)| write).collect())
    }

    /// The status of a budget, as of what is accounted for.
    pub(super) fn status_now(
        &self,
        accounting: &Accounting,
        common: &Common,
        key: &AccountKey,
        budget: &Budget,
    ) -> BudgetStatus {
        self.status(accounting, common, key, budget, accounting.at())
    }

    /// The status of a budget.
    fn status(
        &self,
        accounting: &Accounting,
        common: &Common,
        key: &AccountKey,
        budget: &Budget,
        now: Time,
    ) -> BudgetStatus {
        let conditions = followed(&budget.status.conditions, budget.read.as_ref().map(|_| ()), now);
        let (Some(account), Some(terms)) = (accounting.account(key), &budget.in_force) else {
            let wrong = budget.read.as_ref().err().map(|wrong| wrong.join("; ")).unwrap_or_default();
            return BudgetStatus {
                observed_generation: budget.generation,
                state: State::Invalid,
                message: wrong,
                conditions,
                books: budget.status.books.clone(),
                ..BudgetStatus::default()
            };
        };
        let rate = common.rates.get(key).copied().unwrap_or_default();
        let balance = account.balance(accounting.at());
        let text = |amount: Amount| terms.unit.text(amount);
        let turns = account.period().map_or(FOREVER, |(_, end)| end);
        let forecast = accounting.forecast(key, rate);
        let empty = forecast.and_then(|f| f.empty_at);
        let namespaces = match &budget.origin {
            Origin::Cluster { selector } => Some(u32::try_from(self.chosen(selector).count()).unwrap_or(u32::MAX)),
            Origin::Own { .. } => None,
        };
        let covered: Vec<_> = match &key.namespace {
            Some(namespace) => vec![namespace.clone()],
            None => Vec::new(),
        };
        let state = state(account, terms, accounting.at());
        let mut message = message(state, account, terms, empty, turns, rate);
        for problem in &budget.entry_problems {
            message = format!("{message}; {problem}");
        }
        BudgetStatus {
            observed_generation: budget.generation,
            state,
            message,
            left: text(balance.left()),
            total: text(balance.total()),
            granted: text(balance.granted),
            carried: text(balance.carried),
            booked: text(balance.adjusted),
            spent: text(balance.spent),
            refunded: text(balance.refunded),
            per_hour: text(rate.hourly()),
            empty: empty.map(|at| spoken(at, &terms.period)).unwrap_or_default(),
            renews: if turns >= FOREVER { "never".into() } else { spoken(turns, &terms.period) },
            pods: common.pods.get(key).copied().unwrap_or(0),
            namespaces,
            unaccounted: covered.iter().filter_map(|ns| common.unaccounted.get(ns)).sum(),
            accounted_until: exact(accounting.at()),
            conditions,
            books: Some(store::books(account, accounting.at())),
        }
    }

    /// Statuses of cluster budgets that give each namespace its own.
    pub(super) fn template_writes(&self, now: Time) -> Vec<Write> {
        let mut writes = Vec::new();
        for (name, budget) in &self.templates {
            let Origin::Cluster { selector } = &budget.origin else { continue };
            let chosen = u32::try_from(self.chosen(selector).count()).unwrap_or(u32::MAX);
            let status = BudgetStatus {
                observed_generation: budget.generation,
                state: if budget.read.is_ok() { State::Template } else { State::Invalid },
                message: match &budget.read {
                    Ok(()) => format!("{chosen} namespaces have a GpuBudget {name} each"),
                    Err(wrong) => wrong.join("; "),
                },
                granted: budget.in_force.as_ref().map(|t| t.unit.text(t.terms.amount)).unwrap_or_default(),
                namespaces: Some(chosen),
                conditions: followed(&budget.status.conditions, budget.read.as_ref().map(|_| ()), now),
                ..BudgetStatus::default()
            };
            if status != budget.status {
                writes.push(Write::Template {
                    name: name.clone(),
                    version: budget.version.clone(),
                    status: Box::new(status),
                });
            }
        }
        writes
    }

    /// Copies of cluster budgets that are missing, outdated, or not wanted any more.
    pub(super) fn copies(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        for (name, template) in self.templates.iter().filter(|(_, template)| template.read.is_ok()) {
            let Origin::Cluster { selector } = &template.origin else { continue };
            for namespace in self.chosen(selector) {
                let key = AccountKey { namespace: Some(namespace.clone()), name: name.as_str().into() };
                let fits = match self.budgets.get(&key) {
                    None => false,
                    // Somebody's own budget of the same name goes first.
                    Some(Budget { origin: Origin::Own { template: None }, .. }) => true,
                    Some(own) => own.spec == template.spec,
                };
                if !fits {
                    writes.push(Write::Copy {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        spec: Some(Box::new(template.spec.clone())),
                    });
                }
            }
        }
        for (key, budget) in &self.budgets {
            let (Origin::Own { template: Some(name) }, Some(namespace)) = (&budget.origin, &key.namespace) else {
                continue;
            };
            let wanted = self.templates.get(name).is_some_and(|template| match &template.origin {
                Origin::Cluster { selector } => {
                    self.namespaces.get(namespace).is_none_or(|labels| selector.chooses(labels))
                }
                Origin::Own { .. } => false,
            });
            if !wanted {
                writes.push(Write::Copy { namespace: namespace.clone(), name: key.name.to_string(), spec: None });
            }
        }
        writes
    }
}

fn state(account: &Account, terms: &BudgetTerms, at: Time) -> State {
    match (account.timeline.is_out(at), terms.terms.on_exhaustion) {
        (true, OnExhaustion::Demote) => State::OutOfBudget,
        (true, OnExhaustion::Stop) => State::Stopped,
        (false, _) if account.empty_since.is_some() => State::Grace,
        (false, _) => State::InBudget,
    }
}

fn message(
    state: State,
    account: &Account,
    terms: &BudgetTerms,
    empty: Option<Time>,
    turns: Time,
    rate: Rate,
) -> String {
    let period: &Period = &terms.period;
    let renews = if turns >= FOREVER { String::new() } else { format!(", renews {}", spoken(turns, period)) };
    match (state, empty) {
        (State::Grace, _) => {
            let since = account.empty_since.unwrap_or_default();
            let until = Time(since.0.saturating_add(terms.terms.grace));
            format!("used up; running pods go on until {}{renews}", spoken(until, period))
        }
        (State::OutOfBudget, since) => {
            let since = since.map(|at| format!(" since {}", spoken(at, period))).unwrap_or_default();
            format!("used up{since}; pods are opportunistic{renews}")
        }
        (State::Stopped, since) => {
            let since = since.map(|at| format!(" since {}", spoken(at, period))).unwrap_or_default();
            format!("used up{since}; pods are stopped{renews}")
        }
        (_, Some(at)) => format!("empty on {} at this rate{renews}", spoken(at, period)),
        (_, None) if rate == Rate::default() => format!("nothing is being spent{renews}"),
        (_, None) => format!("lasts at this rate{renews}"),
    }
}

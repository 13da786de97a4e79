//! A budget as it is kept in mind.

use std::sync::Arc;

use divvy_api::budget::spec::NamespaceSelector;
use divvy_api::budget::{BudgetSpec, BudgetStatus, BudgetTerms, read_budget};
use divvy_api::wire::Meta;
use divvy_core::budget::Price;
use divvy_core::time::Time;

/// A budget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The version last seen or written.
    pub version: String,
    /// Which generation of it.
    pub generation: i64,
    /// When it was made.
    pub created: Time,
    /// What it says.
    pub spec: BudgetSpec,
    /// Where it comes from.
    pub origin: Origin,
    /// What that means, or what is wrong with it.
    pub read: Result<(), Vec<String>>,
    /// What is in force: what it says, or what it said when it could last be read.
    pub in_force: Option<BudgetTerms>,
    /// Its status, as last seen or written.
    pub status: BudgetStatus,
    /// When its status was last written.
    pub written: Time,
    /// What is wrong with entries for it.
    pub entry_problems: Vec<String>,
}

/// Where a budget comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is a namespace's own.
    Own {
        /// The cluster's budget it is a copy of.
        template: Option<String>,
    },
    /// It is the cluster's.
    Cluster {
        /// For these namespaces.
        selector: NamespaceSelector,
    },
}

impl Budget {
    pub(super) fn new(
        meta: &Meta,
        spec: BudgetSpec,
        origin: Origin,
        status: BudgetStatus,
        prices: &[(Arc<str>, Price)],
    ) -> Budget {
        let created = meta.creation_timestamp.map_or(0, |at| u64::try_from(at.as_millisecond()).unwrap_or(0));
        let mut budget = Budget {
            version: meta.resource_version.clone(),
            generation: meta.generation,
            created: Time(created),
            spec,
            origin,
            read: Ok(()),
            in_force: None,
            status,
            written: Time(0),
            entry_problems: Vec::new(),
        };
        budget.read_anew(prices);
        budget
    }

    /// Reads again what it says: models it says nothing about cost this.
    pub(super) fn read_anew(&mut self, prices: &[(Arc<str>, Price)]) {
        match read_budget(&self.spec, prices) {
            Ok(terms) => (self.read, self.in_force) = (Ok(()), Some(terms)),
            Err(wrong) => self.read = Err(wrong),
        }
    }
}

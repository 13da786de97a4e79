//! What is counted.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What is counted.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Seconds one pass of the accounting took.
    pub pass: Histogram,
    /// Writes to our own objects.
    pub writes: Counter,
    /// Writes that failed.
    pub failures: Counter,
    /// Pods whose class was changed.
    pub classes: Counter,
    /// Pods that were stopped.
    pub stops: Counter,
    /// Pages of journals that were read.
    pub pages: Counter,
    /// Budgets that are out.
    pub out: Gauge,
    /// Budgets that are followed.
    pub budgets: Gauge,
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            pass: Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]),
            writes: Counter::default(),
            failures: Counter::default(),
            classes: Counter::default(),
            stops: Counter::default(),
            pages: Counter::default(),
            out: Gauge::default(),
            budgets: Gauge::default(),
        };
        registry.register(
            "divvy_budget_pass_seconds",
            "Seconds taken by a pass of the accounting",
            metrics.pass.clone(),
        );
        registry.register("divvy_budget_writes", "Writes of statuses and charges", metrics.writes.clone());
        registry.register("divvy_budget_write_failures", "Writes that failed", metrics.failures.clone());
        registry.register("divvy_budget_classes_changed", "Pods promoted or demoted", metrics.classes.clone());
        registry.register(
            "divvy_budget_pods_stopped",
            "Requests to end a pod whose budget is used up",
            metrics.stops.clone(),
        );
        registry.register("divvy_budget_journal_pages", "Pages of journals read", metrics.pages.clone());
        registry.register("divvy_budgets_out", "Budgets that are used up", metrics.out.clone());
        registry.register("divvy_budgets", "Budgets that are followed", metrics.budgets.clone());
        metrics
    }
}

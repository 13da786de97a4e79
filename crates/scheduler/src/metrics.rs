//! What the scheduler tells Prometheus. With a switch also under the names of the emulated systems' schedulers ([`emulated`]).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::world::{Counts, World};

pub mod emulated;

use emulated::{Emulated, Table};

/// What the scheduler tells Prometheus.
#[derive(Clone, Debug)]
pub struct Metrics {
    decisions: Family<Outcome, Counter>,
    attempts: Counter,
    woken: Counter,
    evictions: Counter,
    violations: Counter,
    lost_events: Counter,
    leading: Gauge,
    queue: Family<Stand, Gauge>,
    oldest: Gauge,
    free: Family<Model, Gauge>,
    devices: Family<Model, Gauge>,
    stranded: Family<Model, Gauge>,
    /// The models that are shown.
    models: Arc<Mutex<BTreeSet<String>>>,
    seconds: Family<Step, Histogram, fn() -> Histogram>,
    emulated: Option<Emulated>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stand {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    step: &'static str,
}

fn buckets() -> Histogram {
    Histogram::new([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            decisions: Family::default(),
            attempts: Counter::default(),
            woken: Counter::default(),
            evictions: Counter::default(),
            violations: Counter::default(),
            lost_events: Counter::default(),
            leading: Gauge::default(),
            queue: Family::default(),
            oldest: Gauge::default(),
            free: Family::default(),
            devices: Family::default(),
            stranded: Family::default(),
            models: Arc::default(),
            seconds: Family::new_with_constructor(buckets),
            emulated: None,
        };
        let m = &metrics;
        registry.register("divvy_decisions", "Decisions by outcome", m.decisions.clone());
        registry.register("divvy_attempts", "Pods that were tried", m.attempts.clone());
        registry.register("divvy_woken", "Pods woken because a change concerned them", m.woken.clone());
        registry.register("divvy_evictions", "Pods evicted", m.evictions.clone());
        registry.register("divvy_audit_violations", "Plans the audit threw away; must stay zero", m.violations.clone());
        registry.register("divvy_events_lost", "Events not written because there were too many", m.lost_events.clone());
        registry.register("divvy_leading", "1 while this replica decides", m.leading.clone());
        registry.register("divvy_queue_pods", "Pods that wait, by state", m.queue.clone());
        registry.register("divvy_queue_oldest_seconds", "Age of the pod that waits longest", m.oldest.clone());
        registry.register("divvy_free_thousandths", "Time not promised, by model", m.free.clone());
        registry.register("divvy_devices", "Devices, by model", m.devices.clone());
        registry.register(
            "divvy_stranded_thousandths",
            "Time not promised on devices that are neither full nor wholly free, by model",
            m.stranded.clone(),
        );
        registry.register("divvy_step_seconds", "Seconds taken by each step", m.seconds.clone());
        metrics
    }

    /// Shows what is given out also under the names of the emulated systems' schedulers.
    #[must_use]
    pub fn with_emulated(self, registry: &mut Registry) -> Metrics {
        let emulated = Emulated::default();
        registry.register_collector(Box::new(emulated.clone()));
        Metrics { emulated: Some(emulated), ..self }
    }

    /// A step took so long.
    pub fn took(&self, step: &'static str, seconds: f64) {
        self.seconds.get_or_create(&Step { step }).observe(seconds);
    }

    /// An event could not be written.
    pub fn lost_event(&self) {
        self.lost_events.inc();
    }

    /// Adds what was counted.
    pub fn add(&self, counts: &Counts) {
        let outcome = |outcome: &'static str, n: u64| {
            self.decisions.get_or_create(&Outcome { outcome }).inc_by(n);
        };
        outcome("placed", counts.placed);
        outcome("waits", counts.waits);
        outcome("bound", counts.bound);
        outcome("conflict", counts.conflicts);
        outcome("refused", counts.refused);
        outcome("adopted", counts.adopted);
        self.attempts.inc_by(counts.attempts);
        self.woken.inc_by(counts.woken);
        self.evictions.inc_by(counts.evictions);
        self.violations.inc_by(counts.violations);
    }

    /// Whether this replica decides.
    pub fn leads(&self, leads: bool) {
        self.leading.set(i64::from(leads));
        if let Some(emulated) = self.emulated.as_ref().filter(|_| !leads) {
            emulated.show(Table::default());
        }
    }

    /// Shows where things stand. Walks all nodes, and all pods where the emulated systems' names are shown: called every few seconds,
    /// not per decision.
    pub fn show(&self, world: &World, now: divvy_core::time::Time) {
        let standing = world.standing(now);
        for (state, pods) in standing.pods {
            self.queue.get_or_create(&Stand { state }).set(pods);
        }
        self.oldest.set(standing.oldest_seconds);
        // A model whose last device is gone is shown no longer.
        let models = standing.models.keys().cloned().collect();
        let before = std::mem::replace(&mut *self.models.lock().unwrap_or_else(PoisonError::into_inner), models);
        for model in before.into_iter().filter(|model| !standing.models.contains_key(model)) {
            let label = Model { model };
            for family in [&self.devices, &self.free, &self.stranded] {
                family.remove(&label);
            }
        }
        for (model, sums) in standing.models {
            let label = Model { model };
            self.devices.get_or_create(&label).set(sums.devices);
            self.free.get_or_create(&label).set(sums.free);
            self.stranded.get_or_create(&label).set(sums.stranded);
        }
        if let Some(emulated) = self.emulated.as_ref().filter(|_| self.leading.get() == 1) {
            emulated.show(Table::of(world.snapshot()));
        }
    }
}

#[cfg(test)]
mod tests {
    use divvy_cluster::Change;
    use divvy_core::device::Device;
    use divvy_core::node::Node;
    use divvy_core::time::Time;
    use divvy_core::units::Bytes;

    use super::*;

    #[test]
    fn a_model_is_shown_as_long_as_there_is_a_device_of_it() {
        let (mut registry, mut world) = (Registry::default(), World::new("divvy"));
        let metrics = Metrics::register(&mut registry);
        let mut shown = |model: &str| {
            let mut node = Node::new("n", Default::default());
            node.inventory.devices = vec![Device::gpu("GPU-1", 0, model, Bytes::gib(80))];
            world.apply(Change::Node(Box::new(node), None), Time(0));
            metrics.show(&world, Time(0));
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text.lines().filter(|line| line.contains("model=")).map(str::to_owned).collect::<Vec<String>>()
        };
        assert_eq!(shown("H100").len(), 3);
        let now = shown("H200");
        assert!(now.len() == 3 && now.iter().all(|line| line.contains("H200")), "{now:?}");
    }
}

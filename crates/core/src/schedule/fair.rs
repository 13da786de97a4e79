//! What each namespace has used, remembered with a half-life.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::Namespace;
use crate::time::Time;

/// The running account: thousandths of devices held, averaged over the past, recent times counting more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FairShare {
    averages: BTreeMap<Namespace, f64>,
    at: Option<Time>,
}

impl FairShare {
    /// Time went by, during which namespaces held this.
    pub(crate) fn pass(&mut self, held: &BTreeMap<Namespace, u64>, half_life: u64, now: Time) {
        let last = self.at.replace(self.at.map_or(now, |at| at.max(now)));
        let Some(passed) = last.map(|last| now.millis_since(last)).filter(|ms| *ms > 0) else { return };
        // What is left of the past: a half after every half-life, all of it gone where none is set.
        let kept = if half_life == 0 { 0.0 } else { 0.5f64.powf(passed as f64 / (half_life as f64 * 1000.0)) };
        for average in self.averages.values_mut() {
            *average *= kept;
        }
        for (namespace, held) in held {
            *self.averages.entry(namespace.clone()).or_default() += (1.0 - kept) * *held as f64;
        }
        self.averages.retain(|_, average| *average > 0.001);
    }

    /// What a namespace has had so far.
    pub fn average(&self, namespace: &Namespace) -> f64 {
        self.averages.get(namespace).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_half_forgotten_after_a_half_life() {
        let (mut fair, a) = (FairShare::default(), Namespace::from("a"));
        let holding = BTreeMap::from([(a.clone(), 1000)]);
        fair.pass(&holding, 100, Time::seconds(0));
        fair.pass(&holding, 100, Time::seconds(100));
        assert!((fair.average(&a) - 500.0).abs() < 1e-9);
        fair.pass(&BTreeMap::new(), 100, Time::seconds(200));
        assert!((fair.average(&a) - 250.0).abs() < 1e-9);
    }
}

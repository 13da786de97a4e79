//! What each namespace has used, remembered with a half-life.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::id::Namespace;
use crate::model::time::Time;

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

    /// What another scheduler remembered before this one began: of each namespace whoever remembers more counts.
    pub fn recall(&mut self, mut before: FairShare, half_life: u64, now: Time) {
        let nobody = BTreeMap::new();
        self.pass(&nobody, half_life, now);
        before.pass(&nobody, half_life, now);
        for (namespace, average) in before.averages {
            let own = self.averages.entry(namespace).or_default();
            *own = own.max(average);
        }
    }

    /// The same of so many namespaces, those that had most.
    pub fn most(&self, namespaces: usize) -> FairShare {
        let mut averages: Vec<(&Namespace, f64)> = self.averages.iter().map(|(name, had)| (name, *had)).collect();
        averages.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        averages.truncate(namespaces);
        FairShare { averages: averages.into_iter().map(|(name, had)| (name.clone(), had)).collect(), at: self.at }
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

    #[test]
    fn a_scheduler_that_starts_anew_goes_on_from_what_was_kept() {
        let (mut fair, a, b) = (FairShare::default(), Namespace::from("a"), Namespace::from("b"));
        let holding = BTreeMap::from([(a.clone(), 1000), (b.clone(), 10)]);
        fair.pass(&holding, 100, Time::seconds(0));
        fair.pass(&holding, 100, Time::seconds(100));
        let kept: FairShare = serde_json::from_str(&serde_json::to_string(&fair.most(1)).unwrap()).unwrap();
        assert_eq!((kept.average(&a), kept.average(&b)), (fair.average(&a), 0.0), "those that had most");
        // It has decided something already when it hears of the past.
        let mut next = FairShare::default();
        next.pass(&BTreeMap::new(), 100, Time::seconds(190));
        next.recall(kept.clone(), 100, Time::seconds(200));
        assert!((next.average(&a) - 250.0).abs() < 1e-9, "a half-life later");
        next.recall(kept, 100, Time::seconds(200));
        assert!((next.average(&a) - 250.0).abs() < 1e-9, "twice is once");
    }
}

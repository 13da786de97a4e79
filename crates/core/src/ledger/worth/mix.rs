//! The mix of requests a cluster sees: told in advance, or learnt from the pods that come, recent ones counting more.

mod rules;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::ask::{GpuAsk, MemoryAsk, ModelRule};
use crate::model::device::DeviceKind;
use crate::model::pod::Pod;
use crate::model::units::Bytes;

use rules::ModelRules;

/// What one pod weighs when it comes. Counts are whole numbers, so that a recorded mix is read back exactly.
const ONE: u64 = 1 << 16;
/// After so many arrivals older ones count a little less.
const FADE_EVERY: u64 = 100;
/// What remains of a count then, of [`ONE`]: half is forgotten after about 1,400 arrivals.
const FADE: u64 = 62_338;
/// Most shapes that are remembered; the rarest are forgotten first.
const MOST: usize = 2048;
/// Most model rules that outlast a fading; those that weigh least are forgotten first, with the shapes that name them. At most
/// [`FADE_EVERY`] more come before the next. All are tried against all models of the cluster, on the path of decisions, whenever
/// leftovers are valued anew: twice as many make that twice as long, for rules that hardly any pod has.
const MOST_RULES: usize = 256;

/// What a pod asks for, as far as it bears on what leftovers are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Shape {
    /// CPU in thousandths of a core.
    pub(super) cpu: u64,
    /// Main memory in MiB.
    pub(super) memory: u64,
    /// Devices; none for an ordinary pod.
    pub(super) devices: u32,
    /// Part of each device in thousandths, as far as it is given as a part.
    pub(super) part: u32,
    /// Device memory in MiB, where it is given so.
    pub(super) device_memory: u64,
    /// Which models will do, by place in [`Mix::rules`]; of no meaning without devices.
    pub(super) rule: u32,
}

/// The mix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Mix {
    pub(super) rules: ModelRules,
    #[serde(with = "as_list")]
    pub(super) counts: BTreeMap<Shape, u64>,
    /// Pods that came so far.
    arrivals: u64,
    /// It was told in advance, and is not learnt from.
    told: bool,
    /// Pods that came and went lately, recent ones counting more.
    came: u64,
    went: u64,
}

/// JSON has only texts as names in a map.
mod as_list {
    use super::{BTreeMap, Shape};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(counts: &BTreeMap<Shape, u64>, out: S) -> Result<S::Ok, S::Error> {
        counts.iter().collect::<Vec<_>>().serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Shape, u64>, D::Error> {
        Ok(Vec::<(Shape, u64)>::deserialize(from)?.into_iter().collect())
    }
}

impl Mix {
    /// The mix of these pods, to be expected from now on whatever comes.
    pub fn told<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Mix {
        let mut mix = Mix::default();
        for pod in pods {
            let shape = mix.shape(pod);
            *mix.counts.entry(shape).or_default() += ONE;
        }
        mix.told = true;
        mix
    }

    /// What is wrong with one that was read from somewhere.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        /// No pod has as many MiB, no cluster as many pods, each of which counts 2^16; and times 2^16 they do not wrap.
        const MANY: u64 = 1 << 47;
        let mut wrong = Vec::new();
        let named = self.counts.keys().filter(|shape| shape.devices > 0).map(|shape| u64::from(shape.rule) + 1).max();
        let (named, listed) = (named.unwrap_or(0), self.rules.list().len() as u64);
        if named > listed {
            wrong.push(format!("its mix of requests names {named} model rules, and lists {listed}"));
        }
        let whole = |shape: &Shape| shape.part <= 1000 && shape.memory < MANY && shape.device_memory < MANY;
        let counted = self.counts.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        let all = [self.arrivals, self.came, self.went, counted];
        if !self.counts.keys().all(whole) || all.iter().any(|number| *number >= MANY) {
            wrong.push("its mix of requests has numbers that no pods amount to".into());
        }
        wrong
    }

    /// A pod came.
    pub(crate) fn learn(&mut self, pod: &Pod) {
        self.arrivals += 1;
        self.came += ONE;
        if self.arrivals.is_multiple_of(FADE_EVERY) {
            // Whether a cluster fills up or turns over shows sooner than what its mix is.
            (self.came, self.went) = (self.came * 19 / 20, self.went * 19 / 20);
        }
        if self.told {
            return;
        }
        let shape = self.shape(pod);
        *self.counts.entry(shape).or_default() += ONE;
        if self.arrivals.is_multiple_of(FADE_EVERY) {
            self.fade();
        }
    }

    /// What came long ago counts less, and what hardly counts is forgotten.
    fn fade(&mut self) {
        self.counts.values_mut().for_each(|count| *count = *count * FADE / ONE);
        self.counts.retain(|_, count| *count > 0);
        if self.counts.len() > MOST {
            let mut order: Vec<u64> = self.counts.values().copied().collect();
            order.sort_unstable_by(|a, b| b.cmp(a));
            let least = order[MOST - 1];
            self.counts.retain(|_, count| *count > least);
        }
        let mut weights = vec![0; self.rules.list().len()];
        for (shape, count) in self.counts.iter().filter(|(shape, _)| shape.devices > 0) {
            weights[shape.rule as usize] += count;
        }
        let Some(places) = self.rules.keep(&weights, MOST_RULES) else { return };
        let moved = |(shape, count): (Shape, u64)| match shape.devices {
            0 => Some((shape, count)),
            _ => Some((Shape { rule: places[shape.rule as usize]?, ..shape }, count)),
        };
        self.counts = std::mem::take(&mut self.counts).into_iter().filter_map(moved).collect();
    }

    /// A pod that held something went.
    pub(crate) fn lose(&mut self) {
        self.went += ONE;
    }

    /// How much of what comes also goes: 0 while a cluster fills up, 1 where it stays as full as it is.
    pub(super) fn turnover(&self) -> f32 {
        if self.came == 0 { 0.0 } else { (1.5 * self.went as f32 / self.came as f32).min(1.0) }
    }

    /// How many pods came so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn shape(&mut self, pod: &Pod) -> Shape {
        let requests = &pod.spec.requests;
        let (cpu, memory) = (requests.cpu, requests.memory.0 >> 20);
        let Some((ask, want)) = pod.ask.as_deref().and_then(|ask| Some((ask, largest(ask)?))) else {
            return Shape { cpu, memory, devices: 0, part: 0, device_memory: 0, rule: 0 };
        };
        // The webhook refuses longer rules; what was admitted before it did counts as one for any model.
        let rule = if ask.models.is_bounded() {
            self.rules.place(&ask.models)
        } else {
            self.rules.place(&ModelRule::default())
        };
        let (part, device_memory) = match want.memory {
            MemoryAsk::Nothing => (0, 0),
            MemoryAsk::Bytes(bytes) => (0, bytes.0 >> 20),
            MemoryAsk::Part(part) => (part.0, 0),
            MemoryAsk::NodeUnits(units) => (0, Bytes::gib(units).0 >> 20),
        };
        let part = if want.exclusive { 1000 } else { part.max(want.share.0).min(1000) };
        Shape { cpu, memory, devices: want.count, part, device_memory, rule }
    }
}

/// The request of a pod that is hardest to place: most devices, then the largest part.
fn largest(ask: &GpuAsk) -> Option<&crate::model::ask::DeviceAsk> {
    let wants = ask.containers.iter().flat_map(|c| &c.wants);
    wants.filter(|want| want.kind != DeviceKind::Nic && want.count > 0).max_by_key(|want| (want.count, want.share))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::model::ask::ModelPattern;
    use crate::testing::cluster;

    #[test]
    fn what_came_long_ago_counts_less_and_is_forgotten() {
        let snapshot = cluster("wait old share=300\nwait new share=500");
        let pods: Vec<Pod> = snapshot.pods().map(|(_, state)| state.pod().clone()).collect();
        let mut mix = Mix::default();
        mix.learn(&pods[0]);
        (0..6000).for_each(|_| mix.learn(&pods[1]));
        let count = |mix: &Mix, part| mix.counts.iter().find(|(s, _)| s.part == part).map_or(0, |(_, c)| *c);
        assert!(count(&mix, 300) < ONE / 2 && count(&mix, 500) > 1000 * ONE);
        (0..90_000).for_each(|_| mix.learn(&pods[1]));
        assert_eq!(count(&mix, 300), 0);
    }

    /// A pod that will run on these models alone.
    fn of_models(models: &[String]) -> Pod {
        let mut pod = Pod::new("default", "a");
        let mut ask = crate::testing::ask(crate::testing::share(crate::model::units::Share(300)));
        ask.models.only = models.iter().map(|model| ModelPattern::Part(model.as_str().into())).collect();
        pod.ask = Some(Arc::new(ask));
        pod
    }

    /// Every rule that is named is there, and every rule that is there is named.
    fn is_whole(mix: &Mix) -> bool {
        let named: BTreeSet<u32> = mix.counts.keys().filter(|s| s.devices > 0).map(|s| s.rule).collect();
        named == (0..mix.rules.list().len() as u32).collect()
    }

    #[test]
    fn rules_are_forgotten_with_the_pods_that_had_them() {
        let mut mix = Mix::default();
        let common = of_models(&["H200".into()]);
        for i in 0..20_000 {
            mix.learn(&of_models(&[format!("card-{i}")]));
            (0..2).for_each(|_| mix.learn(&common));
            assert!(mix.rules.list().len() <= MOST_RULES + FADE_EVERY as usize, "after {i} pods");
        }
        (0..FADE_EVERY).for_each(|_| mix.learn(&common));
        assert!(is_whole(&mix) && mix.rules.list().len() <= MOST_RULES);
        // Whoever comes again and again keeps its place among those who come once.
        let rule = mix.rules.list().iter().position(|rule| **rule == common.ask.as_ref().unwrap().models).unwrap();
        let own: u64 = mix.counts.iter().filter(|(s, _)| s.rule as usize == rule).map(|(_, count)| count).sum();
        assert!(own > 1000 * ONE, "{own}");
        // And when nobody comes any more but it, it is the only one left.
        (0..60_000).for_each(|_| mix.learn(&common));
        assert!(is_whole(&mix) && mix.rules.list().len() == 1);
    }

    #[test]
    fn a_pod_that_names_more_models_than_may_be_named_counts_as_one_for_any() {
        let mut mix = Mix::default();
        let many: Vec<String> = (0..1000).map(|i| format!("card-{i}")).collect();
        mix.learn(&of_models(&many));
        mix.learn(&of_models(&["x".repeat(1000)]));
        assert_eq!(mix.rules.list(), [Arc::new(ModelRule::default())]);
    }

    #[test]
    fn a_recorded_mix_is_read_back_exactly() {
        let snapshot =
            cluster("wait a share=300 model=a100 cpu=3000\nwait b count=2 whole\nwait c mem=4Gi\nwait d ordinary");
        let mut mix = Mix::default();
        snapshot.pods().for_each(|(_, state)| mix.learn(state.pod()));
        let text = serde_json::to_string(&mix).unwrap();
        assert_eq!(serde_json::from_str::<Mix>(&text).unwrap(), mix);
    }
}

//! What containers use, as agents tell it on their metrics ports.

use std::collections::BTreeMap;

use divvy_api::usage::{self, What};
use divvy_core::id::{DeviceId, NodeName, PodKey};
use divvy_core::time::Time;
use divvy_core::units::Bytes;

/// What a pod uses of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The pod.
    pub pod: PodKey,
    /// Its node.
    pub node: NodeName,
    /// The card.
    pub device: DeviceId,
    /// Of the card's time, in thousandths.
    pub share: u32,
    /// Time spent waiting for the card since the last time it was told, in thousandths.
    pub throttled: u32,
    /// Memory.
    pub memory: Bytes,
}

/// Reads what agents tell, and remembers what only grows.
#[derive(Debug, Default)]
pub struct Meter {
    waited: BTreeMap<(PodKey, DeviceId), (Time, f64)>,
}

#[derive(Default)]
struct Sum {
    busy: f64,
    throttled: f64,
    memory: f64,
}

impl Meter {
    /// What one node's agent says now, containers of a pod added up.
    pub fn read(&mut self, node: &NodeName, text: &str, now: Time) -> Vec<Measured> {
        let mut sums: BTreeMap<(PodKey, DeviceId), Sum> = BTreeMap::new();
        for told in usage::told(text) {
            let Some(device) = told.device else { continue };
            let sum = sums.entry((PodKey::new(told.namespace, told.pod), DeviceId::from(device))).or_default();
            match told.what {
                What::Busy => sum.busy += told.value,
                What::Throttled => sum.throttled += told.value,
                What::Memory => sum.memory += told.value,
            }
        }
        sums.into_iter()
            .map(|((pod, device), sum)| {
                let before = self.waited.insert((pod.clone(), device.clone()), (now, sum.throttled));
                let throttled = before.map_or(0.0, |(at, waited)| {
                    (sum.throttled - waited).max(0.0) * 1e6 / now.millis_since(at).max(1) as f64
                });
                Measured {
                    pod,
                    node: node.clone(),
                    device,
                    share: (sum.busy * 1000.0) as u32,
                    throttled: throttled as u32,
                    memory: Bytes(sum.memory as u64),
                }
            })
            .collect()
    }

    /// Forgets pods of which nothing was heard since.
    pub fn forget_before(&mut self, then: Time) {
        self.waited.retain(|_, (at, _)| *at >= then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_metrics_are_added_up_by_pod_and_card_and_waiting_is_a_rate() {
        let told = |waited: f64| {
            format!(
                "# HELP divvy_container_busy_ratio x\n\
                 divvy_container_busy_ratio{{namespace=\"n\",pod=\"p\",container=\"a\",device=\"GPU-1\"}} 0.25\n\
                 divvy_container_busy_ratio{{namespace=\"n\",pod=\"p\",container=\"b\",device=\"GPU-1\"}} 0.5\n\
                 divvy_container_throttled_seconds_total{{namespace=\"n\",pod=\"p\",container=\"a\",device=\"GPU-1\"}} {waited}\n\
                 divvy_container_memory_used_bytes{{namespace=\"n\",pod=\"q\",container=\"a\",device=\"GPU-2\"}} 1073741824.0\n\
                 divvy_container_busy_ratio{{broken\nnonsense\n"
            )
        };
        let (node, mut meter) = (NodeName::from("n0"), Meter::default());
        let first = meter.read(&node, &told(10.0), Time(10_000));
        assert_eq!(first.len(), 2);
        assert_eq!((first[0].pod.to_string().as_str(), first[0].share, first[0].throttled), ("n/p", 750, 0));
        assert_eq!(first[1].memory, Bytes::gib(1));
        let second = meter.read(&node, &told(15.0), Time(20_000));
        assert_eq!(second[0].throttled, 500);
        meter.forget_before(Time(20_001));
        assert_eq!(meter.read(&node, &told(20.0), Time(30_000))[0].throttled, 0);
    }
}

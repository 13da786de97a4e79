//! What nodes report: their journals, read page by page, merged in any order and any number of times.
//!
//! A journal is append-only on the node's disk. Its records are numbered within an epoch (a journal that lost its disk begins a new
//! one), and each record repeats the *cumulative* counters of one container on one device. So a record that comes twice, late or
//! out of order changes nothing that a later one has not said already, and whoever reads need not remember what was read: the node
//! keeps everything until the reader acknowledges a [`Cut`], which it does after what it learned is stored elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::cost::HeldDevice;
use crate::model::id::{ContainerName, DeviceId, NodeName, PodKey, PodUid};
use crate::model::time::Time;

/// A place in a journal: everything up to and including this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cut {
    /// Which journal: changes when a node lost its own.
    pub epoch: u64,
    /// The record's number in it.
    pub sequence: u64,
}

/// Some records of a node's journal, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The node.
    pub node: NodeName,
    /// Which journal.
    pub epoch: u64,
    /// The records after the cut that was asked for.
    pub records: Vec<Record>,
    /// There are more.
    #[serde(default)]
    pub more: bool,
}

impl Page {
    /// What to acknowledge once the page's news are stored; none for an empty page.
    pub fn cut(&self) -> Option<Cut> {
        self.records.last().map(|record| Cut { epoch: self.epoch, sequence: record.sequence })
    }
}

/// What a node knows of one container on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its number.
    pub sequence: u64,
    /// When it was written.
    pub at: Time,
    /// The pod.
    pub pod: PodKey,
    /// Its identity.
    pub uid: PodUid,
    /// The container.
    pub container: ContainerName,
    /// What it holds.
    pub held: HeldDevice,
    /// When it was granted that.
    pub granted: Time,
    /// When the pod was gone from the node; absent while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Milliseconds of the device's time its work has taken since it was granted.
    pub busy: u64,
}

/// A container's counters on a device, known at some moments: the last of each hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter(BTreeMap<u64, (Time, u64)>);

const HOUR: u64 = 3_600_000;

impl Counter {
    /// The counter stood at `busy` at this moment. Of two in the same hour the later counts.
    pub fn tell(&mut self, at: Time, busy: u64) {
        let slot = self.0.entry(at.0 / HOUR).or_insert((at, busy));
        *slot = (*slot).max((at, busy));
    }

    /// Milliseconds counted from the beginning (`from`) until `at`; between two moments they are spread evenly.
    pub fn until(&self, from: Time, at: Time) -> u64 {
        let (mut before, mut counted) = (from, 0);
        for (moment, busy) in self.0.values() {
            // A counter that goes back (a clock did) counts nothing.
            let busy = (*busy).max(counted);
            if *moment > at {
                let (part, whole) = (at.millis_since(before), moment.millis_since(before));
                return counted + (u128::from(busy - counted) * u128::from(part) / u128::from(whole.max(1))) as u64;
            }
            (before, counted) = (*moment, busy);
        }
        counted
    }

    /// The moments known, for whoever stores them.
    pub fn moments(&self) -> impl Iterator<Item = (Time, u64)> + '_ {
        self.0.values().copied()
    }
}

/// Counters by container and device.
pub type Counters = BTreeMap<(ContainerName, DeviceId), Counter>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_the_same_whatever_the_order_and_number_of_what_it_is_told() {
        let t = |hours: u64, minutes: u64| Time::seconds(hours * 3600 + minutes * 60);
        let told = [(t(1, 10), 100), (t(1, 50), 500), (t(3, 0), 900)];
        let of = |order: &[usize]| {
            let mut counter = Counter::default();
            order.iter().for_each(|i| counter.tell(told[*i].0, told[*i].1));
            counter
        };
        let straight = of(&[0, 1, 2]);
        for order in [[2, 1, 0, 1, 2].as_slice(), &[1, 0, 2], &[2, 0, 1, 0]] {
            assert_eq!(of(order), straight);
        }
        assert_eq!(straight.until(t(1, 0), t(1, 50)), 500);
        assert_eq!(straight.until(t(1, 0), t(1, 25)), 250);
        assert_eq!(straight.until(t(1, 0), t(9, 0)), 900);
        assert_eq!(straight.until(t(1, 0), t(0, 30)), 0);
    }

    #[test]
    fn a_page_is_acknowledged_by_its_last_record() {
        let page = Page { node: "n".into(), epoch: 7, records: Vec::new(), more: false };
        assert_eq!(page.cut(), None);
    }
}

//! The ids the kubelet counts. They are interchangeable, a few per device; which card a container gets is the grant's business.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// One id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub id: String,
    /// May the kubelet hand it out?
    pub healthy: bool,
}

/// All ids. They only grow in number: the kubelet would fail pods whose ids vanish.
#[derive(Clone)]
pub struct Slots {
    per_device: usize,
    list: Arc<watch::Sender<Vec<Slot>>>,
    leaving: Arc<Mutex<BTreeSet<String>>>,
}

impl Slots {
    /// No ids yet; `per_device` for each device that is found.
    pub fn new(per_device: usize) -> Slots {
        Slots { per_device, list: Arc::new(watch::Sender::new(Vec::new())), leaving: Arc::default() }
    }

    /// The list, and its changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Slot>> {
        self.list.subscribe()
    }

    /// Ids by which containers on their way out still go.
    pub fn leaving(&self) -> BTreeSet<String> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says which ids containers on their way out still go by.
    pub fn set_leaving(&self, ids: BTreeSet<String>) {
        *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = ids;
    }

    /// Takes a new look: how many devices there are, how many of them take no new work, and which ids are held by pods.
    pub fn update(&self, devices: usize, closed: usize, held: &BTreeSet<String>) {
        self.list.send_if_modified(|list| {
            let total = list.len().max(devices * self.per_device);
            let vanished = total / self.per_device.max(1) - devices.min(total / self.per_device.max(1));
            let fresh = slots(total, (closed + vanished) * self.per_device, held);
            let changed = *list != fresh;
            *list = fresh;
            changed
        });
    }
}

/// `total` ids, of which `closed` cannot be handed out: free ones, from the end. An id that a pod holds stays healthy, for a
/// failed card must not cost a pod on another card its place when the kubelet restarts.
fn slots(total: usize, closed: usize, held: &BTreeSet<String>) -> Vec<Slot> {
    let mut list: Vec<Slot> = (0..total).map(|n| Slot { id: format!("s{n:03}"), healthy: true }).collect();
    for slot in list.iter_mut().rev().filter(|slot| !held.contains(&slot.id)).take(closed) {
        slot.healthy = false;
    }
    list
}

/// `size` of `available`, with all of `must`: lowest first, those of `leaving` last.
pub fn prefer(available: &[String], must: &[String], size: usize, leaving: &BTreeSet<String>) -> Vec<String> {
    let mut rest: Vec<&String> = available.iter().filter(|id| !must.contains(id)).collect();
    rest.sort_by_key(|id| (leaving.contains(*id), *id));
    must.iter().chain(rest).take(size.max(must.len())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn a_failed_card_closes_free_ids_and_never_a_held_one() {
        let slots = Slots::new(2);
        let held = BTreeSet::from(["s003".to_owned()]);
        slots.update(2, 1, &held);
        let unhealthy = |s: &Slots| -> Vec<String> {
            s.subscribe().borrow().iter().filter(|s| !s.healthy).map(|s| s.id.clone()).collect()
        };
        assert_eq!(unhealthy(&slots), ["s001", "s002"]);
        slots.update(2, 0, &held);
        assert!(unhealthy(&slots).is_empty());
        // A card that vanished keeps its ids, closed.
        slots.update(1, 0, &held);
        assert_eq!(slots.subscribe().borrow().len(), 4);
        assert_eq!(unhealthy(&slots), ["s001", "s002"]);
    }

    #[test]
    fn the_preference_avoids_ids_that_are_still_gone_by() {
        let leaving = BTreeSet::from(["s000".to_owned()]);
        assert_eq!(prefer(&ids(&["s002", "s000", "s001"]), &[], 2, &leaving), ["s001", "s002"]);
        assert_eq!(prefer(&ids(&["s002", "s000", "s001"]), &ids(&["s002"]), 2, &leaving), ["s002", "s001"]);
        assert_eq!(prefer(&ids(&["s000"]), &[], 1, &leaving), ["s000"]);
    }
}

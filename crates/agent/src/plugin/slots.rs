//! The ids the kubelet counts. They are interchangeable, a few per device; which card a container gets is the grant's business.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::home;

/// One id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    notes: PathBuf,
}

impl Slots {
    /// The ids that `notes` tells of, or none yet; `per_device` for each device that is found.
    ///
    /// They outlive this process: the kubelet turns pods away for good while it is told of none, and an agent that starts may have to
    /// wait for the API server before it can look at the devices. No id is a promise; containers are judged when they start.
    pub fn open(notes: PathBuf, per_device: usize) -> Slots {
        let list = read(&notes).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %notes.display(), "cannot read which slots were offered; none are, before the devices were looked at");
            Vec::new()
        });
        Slots { per_device, list: Arc::new(watch::Sender::new(list)), leaving: Arc::default(), notes }
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
            if changed && let Err(error) = write(&self.notes, list) {
                tracing::warn!(%error, file = %self.notes.display(), "cannot write down which slots are offered");
            }
            changed
        });
    }
}

fn read(notes: &Path) -> io::Result<Vec<Slot>> {
    match std::fs::read(notes) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write(notes: &Path, list: &[Slot]) -> io::Result<()> {
    home::write(notes, &serde_json::to_vec(list)?)
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

    fn unhealthy(slots: &Slots) -> Vec<String> {
        slots.subscribe().borrow().iter().filter(|s| !s.healthy).map(|s| s.id.clone()).collect()
    }

    #[test]
    fn an_agent_that_starts_anew_offers_what_it_offered_before_it_has_looked() {
        let run = tempfile::tempdir().unwrap();
        let notes = run.path().join("slots.json");
        let slots = Slots::open(notes.clone(), 2);
        assert!(slots.subscribe().borrow().is_empty(), "nothing was offered yet");
        slots.update(2, 1, &BTreeSet::new());
        let anew = Slots::open(notes.clone(), 2);
        assert_eq!(*anew.subscribe().borrow(), *slots.subscribe().borrow());
        assert_eq!(unhealthy(&anew), ["s002", "s003"]);
        // Fewer are never offered, or pods would fail that hold them.
        anew.update(1, 0, &BTreeSet::new());
        assert_eq!(anew.subscribe().borrow().len(), 4);
        std::fs::write(&notes, "[{").unwrap();
        assert!(Slots::open(notes, 2).subscribe().borrow().is_empty(), "what cannot be read is not guessed");
    }

    #[test]
    fn a_failed_card_closes_free_ids_and_never_a_held_one() {
        let run = tempfile::tempdir().unwrap();
        let slots = Slots::open(run.path().join("slots.json"), 2);
        let held = BTreeSet::from(["s003".to_owned()]);
        slots.update(2, 1, &held);
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

//! The ids the kubelet counts. They are interchangeable, a few per device; which card a container gets is the grant's business.
//!
//! An id is also the name under which the runtime finds a container's edits. Where a runtime gives any container the CDI devices that its
//! environment names, a pod that could guess a neighbour's id would mount the neighbour's pages: ids cannot be guessed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
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
    secret: Secret,
    list: Arc<watch::Sender<Vec<Slot>>>,
    leaving: Arc<Mutex<BTreeSet<String>>>,
    notes: PathBuf,
}

impl Slots {
    /// The ids that `notes` tells of, or none yet; `per_device` for each device that is found. `secret` is a file that must outlive a
    /// reboot, because the kubelet remembers ids for as long.
    ///
    /// They outlive this process: the kubelet turns pods away for good while it is told of none, and an agent that starts may have to
    /// wait for the API server before it can look at the devices. No id is a promise; containers are judged when they start.
    pub fn open(notes: PathBuf, secret: &Path, per_device: usize) -> io::Result<Slots> {
        let secret = Secret::open(secret)?;
        let list = read(&notes).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %notes.display(), "cannot read which slots were offered; none are, before the devices were looked at");
            Vec::new()
        });
        let list = Arc::new(watch::Sender::new(list));
        Ok(Slots { per_device, secret, list, leaving: Arc::default(), notes })
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
            let known: BTreeSet<&str> = list.iter().map(|slot| &*slot.id).collect();
            let offered = (0..known.len()).take_while(|n| known.contains(&*self.secret.id(*n))).count();
            let total = offered.max(devices * self.per_device);
            let vanished = total / self.per_device.max(1) - devices.min(total / self.per_device.max(1));
            let ids: Vec<String> = (0..total).map(|n| self.secret.id(n)).collect();
            // Ids of another making, that of a version before, stay while pods hold them.
            let own: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
            let kept = list.iter().filter(|slot| held.contains(&slot.id) && !own.contains(&*slot.id));
            let kept = kept.map(|slot| Slot { id: slot.id.clone(), healthy: true });
            let fresh = slots(&ids, (closed + vanished) * self.per_device, held).into_iter().chain(kept).collect();
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

/// What ids are made with. It is the node's own, and stays.
#[derive(Clone)]
struct Secret([u8; 32]);

impl Secret {
    fn open(file: &Path) -> io::Result<Secret> {
        let mut secret = [0; 32];
        match std::fs::read(file) {
            Ok(found) if found.len() == secret.len() => secret.copy_from_slice(&found),
            Ok(_) => return Err(io::Error::other(format!("{} does not hold 32 bytes; remove it", file.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                File::open("/dev/urandom")?.read_exact(&mut secret)?;
                if let Some(folder) = file.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                let half = file.with_extension("part");
                let mut out = File::options().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
                out.write_all(&secret)?;
                out.sync_all()?;
                std::fs::rename(half, file)?;
            }
            Err(error) => return Err(error),
        }
        Ok(Secret(secret))
    }

    /// The id of a number: 64 bits that nobody can guess behind it, so that ids keep their order.
    fn id(&self, n: usize) -> String {
        let digest = Sha256::new().chain_update(self.0).chain_update((n as u64).to_le_bytes()).finalize();
        let tail: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("s{n:03}-{tail}")
    }
}

/// These ids, of which `closed` cannot be handed out: free ones, from the end. An id that a pod holds stays healthy, for a failed card must
/// not cost a pod on another card its place when the kubelet restarts.
fn slots(ids: &[String], closed: usize, held: &BTreeSet<String>) -> Vec<Slot> {
    let mut list: Vec<Slot> = ids.iter().map(|id| Slot { id: id.clone(), healthy: true }).collect();
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

    /// The ids that are closed, without what nobody can guess of them.
    fn unhealthy(slots: &Slots) -> Vec<String> {
        slots.subscribe().borrow().iter().filter(|s| !s.healthy).map(|s| s.id[..4].to_owned()).collect()
    }

    fn open(run: &Path) -> Slots {
        Slots::open(run.join("slots.json"), &run.join("slots.key"), 2).unwrap()
    }

    #[test]
    fn an_agent_that_starts_anew_offers_what_it_offered_before_it_has_looked() {
        let run = tempfile::tempdir().unwrap();
        let slots = open(run.path());
        assert!(slots.subscribe().borrow().is_empty(), "nothing was offered yet");
        slots.update(2, 1, &BTreeSet::new());
        let anew = open(run.path());
        assert_eq!(*anew.subscribe().borrow(), *slots.subscribe().borrow());
        assert_eq!(unhealthy(&anew), ["s002", "s003"]);
        // Fewer are never offered, or pods would fail that hold them.
        anew.update(1, 0, &BTreeSet::new());
        assert_eq!(anew.subscribe().borrow().len(), 4);
        std::fs::write(run.path().join("slots.json"), "[{").unwrap();
        assert!(open(run.path()).subscribe().borrow().is_empty(), "what cannot be read is not guessed");
    }

    #[test]
    fn ids_are_the_same_after_a_reboot_and_cannot_be_guessed_from_another_nodes() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ids = |slots: &Slots| slots.subscribe().borrow().iter().map(|s| s.id.clone()).collect::<Vec<_>>();
        let first = open(here.path());
        first.update(1, 0, &BTreeSet::new());
        std::fs::remove_file(here.path().join("slots.json")).unwrap();
        let rebooted = open(here.path());
        rebooted.update(1, 0, &BTreeSet::new());
        assert_eq!(ids(&first), ids(&rebooted));
        let other = open(there.path());
        other.update(1, 0, &BTreeSet::new());
        assert!(ids(&first).iter().all(|id| id.len() == 21 && !ids(&other).contains(id)));
        std::fs::write(here.path().join("slots.key"), "short").unwrap();
        let error = Slots::open(here.path().join("slots.json"), &here.path().join("slots.key"), 2).err().unwrap();
        assert!(error.to_string().ends_with("slots.key does not hold 32 bytes; remove it"), "{error}");
    }

    #[test]
    fn ids_that_a_version_before_gave_out_stay_while_pods_hold_them() {
        let run = tempfile::tempdir().unwrap();
        let old = r#"[{"id":"s000","healthy":true},{"id":"s001","healthy":true}]"#;
        std::fs::write(run.path().join("slots.json"), old).unwrap();
        let slots = open(run.path());
        let number = |slots: &Slots| slots.subscribe().borrow().len();
        assert_eq!(number(&slots), 2, "before the devices were looked at");
        let held = BTreeSet::from(["s001".to_owned()]);
        slots.update(2, 0, &held);
        assert_eq!(number(&slots), 5);
        assert!(slots.subscribe().borrow().iter().any(|s| s.id == "s001" && s.healthy));
        slots.update(2, 0, &BTreeSet::new());
        assert_eq!(number(&slots), 4);
    }

    #[test]
    fn a_failed_card_closes_free_ids_and_never_a_held_one() {
        let run = tempfile::tempdir().unwrap();
        let slots = open(run.path());
        let held = BTreeSet::from([slots.secret.id(3)]);
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

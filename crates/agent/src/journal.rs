//! The node's usage journal: who held what, and what was used of it, on disk until somebody has stored it elsewhere.
//!
//! Records are cumulative ([`Entry`]), so reading one twice or leaving one out changes nothing that a later one says. They lie in
//! numbered files ([`files`]). How it is read and acknowledged is in docs/design/journal.md.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use divvy_core::budget::{Cut, HeldDevice, Record};
use divvy_core::id::{ContainerName, DeviceId, NodeName, PodKey, PodUid};
use divvy_core::time::Time;
use serde::{Deserialize, Serialize};

pub mod files;

use files::Files;

/// While counters grow, a record is written this often, in milliseconds.
const EVERY: u64 = 60_000;
/// Most records of a page: about 250 KiB as JSON, which the agent holds for as long as a slow reader takes.
const PAGE: usize = 500;

/// What grows while a container uses a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Milliseconds of the device's time that its work took.
    pub busy: u64,
    /// Milliseconds it had work and waited for its turn.
    pub throttled: u64,
    /// Allocations refused because they were above the limit.
    pub refused: u64,
}

impl Counters {
    fn and(self, more: Counters) -> Counters {
        Counters {
            busy: self.busy.saturating_add(more.busy),
            throttled: self.throttled.saturating_add(more.throttled),
            refused: self.refused.saturating_add(more.refused),
        }
    }

    fn is_zero(&self) -> bool {
        *self == Counters::default()
    }
}

/// A record as the journal has it: what budgets read, and what people want to know besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What budgets read.
    #[serde(flatten)]
    pub record: Record,
    /// Milliseconds with work behind a closed gate, since it was granted.
    pub throttled: u64,
    /// Allocations refused, since it was granted.
    pub refused: u64,
    /// Memory in use at this moment.
    pub used: u64,
    /// What had been counted when the container's pages were made anew (a node that lost its tmpfs).
    #[serde(default, skip_serializing_if = "Counters::is_zero")]
    pub before: Counters,
}

impl Entry {
    fn key(&self) -> Key {
        (self.record.uid.clone(), self.record.container.clone(), self.record.held.device.clone())
    }

    fn total(&self) -> Counters {
        Counters { busy: self.record.busy, throttled: self.throttled, refused: self.refused }
    }

    /// What the container's pages said.
    fn raw(&self) -> Counters {
        let (total, before) = (self.total(), self.before);
        Counters {
            busy: total.busy.saturating_sub(before.busy),
            throttled: total.throttled.saturating_sub(before.throttled),
            refused: total.refused.saturating_sub(before.refused),
        }
    }
}

type Key = (PodUid, ContainerName, DeviceId);

/// What one container has on one device at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The pod.
    pub pod: PodKey,
    /// Its identity.
    pub uid: PodUid,
    /// The container.
    pub container: ContainerName,
    /// What it holds.
    pub held: HeldDevice,
    /// Since when.
    pub granted: Time,
    /// What its pages count.
    pub counters: Counters,
    /// Memory in use.
    pub used: u64,
}

/// Some entries of the journal; what a `budget::Page` is read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The node.
    pub node: NodeName,
    /// Which journal.
    pub epoch: u64,
    /// The entries, in their order.
    pub records: Vec<Entry>,
    /// There are more.
    pub more: bool,
}

struct Inner {
    files: Files,
    /// The last record of everything that is still held.
    open: BTreeMap<Key, Entry>,
}

/// The journal.
pub struct Journal {
    node: NodeName,
    inner: Mutex<Inner>,
}

impl Journal {
    /// Opens the journal in `dir`, or begins one. It is kept below `bytes`.
    pub fn open(dir: &Path, node: NodeName, bytes: u64, now: Time) -> io::Result<Journal> {
        let mut open = BTreeMap::new();
        let files = Files::open(dir, bytes, now, |entry| match entry.record.until {
            Some(_) => drop(open.remove(&entry.key())),
            None => drop(open.insert(entry.key(), entry)),
        })?;
        Ok(Journal { node, inner: Mutex::new(Inner { files, open }) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Memory follows the disk: a panic in between leaves both as they were.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in everything that is held at this moment. What was held before and is not now has ended.
    pub fn observe(&self, now: Time, samples: &[Sample]) -> io::Result<()> {
        let mut inner = self.inner();
        let mut news: Vec<Entry> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for sample in samples {
            let key = (sample.uid.clone(), sample.container.clone(), sample.held.device.clone());
            let last = inner.open.get(&key);
            let entry = next(last, sample, now);
            seen.insert(key);
            if is_news(last, &entry) {
                news.push(entry);
            }
        }
        for (key, last) in &inner.open {
            if !seen.contains(key) {
                let mut end = last.clone();
                end.record.at = now.max(end.record.at);
                (end.record.until, end.used) = (Some(end.record.at), 0);
                news.push(end);
            }
        }
        inner.write(news)
    }

    /// Writes what everything that is held stands at, also if it is too early for a record: before what is gone is swept up.
    pub fn freshen(&self, now: Time, samples: &[Sample], of: impl Fn(&PodUid) -> bool) -> io::Result<()> {
        let mut inner = self.inner();
        let mut news = Vec::new();
        for sample in samples.iter().filter(|s| of(&s.uid)) {
            let key = (sample.uid.clone(), sample.container.clone(), sample.held.device.clone());
            let last = inner.open.get(&key);
            let entry = next(last, sample, now);
            if last.is_none_or(|last| last.total() != entry.total()) {
                news.push(entry);
            }
        }
        inner.write(news)
    }

    /// Records after a place in the journal. A place in another journal, or none, is the beginning of this one.
    pub fn page(&self, after: Option<Cut>, limit: usize) -> io::Result<Page> {
        let (epoch, unread) = {
            let inner = self.inner();
            let epoch = inner.files.epoch();
            let after = after.filter(|cut| cut.epoch == epoch).map_or(0, |cut| cut.sequence);
            (epoch, inner.files.unread(after)?)
        };
        // Without the lock: what containers use is written down while somebody reads.
        let (records, more) = unread.read(limit.clamp(1, PAGE))?;
        Ok(Page { node: self.node.clone(), epoch, records, more })
    }

    /// Everything up to here is stored elsewhere. A place in another journal says nothing about this one.
    pub fn acknowledge(&self, cut: Cut) -> io::Result<()> {
        let mut inner = self.inner();
        if cut.epoch != inner.files.epoch() || !inner.files.would_drop(cut.sequence) {
            return Ok(());
        }
        // What is still held must be known after a restart too.
        let carried: Vec<Entry> = inner.open.values().filter(|e| e.record.sequence <= cut.sequence).cloned().collect();
        inner.write(carried)?;
        inner.files.drop_through(cut.sequence)
    }

    /// Records that had to be dropped unread, and bytes on disk.
    pub fn size(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.files.lost(), inner.files.bytes())
    }
}

impl Inner {
    fn write(&mut self, mut news: Vec<Entry>) -> io::Result<()> {
        if news.is_empty() {
            return Ok(());
        }
        self.files.append(&mut news)?;
        for entry in news {
            match entry.record.until {
                Some(_) => drop(self.open.remove(&entry.key())),
                None => drop(self.open.insert(entry.key(), entry)),
            }
        }
        Ok(())
    }
}

fn next(last: Option<&Entry>, sample: &Sample, now: Time) -> Entry {
    let mut before = last.map_or(Counters::default(), |l| l.before);
    if let Some(last) = last {
        let raw = last.raw();
        let fell = |was: u64, is: u64| if is < was { was } else { 0 };
        before = before.and(Counters {
            busy: fell(raw.busy, sample.counters.busy),
            throttled: fell(raw.throttled, sample.counters.throttled),
            refused: fell(raw.refused, sample.counters.refused),
        });
    }
    let total = before.and(sample.counters);
    let record = Record {
        sequence: 0,
        at: last.map_or(now, |l| l.record.at.max(now)),
        pod: sample.pod.clone(),
        uid: sample.uid.clone(),
        container: sample.container.clone(),
        held: sample.held.clone(),
        granted: sample.granted,
        until: None,
        busy: total.busy,
    };
    Entry { record, throttled: total.throttled, refused: total.refused, used: sample.used, before }
}

fn is_news(last: Option<&Entry>, entry: &Entry) -> bool {
    let Some(last) = last else { return true };
    let changed = last.record.held != entry.record.held || last.before != entry.before;
    let grew = last.total() != entry.total() || last.used != entry.used;
    changed || (grew && entry.record.at.millis_since(last.record.at) >= EVERY)
}

#[cfg(test)]
mod tests;

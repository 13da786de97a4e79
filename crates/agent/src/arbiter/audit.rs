//! The audit: what the cards say against what the containers' own books say.
//!
//! The library keeps programs to their limits that do not try to get around it. Who does is seen here, for the vendor's list of
//! processes cannot be talked to from inside a container: a process that uses a card without ever having introduced itself, one on a
//! card it was not granted, and memory beyond what was booked. What a process holds above its books (code, stacks, heaps, local
//! memory) is booked for it, so that it counts against the container's limit like everything else.
//!
//! Everything has to be seen twice, for the card and the books are not read at the same instant.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use divvy_core::id::DeviceId;
use divvy_shm::ledger::{Kind, Process, ProcessId, State};
use divvy_shm::map::Guarded;
use divvy_shm::{ContainerConfig, GateReader, Ledger, LedgerFile, MAX_DEVICES};

use crate::device::Usage;
use crate::home::ledger_of;

pub mod watch;

/// A context takes at most this much; a process that begins with more has more than a context.
const LARGEST_CONTEXT: u64 = 1 << 30;
/// A limit is passed when it is by more than this.
const CLEARLY: u64 = 64 << 20;

/// The card gives memory in grains of 2 MiB, some for the driver's own use.
const ROUNDING: u64 = 16 << 20;

/// Where a process that is in nobody's books belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The container with these pages.
    Container(PathBuf),
    /// Nobody's that we know, and it should not be there.
    Stranger,
    /// Somebody else's, who is counted elsewhere.
    Elsewhere,
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Finding {
    /// The folder of the container, where it is one of ours.
    pub container: Option<PathBuf>,
    /// The device.
    pub device: DeviceId,
    /// What.
    pub what: What,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A process uses the device and is in nobody's books: it went around the library.
    Unmanaged {
        /// Its pid on the node.
        pid: u32,
    },
    /// A process uses a device that its container was not granted.
    NotGranted {
        /// Its pid on the node.
        pid: u32,
    },
    /// A container holds more memory than its limit, by the card's own count.
    OverLimit {
        /// Its limit.
        limit: u64,
    },
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Unmanaged { pid } => write!(f, "process {pid} uses the card without the library"),
            What::NotGranted { pid } => write!(f, "process {pid} uses a card that its container was not granted"),
            What::OverLimit { limit } => write!(f, "more memory than its limit of {} MiB is in use", limit >> 20),
        }
    }
}

/// What was seen so far.
#[derive(Default)]
pub struct Audit {
    pages: BTreeMap<PathBuf, Guarded<Ledger>>,
    /// The least that a process had above its books, by device: what a context takes.
    contexts: BTreeMap<DeviceId, u64>,
    /// What each process had above its books at the last look.
    above: BTreeMap<(u32, DeviceId), u64>,
    /// What was odd at the last look, and whether that was told.
    odd: BTreeMap<Finding, bool>,
    /// Devices on which somebody was at the last look who is in nobody's books.
    visited: BTreeSet<DeviceId>,
}

/// What a container's processes had booked before the card was asked.
struct Booked {
    processes: Vec<Process>,
    /// By process and device.
    amounts: BTreeMap<(usize, usize), u64>,
}

/// A container's books at one look.
struct Books {
    dir: PathBuf,
    config: ContainerConfig,
    booked: Booked,
}

impl Audit {
    /// Looks once. `usage` asks the cards; `whose` says where a process belongs that is in nobody's books. Returns what is new.
    pub fn look(
        &mut self,
        containers: &[PathBuf],
        usage: impl FnOnce() -> Vec<Usage>,
        whose: impl Fn(u32) -> Whose,
    ) -> Vec<Finding> {
        self.open(containers);
        let before: Vec<Booked> = self.pages.values().map(|ledger| read(ledger)).collect();
        let usage = usage();
        // What containers were granted is only read where there is something to hold against it.
        let is_idle = usage.iter().all(|card| card.processes.is_empty());
        let looked_at = self.pages.keys().zip(before).filter(|_| !is_idle);
        let books: Vec<Books> = looked_at.filter_map(|(dir, booked)| with_config(dir, booked)).collect();
        let mut odd = BTreeSet::new();
        self.visited.clear();
        let mut above = BTreeMap::new();
        for card in &usage {
            let mut held: BTreeMap<usize, u64> = BTreeMap::new();
            for process in &card.processes {
                let whose = whose(process.pid);
                let owner = match &whose {
                    // The kernel says where it is; what others have written into their books about it is not asked.
                    Whose::Container(dir) => books
                        .iter()
                        .position(|b| b.dir == *dir)
                        .map(|at| (at, registered(&books[at], &self.pages, process.pid))),
                    Whose::Stranger | Whose::Elsewhere => None,
                };
                if !matches!(owner, Some((_, Some(_)))) {
                    self.visited.insert(card.device.clone());
                }
                let Some((at, id)) = owner else {
                    if whose == Whose::Stranger {
                        odd.insert(finding(None, card, What::Unmanaged { pid: process.pid }));
                    }
                    continue;
                };
                let book = &books[at];
                let Some(device) = book.config.devices.iter().position(|d| d.id == card.device.as_str()) else {
                    odd.insert(finding(Some(&book.dir), card, What::NotGranted { pid: process.pid }));
                    continue;
                };
                let nvml = process.memory.0;
                *held.entry(at).or_default() += nvml;
                let Some(id) = id else {
                    odd.insert(finding(Some(&book.dir), card, What::Unmanaged { pid: process.pid }));
                    continue;
                };
                let Some(ledger) = self.pages.get(&book.dir) else { continue };
                let before = book.booked.amounts.get(&(id.slot(), device)).copied().unwrap_or(0);
                let beyond = nvml.saturating_sub(before.max(booked(ledger, id, device)));
                let context = self.contexts.entry(card.device.clone()).or_insert(LARGEST_CONTEXT);
                if beyond > 0 {
                    *context = (*context).min(beyond);
                }
                // Where contexts are part of the limit they are booked when they are made.
                let forgiven = if book.config.devices[device].context_bytes > 0 { 0 } else { *context };
                let key = (process.pid, card.device.clone());
                let twice = beyond.min(self.above.get(&key).copied().unwrap_or(0)).saturating_sub(forgiven);
                // What is within the card's own rounding is not taken for a change.
                if twice.abs_diff(ledger.held(id, device, Kind::Overhead)) > ROUNDING || twice == 0 {
                    ledger.set_overhead(id, device, twice);
                }
                above.insert(key, beyond);
            }
            for (at, held) in held {
                let book = &books[at];
                let Some(device) = book.config.devices.iter().find(|d| d.id == card.device.as_str()) else { continue };
                let context = self.contexts.get(&card.device).copied().unwrap_or(LARGEST_CONTEXT);
                let forgiven = CLEARLY + context * card.processes.len() as u64;
                if !device.whole_card && held > device.memory_limit.saturating_add(forgiven) {
                    odd.insert(finding(Some(&book.dir), card, What::OverLimit { limit: device.memory_limit }));
                }
            }
        }
        self.above = above;
        self.tell(odd)
    }

    /// Was everybody on the device in somebody's books at the last look? Then all that it did was done for them.
    pub fn knows_all_on(&self, device: &DeviceId) -> bool {
        !self.visited.contains(device)
    }

    /// What was odd twice in a row, once.
    fn tell(&mut self, odd: BTreeSet<Finding>) -> Vec<Finding> {
        let before = std::mem::take(&mut self.odd);
        let mut new = Vec::new();
        for finding in odd {
            let told = before.get(&finding);
            if told == Some(&false) {
                new.push(finding.clone());
            }
            self.odd.insert(finding, told.is_some());
        }
        new
    }

    fn open(&mut self, containers: &[PathBuf]) {
        let known: HashSet<&PathBuf> = containers.iter().collect();
        self.pages.retain(|dir, ledger| known.contains(dir) && !ledger.is_broken());
        for dir in containers {
            if !self.pages.contains_key(dir)
                && let Ok(ledger) = LedgerFile::open_guarded(&ledger_of(dir))
            {
                self.pages.insert(dir.clone(), ledger);
            }
        }
    }
}

fn finding(container: Option<&Path>, card: &Usage, what: What) -> Finding {
    Finding { container: container.map(Path::to_owned), device: card.device.clone(), what }
}

/// What a process booked itself.
fn booked(ledger: &Ledger, id: ProcessId, device: usize) -> u64 {
    ledger.held_in_all(id, device).saturating_sub(ledger.held(id, device, Kind::Overhead))
}

fn read(ledger: &Ledger) -> Booked {
    let processes: Vec<Process> = ledger.processes().filter(|p| p.state == State::Live).collect();
    let amounts = processes
        .iter()
        .flat_map(|p| (0..MAX_DEVICES).map(move |d| (p.id, d)))
        .map(|(id, device)| ((id.slot(), device), booked(ledger, id, device)))
        .collect();
    Booked { processes, amounts }
}

fn with_config(dir: &Path, booked: Booked) -> Option<Books> {
    let gate = GateReader::open(dir).ok()?;
    let (_, config) = gate.config();
    (!gate.is_broken()).then(|| Books { dir: dir.to_owned(), config, booked })
}

/// Where in the books a process is. One that introduced itself while the agent was away, from a pid namespace of its own, is known
/// by its number there.
fn registered(book: &Books, pages: &BTreeMap<PathBuf, Guarded<Ledger>>, pid: u32) -> Option<ProcessId> {
    if let Some(process) = book.booked.processes.iter().find(|p| p.host_pid == pid) {
        return Some(process.id);
    }
    let (inner, namespace) = inside(pid)?;
    let process =
        book.booked.processes.iter().find(|p| p.host_pid == 0 && p.pid == inner && p.namespace == namespace)?;
    pages.get(&book.dir)?.identify_process(process.id, pid, super::registry::start_time(pid)?);
    Some(process.id)
}

/// A process's pid in its own namespace, and which namespace that is.
fn inside(pid: u32) -> Option<(u32, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pids = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    let namespace = super::registry::namespace(&format!("/proc/{pid}/ns/pid"));
    Some((pids.split_whitespace().last()?.parse().ok()?, namespace)).filter(|_| namespace != 0)
}

#[cfg(test)]
mod tests;

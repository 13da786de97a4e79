//! The arbiter: opens and closes the gates of this node's containers, so that each gets its share of a card's time.
//!
//! ```text
//! container pages ──look──> limiter::Domain ──step──> gates, chunk sizes, booked time
//!       ^                                                     │
//!       └────────────── GPU streams wait and write ───────────┘
//! ```
//!
//! Cards that some container holds together are arbitrated together ([`groups`]), each group by a thread of its own ([`card`]). A
//! thread looks every few milliseconds while somebody works and every few tens of microseconds while several do. While nobody does it
//! sleeps, and one thread for all groups looks in its place ([`lookout`]). A heartbeat is written into every gate file; when that
//! stops, the [keeper](crate::keeper) takes the gates over.
//!
//! What a container may use is read from its gate file, so changing the file changes the shares, live. What it did use is in
//! [`Accounts`], and in the gate file too, so that neither a restart nor a reader needs to ask anybody. Where nobody is held back
//! that is the card's own count, which the [audit](audit::watch) asks it for ([`Arbiter::hear`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use divvy_limiter::{Period, Tuning};

pub mod accounts;
pub mod audit;
mod books;
mod card;
pub mod groups;
mod lookout;
mod promised;
mod record;
pub mod registry;
pub mod standalone;
mod tenant;

pub use accounts::{Account, Accounts};
use card::Card;
use lookout::Lookout;

/// A container to arbitrate: who it is, and where its pages are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// Its name in accounts.
    pub name: String,
    /// The folder with its gate and ledger.
    pub dir: PathBuf,
    /// It is done before the others of its pod begin: what it was promised is promised again to them.
    pub is_init: bool,
}

/// How the arbiter works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Times that shape turns.
    pub tuning: Tuning,
    /// Burn a core rather than oversleep while tenants compete.
    pub spin: bool,
    /// A file to write every look and decision to that changed something.
    pub record: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        // A core in eight may spin while there is something to arbitrate; fewer are somebody's share.
        let spin = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 8);
        Settings { tuning: Tuning::default(), spin, record: None }
    }
}

/// The threads that arbitrate. Dropping it opens all gates.
#[derive(Debug)]
pub struct Arbiter {
    settings: Settings,
    accounts: Accounts,
    running: Mutex<BTreeMap<Vec<String>, Running>>,
    lookout: Lookout,
}

#[derive(Debug)]
struct Running {
    containers: Vec<Container>,
    card: Arc<Card>,
    thread: Option<JoinHandle<()>>,
}

impl Arbiter {
    /// Nobody to arbitrate yet.
    pub fn new(settings: Settings) -> Arbiter {
        Arbiter { settings, accounts: Accounts::default(), running: Mutex::default(), lookout: Lookout::start() }
    }

    /// What was booked, for whoever wants to read it.
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// These are all the containers there are. Those that were there before go on undisturbed.
    pub fn set_containers(&self, containers: &[Container]) {
        let groups = groups::of(containers.iter().filter_map(|c| match tenant::devices(&c.dir) {
            Ok(devices) => Some((c.clone(), devices)),
            Err(error) => {
                tracing::error!(container = %c.name, %error, "its pages cannot be used; it is not arbitrated");
                None
            }
        }));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *running);
        for group in groups {
            let kept = before.remove(&group.devices);
            let group_running = match kept {
                Some(kept) if kept.containers == group.members => kept,
                Some(kept) => {
                    kept.card.set_containers(group.members.clone());
                    Running { containers: group.members, ..kept }
                }
                None => self.start(&group.devices, group.members),
            };
            running.insert(group.devices, group_running);
        }
        self.lookout.set_cards(running.values().map(|r| r.card.clone()).collect());
        drop(running);
        for gone in before.into_values() {
            gone.stop();
        }
        self.accounts.retain(containers);
    }

    /// What devices say about themselves: for how long each worked in which periods.
    pub fn hear(&self, said: &BTreeMap<String, Vec<Period>>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for (devices, group) in running.iter() {
            for device in devices {
                if let Some(periods) = said.get(device) {
                    group.card.hear(device, periods);
                }
            }
        }
    }

    fn start(&self, devices: &[String], containers: Vec<Container>) -> Running {
        let (settings, accounts) = (self.settings.clone(), self.accounts.clone());
        let card = Arc::new(Card::new(devices.to_vec(), settings, accounts, containers.clone()));
        let theirs = card.clone();
        let thread = std::thread::Builder::new().name("arbiter".into()).spawn(move || theirs.arbitrate());
        if let Err(error) = &thread {
            tracing::error!(%error, "no thread to arbitrate with; gates stay as they are");
        }
        Running { containers, card, thread: thread.ok() }
    }
}

impl Running {
    fn stop(mut self) {
        self.card.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let running = std::mem::take(self.running.get_mut().unwrap_or_else(PoisonError::into_inner));
        for group in running.into_values() {
            group.stop();
        }
    }
}

#[cfg(test)]
mod tests;

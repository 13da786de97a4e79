//! The file that is the machine: opened or made, mapped, and shared by all its processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use crate::spec::{Card, Instance, Spec};
use crate::sys;

mod faults;
mod layout;
mod slot;
#[cfg(test)]
mod tests;
mod turn;
mod usage;

pub use faults::{Fault, Inject, Xid};
pub use layout::{Account, BUCKET, BUCKETS, Setting};
pub use slot::{Seat, Tenant};
pub use turn::Turn;

use layout::{CONFIG_BYTES, LAYOUT, Layout, MAGIC, UNITS_PER_CARD};

/// Where the machine's directory is, if not the default.
pub const STATE_VARIABLE: &str = "FAKE_GPU_STATE";
/// What the machine looks like: a spec, or the path of a file with one.
pub const CONFIG_VARIABLE: &str = "FAKE_GPU_CONFIG";
/// The machine of those who say nothing.
pub const DEFAULT_SPEC: &str = "1xH200";

/// What can run one process's work at a time: a whole card, or one MIG instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit(usize);

impl Unit {
    /// A card as a whole.
    #[must_use]
    pub const fn card(index: usize) -> Self {
        Self(index * UNITS_PER_CARD)
    }

    /// One of a card's MIG instances.
    #[must_use]
    pub const fn instance(card: usize, instance: usize) -> Self {
        Self(card * UNITS_PER_CARD + 1 + instance)
    }

    /// The card it is or is part of.
    #[must_use]
    pub const fn card_index(self) -> usize {
        self.0 / UNITS_PER_CARD
    }

    /// Which MIG instance of the card, if it is one.
    #[must_use]
    pub const fn instance_index(self) -> Option<usize> {
        (self.0 % UNITS_PER_CARD).checked_sub(1)
    }
}

/// The machine as one process sees it.
#[derive(Debug)]
pub struct Machine {
    /// What it looks like.
    pub spec: Spec,
    /// Its directory.
    pub dir: PathBuf,
    layout: &'static Layout,
    /// Never closed: closing any descriptor of a file drops every record lock this process has on it.
    file: &'static File,
}

/// Why there is no machine.
#[derive(Debug)]
pub enum NoMachine {
    /// The directory or its file cannot be used.
    Io(PathBuf, io::Error),
    /// The spec is wrong.
    Spec(String, crate::spec::Mistakes),
    /// The machine exists and looks otherwise.
    Other {
        /// Its directory.
        dir: PathBuf,
        /// What was asked for.
        asked: String,
        /// What it is.
        is: String,
    },
    /// The file is of another version of this program.
    Version(PathBuf),
}

impl std::fmt::Display for NoMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, e) => write!(f, "cannot use {}: {e}", path.display()),
            Self::Spec(from, mistakes) => write!(f, "{from}: {mistakes}"),
            Self::Other { dir, asked, is } => write!(
                f,
                "{CONFIG_VARIABLE} asks for \"{asked}\", but the machine in {} is \"{is}\": unset it, or remove the directory",
                dir.display()
            ),
            Self::Version(path) => {
                write!(f, "{} was made by another version of the fake driver: remove it", path.display())
            }
        }
    }
}

impl std::error::Error for NoMachine {}

impl Machine {
    /// The machine the environment names; made if it does not exist.
    pub fn from_env() -> Result<Self, NoMachine> {
        let asked = std::env::var(CONFIG_VARIABLE).ok().filter(|s| !s.trim().is_empty());
        Self::open(&state_dir(), asked.as_deref())
    }

    /// The machine in a directory. `asked` is a spec or the path of a file with one; `None` takes the machine as it is.
    pub fn open(dir: &Path, asked: Option<&str>) -> Result<Self, NoMachine> {
        let at = |e| NoMachine::Io(dir.to_owned(), e);
        let text = match asked {
            Some(path) if path.contains('/') && !path.contains('=') => {
                Some(std::fs::read_to_string(path).map_err(|e| NoMachine::Io(path.into(), e))?)
            }
            other => other.map(str::to_owned),
        };
        if std::fs::create_dir_all(dir).is_ok() {
            // Processes of several users share a machine; whoever owns the directory opens it to them.
            let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777));
        }
        let path = dir.join("machine");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .open(&path)
            .map_err(at)?;
        let _ = file.set_permissions(std::fs::Permissions::from_mode(0o666));
        let file: &'static File = Box::leak(Box::new(file));
        sys::lock(file, layout::SETUP_BYTE);
        let outcome = Self::settle(dir, file, text.as_deref());
        sys::unlock(file, layout::SETUP_BYTE);
        outcome
    }

    /// Makes the file if it is new, and checks it against what was asked. Called with the setup lock held.
    fn settle(dir: &Path, file: &'static File, asked: Option<&str>) -> Result<Self, NoMachine> {
        let at = |e| NoMachine::Io(dir.to_owned(), e);
        let size = size_of::<Layout>();
        let found = file.metadata().map_err(at)?.len();
        if found != 0 && found != size as u64 {
            return Err(NoMachine::Version(dir.join("machine")));
        }
        let parse = |text: &str, from: &str| Spec::parse(text).map_err(|m| NoMachine::Spec(from.to_owned(), m));
        if let Some(text) = asked {
            parse(text, CONFIG_VARIABLE)?;
        }
        file.set_len(size as u64).map_err(at)?;
        let base = sys::map_shared(file, size).map_err(at)?;
        // SAFETY: the mapping is as large as a Layout, page-aligned, zero or written by us, and never unmapped; a Layout is made of atomics alone.
        let layout: &'static Layout = unsafe { &*base.cast::<Layout>() };
        match layout.magic.load(SeqCst) {
            0 => {
                let text = asked.unwrap_or(DEFAULT_SPEC).trim();
                if text.len() > CONFIG_BYTES {
                    return Err(at(io::Error::other("the spec is too long")));
                }
                layout.write_config(text);
                layout.version.store(LAYOUT, SeqCst);
                layout.magic.store(MAGIC, SeqCst);
            }
            MAGIC if layout.version.load(SeqCst) == LAYOUT => {}
            _ => return Err(NoMachine::Version(dir.join("machine"))),
        }
        let text = layout.read_config();
        let spec = parse(&text, "the machine")?;
        match asked {
            Some(asked) if parse(asked, CONFIG_VARIABLE)? != spec => {
                Err(NoMachine::Other { dir: dir.to_owned(), asked: asked.trim().to_owned(), is: text })
            }
            _ => Ok(Self { spec, dir: dir.to_owned(), layout, file }),
        }
    }

    /// The card of a unit.
    #[must_use]
    pub fn card(&self, unit: Unit) -> &Card {
        &self.spec.cards[unit.card_index()]
    }

    /// The MIG instance of a unit, if it is one.
    #[must_use]
    pub fn instance(&self, unit: Unit) -> Option<&Instance> {
        self.card(unit).mig.as_ref()?.get(unit.instance_index()?)
    }

    /// All units that can run work: cards without MIG, and the instances of the others.
    #[must_use]
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for (index, card) in self.spec.cards.iter().enumerate() {
            match &card.mig {
                None => units.push(Unit::card(index)),
                Some(instances) => units.extend((0..instances.len()).map(|i| Unit::instance(index, i))),
            }
        }
        units
    }

    /// The cards this process can reach. On the host that is all of them; a container has a node for each card it was given, and
    /// the folder of nodes is what tells that this is one. A card in MIG mode is reached through the node of any of its instances.
    #[must_use]
    pub fn reachable(&self) -> Vec<usize> {
        let all = 0..self.spec.cards.len();
        if !Path::new(NODES).is_dir() {
            return all.collect();
        }
        let has_node = |uuid: &str| Path::new(NODES).join(uuid).exists();
        let instances = |card: &Card| card.mig.iter().flatten().any(|i| has_node(&i.uuid));
        all.filter(|&c| has_node(&self.spec.cards[c].uuid) || instances(&self.spec.cards[c])).collect()
    }

    /// Can this process reach a unit?
    #[must_use]
    pub fn is_reachable(&self, unit: Unit) -> bool {
        match self.instance(unit) {
            Some(instance) if Path::new(NODES).is_dir() => Path::new(NODES).join(&instance.uuid).exists(),
            _ => self.reachable().contains(&unit.card_index()),
        }
    }

    /// Multiprocessors of a unit.
    #[must_use]
    pub fn sms(&self, unit: Unit) -> u32 {
        self.instance(unit).map_or(self.card(unit).sms, |i| i.profile.sms)
    }

    /// Memory of a unit as NVML counts it.
    #[must_use]
    pub fn memory(&self, unit: Unit) -> u64 {
        self.instance(unit).map_or(self.card(unit).memory, |i| i.profile.memory << 20)
    }

    /// What the driver keeps of a unit's memory for itself.
    #[must_use]
    pub fn reserved(&self, unit: Unit) -> u64 {
        if self.instance(unit).is_some() { 16 << 20 } else { self.card(unit).model.reserved << 20 }
    }

    /// What processes can have of a unit's memory, all together.
    #[must_use]
    pub fn usable(&self, unit: Unit) -> u64 {
        self.memory(unit).saturating_sub(self.reserved(unit))
    }
}

/// Where a container has a node, named by its UUID, for each card it was given.
pub const NODES: &str = "/dev/fake-gpu";

/// The directory the environment names, or `/run/fake-gpu` where that exists, or one in `/tmp` for this user.
#[must_use]
pub fn state_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(STATE_VARIABLE).filter(|d| !d.is_empty()) {
        return dir.into();
    }
    let shared = Path::new("/run/fake-gpu");
    if shared.is_dir() {
        return shared.to_owned();
    }
    // SAFETY: asks for a number.
    PathBuf::from(format!("/tmp/fake-gpu-{}", unsafe { libc::geteuid() }))
}

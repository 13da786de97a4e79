//! A container's pages as the arbiter uses them.

use std::io;
use std::path::{Path, PathBuf};

use divvy_limiter::{Seen, Shares};
use divvy_shm::gate::{Booked, ChunkHint, Controller};
use divvy_shm::map::Guarded;
use divvy_shm::{ContainerConfig, DeviceConfig, GateReader, GateWriter, Ledger, LedgerFile};

use super::Container;
use crate::home::ledger_of;

/// The identities of the devices a container holds.
pub(super) fn devices(dir: &Path) -> io::Result<Vec<String>> {
    let (_, config) = GateReader::open(dir)?.config();
    Ok(config.devices.into_iter().map(|d| d.id).collect())
}

/// A container and its open pages.
pub(super) struct Tenant {
    pub(super) name: String,
    dir: PathBuf,
    pub(super) gate: GateWriter,
    /// None where the container damaged it before it was opened.
    ledger: Option<Guarded<Ledger>>,
    generation: u64,
    pub(super) config: ContainerConfig,
    is_init: bool,
    /// What had been booked when these pages were opened: books go on where they stopped.
    base: Vec<Booked>,
    hints: Vec<ChunkHint>,
}

impl Tenant {
    /// Fails where the gate, which is the agent's own, cannot be used. The ledger is the container's to damage, and nobody goes
    /// unwatched by damaging it.
    pub(super) fn open(container: &Container) -> io::Result<Tenant> {
        let gate = GateWriter::open(&container.dir)?;
        let ledger = LedgerFile::open_guarded(&ledger_of(&container.dir))
            .inspect_err(|error| tracing::warn!(container = %container.name, %error, "its ledger is damaged"))
            .ok();
        let (generation, config) = gate.config();
        gate.take_control(Controller::Arbiter);
        let of_device = |d| gate.gate(d).map(|g| (g.booked(), g.hint())).unwrap_or_default();
        let (base, hints) = (0..config.devices.len()).map(of_device).unzip();
        Ok(Tenant {
            name: container.name.clone(),
            dir: container.dir.clone(),
            gate,
            ledger,
            generation,
            config,
            is_init: container.is_init,
            base,
            hints,
        })
    }

    /// A damaged page may have been replaced since, with the container's next start.
    pub(super) fn mend(&mut self) {
        if self.gate.is_broken()
            && let Ok(gate) = GateWriter::open(&self.dir)
        {
            gate.take_control(Controller::Arbiter);
            (self.gate, self.generation) = (gate, 0);
        }
        if self.ledger.as_ref().is_none_or(Guarded::is_broken)
            && let Ok(ledger) = LedgerFile::open_guarded(&ledger_of(&self.dir))
        {
            self.ledger = Some(ledger);
        }
    }

    /// Whether the grant was changed since it was last looked at; brings it up to date.
    pub(super) fn changed(&mut self) -> bool {
        let generation = self.gate.generation();
        // A damaged page says nothing: what was granted stands.
        if generation == self.generation || self.gate.is_broken() {
            return false;
        }
        (self.generation, self.config) = self.gate.config();
        self.base.resize(self.config.devices.len(), Booked::default());
        self.hints.resize(self.config.devices.len(), ChunkHint::default());
        true
    }

    /// What it may use of its cards. A gang's cards are held together, so the smallest of its limits and the largest of its requests
    /// count for all.
    pub(super) fn shares(&self) -> Shares {
        let gated: Vec<_> = self.gated().collect();
        let limit = gated.iter().map(|d| d.share_limit).min().unwrap_or(1000).min(1000);
        let request = gated.iter().map(|d| d.share_request).max().unwrap_or(1000).min(limit);
        Shares { request, limit }
    }

    /// What it was promised of each card.
    pub(super) fn promised(&self) -> impl Iterator<Item = (&str, u32)> {
        self.gated().map(|d| (d.id.as_str(), d.share_request))
    }

    /// Is that promised beside what the others were? An init container that is done keeps its pages as long as its pod is there.
    pub(super) fn is_beside_others(&self) -> bool {
        !self.is_init
    }

    fn gated(&self) -> impl Iterator<Item = &DeviceConfig> {
        self.config.devices.iter().filter(|d| d.gated && d.enforcement.holds())
    }

    /// What it has queued on a device.
    pub(super) fn look(&self, device: usize) -> Seen {
        let backlog = self.ledger.as_ref().map(|ledger| ledger.backlog(device)).unwrap_or_default();
        Seen {
            queued: backlog.queued,
            filling: backlog.filling,
            streams: backlog.streams,
            completed: backlog.completed,
            submitted: backlog.submitted,
        }
    }

    /// Was a page of it damaged?
    pub(super) fn is_broken(&self) -> bool {
        self.gate.is_broken() || self.ledger.as_ref().is_none_or(Guarded::is_broken)
    }

    /// Memory in use on a device.
    pub(super) fn memory(&self, device: usize) -> u64 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.used(device))
    }

    /// Allocations refused on a device.
    pub(super) fn refused(&self, device: usize) -> u64 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.refused(device))
    }

    /// Opens or closes a gate. A card sees it by itself; threads in the gate on the CPU have to be woken.
    pub(super) fn set_gate(&self, device: usize, open: bool) {
        if self.gate.set_gate(device, open) && open {
            self.gate.wake(device);
        }
    }

    /// Publishes the size of chunks. What a unit costs trembles with every measurement, and each time it is told costs the library a
    /// line of its cache.
    pub(super) fn set_hint(&mut self, device: usize, hint: ChunkHint) {
        let says_so = |h: &ChunkHint| h.units == hint.units && h.cost_ns.abs_diff(hint.cost_ns) <= hint.cost_ns / 8;
        if self.hints.get(device).is_some_and(|h| !says_so(h)) {
            self.hints[device] = hint;
            self.gate.set_hint(device, hint);
        }
    }

    /// What was booked since the pages were opened, on top of what had been before.
    pub(super) fn booked(&self, device: usize, since: Booked) -> Booked {
        let base = self.base.get(device).copied().unwrap_or_default();
        Booked {
            busy_ns: base.busy_ns.saturating_add(since.busy_ns),
            throttled_ns: base.throttled_ns.saturating_add(since.throttled_ns),
            turns: base.turns.saturating_add(since.turns),
            utilisation: since.utilisation,
        }
    }

    /// Publishes what was booked.
    pub(super) fn book(&self, device: usize, booked: Booked) {
        self.gate.set_booked(device, booked);
    }

    /// Lets everything pass.
    pub(super) fn open_all(&self) {
        for device in 0..self.config.devices.len() {
            self.gate.set_gate(device, true);
            self.gate.wake(device);
        }
    }
}

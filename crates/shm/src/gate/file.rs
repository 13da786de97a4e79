//! The gate as a file: written by the agent, read by the library.

use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use std::io;
use std::path::Path;

use super::{Booked, CLOSED, ChunkHint, Controller, Front, GATES_AT, GatePage, OPEN, RawConfig, SIZE};
use crate::config::ContainerConfig;
use crate::header::GATE_MAGIC;
use crate::map::{Access, Guarded, Mapped};
use crate::{clock, place};

/// The gate file for whoever only reads it, as the library does. Safe against somebody who truncates it: the page is read-only to its
/// container, but not to root with the right to mount.
#[derive(Debug)]
pub struct GateReader {
    page: Guarded<GatePage>,
}

impl GateReader {
    /// Maps the gate file of `dir`, read-only.
    pub fn open(dir: &Path) -> io::Result<GateReader> {
        GateReader::mapped(dir, Access::Read)
    }

    /// Maps it writable: only for cards that refuse read-only registration, and only where the agent mounted it so.
    pub fn open_writable(dir: &Path) -> io::Result<GateReader> {
        GateReader::mapped(dir, Access::Write)
    }

    fn mapped(dir: &Path, access: Access) -> io::Result<GateReader> {
        let page = Guarded::over(Mapped::<GatePage>::open(&dir.join(place::GATE), access)?)?;
        check(&page)?;
        Ok(GateReader { page })
    }

    /// Did the file go away under the mapping? It reads as zeroes then.
    pub fn is_broken(&self) -> bool {
        self.page.is_broken()
    }
}

impl core::ops::Deref for GateReader {
    type Target = GatePage;

    fn deref(&self) -> &GatePage {
        &self.page
    }
}

/// The gate file as the arbiter and the keeper see it. One writer at a time moves the configuration; gates may be moved by whoever
/// is in [control](GatePage::controller), and a stray store by the other is mended at the next step.
#[derive(Debug)]
pub struct GateWriter {
    page: Guarded<GatePage>,
}

impl core::ops::Deref for GateWriter {
    type Target = GatePage;

    fn deref(&self) -> &GatePage {
        &self.page
    }
}

impl GateWriter {
    /// Makes the gate file of `dir`, all gates open. It appears whole or not at all.
    pub fn create(dir: &Path, config: &ContainerConfig) -> io::Result<GateWriter> {
        config.check().map_err(|faults| io::Error::new(io::ErrorKind::InvalidInput, faults))?;
        let (unfinished, path) = (dir.join(".gate.new"), dir.join(place::GATE));
        let _ = std::fs::remove_file(&unfinished);
        let mode = if config.gate_writable { 0o666 } else { 0o644 };
        let touched = [0..size_of::<Front>() + 2 * size_of::<RawConfig>(), GATES_AT..GATES_AT + 4096];
        let page = Guarded::over(Mapped::<GatePage>::create(&unfinished, mode, &touched)?)?;
        let writer = GateWriter { page };
        for gate in &writer.gates {
            gate.word.open.store(OPEN, Relaxed);
        }
        writer.set_config(config)?;
        writer.front.header.seal(GATE_MAGIC, SIZE as u32, clock::monotonic_ns());
        std::fs::rename(&unfinished, &path)?;
        Ok(writer)
    }

    /// Maps the gate file of `dir`.
    pub fn open(dir: &Path) -> io::Result<GateWriter> {
        let page = Guarded::<GatePage>::open(&dir.join(place::GATE))?;
        check(&page)?;
        Ok(GateWriter { page })
    }

    /// Did the file go away under the mapping? It reads as zeroes then, and what is written reaches nobody.
    pub fn is_broken(&self) -> bool {
        self.page.is_broken()
    }

    /// Replaces the configuration, live.
    pub fn set_config(&self, config: &ContainerConfig) -> io::Result<()> {
        config.check().map_err(|faults| io::Error::new(io::ErrorKind::InvalidInput, faults))?;
        let control = &self.front.control;
        let next = control.generation.load(Acquire).wrapping_add(1);
        // A reader that still reads the copy we are about to fill began two generations ago and sees that it has to begin again.
        fence(Release);
        self.config[(next & 1) as usize].store(config);
        control.devices.store(config.devices.len() as u32, Relaxed);
        control.generation.store(next, Release);
        Ok(())
    }

    /// Opens or closes a device's gate, and says whether that was a change. Streams see it by themselves; threads that wait in the
    /// CPU gate need [`GateWriter::wake`].
    pub fn set_gate(&self, device: usize, open: bool) -> bool {
        let Some(gate) = self.gate(device) else { return false };
        let word = if open { OPEN } else { CLOSED };
        if gate.word.open.load(Relaxed) == word {
            return false;
        }
        if open {
            gate.word.turn.fetch_add(1, Relaxed);
        }
        gate.word.open.store(word, Release);
        true
    }

    /// Wakes threads that wait in the CPU gate of a device.
    pub fn wake(&self, device: usize) {
        let Some(gate) = self.gate(device) else { return };
        // SAFETY: waking looks at the address and touches nothing.
        unsafe { libc::syscall(libc::SYS_futex, gate.word.open.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Tells the library how to cut chunks on a device.
    pub fn set_hint(&self, device: usize, hint: ChunkHint) {
        let Some(gate) = self.gate(device) else { return };
        gate.hints.cost_ns.store(hint.cost_ns, Relaxed);
        gate.hints.chunk_units.store(hint.units, Relaxed);
    }

    /// Publishes what was booked on a device.
    pub fn set_booked(&self, device: usize, booked: Booked) {
        let Some(gate) = self.gate(device) else { return };
        gate.books.busy_ns.store(booked.busy_ns, Relaxed);
        gate.books.throttled_ns.store(booked.throttled_ns, Relaxed);
        gate.books.turns.store(booked.turns, Relaxed);
        gate.books.utilisation.store(booked.utilisation, Relaxed);
    }

    /// Takes control of the gates.
    pub fn take_control(&self, who: Controller) {
        self.front.control.controller.store(who as u32, Release);
    }

    /// The arbiter is alive.
    pub fn beat_arbiter(&self, now_ns: u64) {
        self.front.control.arbiter_beat.store(now_ns, Release);
    }

    /// The keeper is alive.
    pub fn beat_keeper(&self, now_ns: u64) {
        self.front.control.keeper_beat.store(now_ns, Release);
    }
}

fn check(page: &GatePage) -> io::Result<()> {
    page.check().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

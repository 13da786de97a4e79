//! The gate file: what a container was granted, and one gate word per device that the GPU waits on.
//!
//! The configuration is kept twice and a generation says which copy counts. A writer fills the other copy and then moves the
//! generation on, so a writer that dies half-way leaves the old configuration whole, and a reader never waits for anybody.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};

use crate::MAX_DEVICES;
use crate::config::{ContainerConfig, DeviceConfig, Enforcement};
use crate::header::{GATE_MAGIC, Header, HeaderFault};
use crate::shared::Shared;
use crate::text::{Fill, Text};

#[cfg(feature = "std")]
mod file;

#[cfg(feature = "std")]
pub use file::{GateReader, GateWriter};

/// The gate word's value when work may pass: what a stream waits to be equal to.
pub const OPEN: u32 = 1;
/// The gate word's value when work has to wait.
pub const CLOSED: u32 = 0;

/// Who moves the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Controller {
    /// Nobody yet.
    Nobody = 0,
    /// The arbiter, turn by turn.
    Arbiter = 1,
    /// The keeper, because the arbiter is gone: fixed turns by request.
    Keeper = 2,
}

#[repr(C, align(64))]
struct Control {
    controller: AtomicU32,
    devices: AtomicU32,
    arbiter_beat: AtomicU64,
    keeper_beat: AtomicU64,
    generation: AtomicU64,
}

#[repr(C, align(4096))]
struct Front {
    header: Header,
    control: Control,
}

#[repr(C, align(256))]
struct RawDevice {
    id: Text<12>,
    uuid: [AtomicU64; 2],
    memory_request: AtomicU64,
    memory_limit: AtomicU64,
    share_request: AtomicU32,
    share_limit: AtomicU32,
    node_index: AtomicU32,
    enforcement: AtomicU32,
    flags: AtomicU32,
    context_bytes: AtomicU64,
}

#[repr(C, align(4096))]
struct RawConfig {
    name: Text<24>,
    devices: AtomicU32,
    flags: AtomicU32,
    reserved: [AtomicU64; 7],
    device: [RawDevice; MAX_DEVICES],
}

const GATE_WRITABLE: u32 = 1;
const GATED: u32 = 1;
const WHOLE_CARD: u32 = 2;

/// A device's gate word, and how often it was opened, alone on their line: the GPU polls it.
#[repr(C, align(64))]
struct Word {
    open: AtomicU32,
    turn: AtomicU32,
}

/// How to cut work into chunks; changes rarely.
#[repr(C, align(64))]
struct Hints {
    chunk_units: AtomicU32,
    cost_ns: AtomicU32,
}

/// What the arbiter booked.
#[repr(C, align(128))]
struct Books {
    busy_ns: AtomicU64,
    throttled_ns: AtomicU64,
    turns: AtomicU64,
    utilisation: AtomicU32,
}

/// What one device's gate looks like in memory.
#[repr(C, align(256))]
pub struct Gate {
    word: Word,
    hints: Hints,
    books: Books,
}

/// The file. Gates begin 64 KiB into it and have 64 KiB to themselves: whole pages on every machine, to be registered with the driver.
#[repr(C)]
pub struct GatePage {
    front: Front,
    config: [RawConfig; 2],
    fill: Fill<{ GATES_AT - size_of::<Front>() - 2 * size_of::<RawConfig>() }>,
    gates: [Gate; MAX_DEVICES],
    rest: Fill<{ SIZE - GATES_AT - MAX_DEVICES * size_of::<Gate>() }>,
}

// SAFETY: integers in atomics throughout.
unsafe impl Shared for GatePage {}

const SIZE: usize = 128 << 10;
const GATES_AT: usize = 64 << 10;
const _: () = assert!(size_of::<GatePage>() == SIZE && core::mem::offset_of!(GatePage, gates) == GATES_AT);
// What mmap promises on every machine.
const _: () = assert!(align_of::<GatePage>() == 4096);
const _: () = assert!(size_of::<RawDevice>() == 256 && size_of::<Gate>() == 256 && size_of::<Front>() == 4096);
const _: () = assert!(core::mem::offset_of!(RawConfig, device) == 256 && size_of::<RawConfig>() == 8192);
const _: () = assert!(core::mem::offset_of!(Gate, hints) == 64 && core::mem::offset_of!(Gate, books) == 128);

/// What the arbiter tells the library about the size of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHint {
    /// Units of work (kernel launches, mostly) per chunk; 0 while unknown, and the library feels its way.
    pub units: u32,
    /// What a unit costs on average, in nanoseconds of GPU time; 0 while unknown.
    pub cost_ns: u32,
}

/// Time as the arbiter booked it for one container on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booked {
    /// GPU time charged, since the file was made.
    pub busy_ns: u64,
    /// Time with work waiting behind a closed gate.
    pub throttled_ns: u64,
    /// Turns given.
    pub turns: u64,
    /// Thousandths of the device's time over the last second.
    pub utilisation: u32,
}

impl Gate {
    /// May work pass now?
    #[inline]
    pub fn is_open(&self) -> bool {
        self.word.open.load(Acquire) == OPEN
    }

    /// How often the gate was opened; wraps round. A chunk that was begun in an earlier turn has passed since.
    #[inline]
    pub fn turn(&self) -> u32 {
        self.word.turn.load(Relaxed)
    }

    /// The gate word itself, to be waited on by streams and futexes.
    pub fn word(&self) -> &AtomicU32 {
        &self.word.open
    }

    /// Units per chunk; 0 while unknown. The one load of the launch path.
    #[inline]
    pub fn chunk_units(&self) -> u32 {
        self.hints.chunk_units.load(Relaxed)
    }

    /// The hint.
    pub fn hint(&self) -> ChunkHint {
        ChunkHint { units: self.hints.chunk_units.load(Relaxed), cost_ns: self.hints.cost_ns.load(Relaxed) }
    }

    /// What was booked.
    pub fn booked(&self) -> Booked {
        Booked {
            busy_ns: self.books.busy_ns.load(Relaxed),
            throttled_ns: self.books.throttled_ns.load(Relaxed),
            turns: self.books.turns.load(Relaxed),
            utilisation: self.books.utilisation.load(Relaxed),
        }
    }
}

impl GatePage {
    /// Grows with each change of the configuration: a cheap look says whether to read it again.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.front.control.generation.load(Acquire)
    }

    /// The configuration and its generation.
    pub fn config(&self) -> (u64, ContainerConfig) {
        loop {
            let generation = self.generation();
            let config = self.config[(generation & 1) as usize].load();
            fence(Acquire);
            // A writer fills this copy only after it has moved the generation on.
            if self.generation() == generation {
                return (generation, config);
            }
        }
    }

    /// How many devices the container has.
    pub fn devices(&self) -> usize {
        (self.front.control.devices.load(Acquire) as usize).min(MAX_DEVICES)
    }

    /// What holds on a device now, without the texts: cheap enough for every allocation.
    pub fn limits(&self, device: usize) -> Option<Limits> {
        loop {
            let generation = self.generation();
            let limits = self.config[(generation & 1) as usize].device.get(device)?.limits();
            fence(Acquire);
            if self.generation() == generation {
                return Some(limits);
            }
        }
    }

    /// The gate of a device, by its place in the container.
    pub fn gate(&self, device: usize) -> Option<&Gate> {
        self.gates.get(device)
    }

    /// Address and length of the pages that hold the gate words, to be registered with the driver: whole pages on any machine.
    pub fn gates_area(&self) -> (*const u8, usize) {
        (core::ptr::from_ref(&self.gates).cast(), SIZE - GATES_AT)
    }

    /// A gate word's offset in [`GatePage::gates_area`].
    pub fn word_offset(device: usize) -> usize {
        device * size_of::<Gate>()
    }

    /// Is this a gate file whose layout we know? The whole of it must be mapped.
    pub fn check(&self) -> Result<(), HeaderFault> {
        self.front.header.check(GATE_MAGIC, SIZE as u64)
    }

    /// Who moves the gates.
    pub fn controller(&self) -> Controller {
        match self.front.control.controller.load(Acquire) {
            1 => Controller::Arbiter,
            2 => Controller::Keeper,
            _ => Controller::Nobody,
        }
    }

    /// When the arbiter was last seen alive, on the [clock].
    pub fn arbiter_beat(&self) -> u64 {
        self.front.control.arbiter_beat.load(Acquire)
    }

    /// When the keeper was last seen alive.
    pub fn keeper_beat(&self) -> u64 {
        self.front.control.keeper_beat.load(Acquire)
    }
}

impl RawConfig {
    fn load(&self) -> ContainerConfig {
        let count = (self.devices.load(Relaxed) as usize).min(MAX_DEVICES);
        ContainerConfig {
            name: self.name.load(),
            gate_writable: self.flags.load(Relaxed) & GATE_WRITABLE != 0,
            devices: self.device[..count].iter().map(RawDevice::load).collect(),
        }
    }

    #[cfg(feature = "std")]
    fn store(&self, config: &ContainerConfig) {
        self.name.store(&config.name);
        self.flags.store(if config.gate_writable { GATE_WRITABLE } else { 0 }, Relaxed);
        self.devices.store(config.devices.len() as u32, Relaxed);
        for (raw, device) in self.device.iter().zip(&config.devices) {
            raw.store(device);
        }
    }
}

/// What holds on a device, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The identity as the driver's `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// Memory that may be used, in bytes; the whole card's if it is the container's alone.
    pub memory: u64,
    /// What a context is booked with until the agent has seen how much it takes.
    pub context_bytes: u64,
    /// Launches pass a gate.
    pub gated: bool,
    /// The container has the card to itself.
    pub whole_card: bool,
    /// What happens at a limit.
    pub enforcement: Enforcement,
}

impl RawDevice {
    fn limits(&self) -> Limits {
        let flags = self.flags.load(Relaxed);
        let whole_card = flags & WHOLE_CARD != 0;
        Limits {
            uuid: self.uuid(),
            memory: if whole_card { u64::MAX } else { self.memory_limit.load(Relaxed) },
            context_bytes: self.context_bytes.load(Relaxed),
            gated: flags & GATED != 0,
            whole_card,
            enforcement: Enforcement::from_raw(self.enforcement.load(Relaxed)),
        }
    }

    fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        for (half, word) in uuid.chunks_mut(8).zip(&self.uuid) {
            half.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        uuid
    }

    fn load(&self) -> DeviceConfig {
        let flags = self.flags.load(Relaxed);
        DeviceConfig {
            id: self.id.load(),
            uuid: self.uuid(),
            node_index: self.node_index.load(Relaxed),
            memory_request: self.memory_request.load(Relaxed),
            memory_limit: self.memory_limit.load(Relaxed),
            share_request: self.share_request.load(Relaxed),
            share_limit: self.share_limit.load(Relaxed),
            gated: flags & GATED != 0,
            whole_card: flags & WHOLE_CARD != 0,
            enforcement: Enforcement::from_raw(self.enforcement.load(Relaxed)),
            context_bytes: self.context_bytes.load(Relaxed),
        }
    }

    #[cfg(feature = "std")]
    fn store(&self, device: &DeviceConfig) {
        self.id.store(&device.id);
        for (half, word) in device.uuid.chunks(8).zip(&self.uuid) {
            let mut raw = [0; 8];
            raw.copy_from_slice(half);
            word.store(u64::from_le_bytes(raw), Relaxed);
        }
        self.node_index.store(device.node_index, Relaxed);
        self.memory_request.store(device.memory_request, Relaxed);
        self.memory_limit.store(device.memory_limit, Relaxed);
        self.share_request.store(device.share_request, Relaxed);
        self.share_limit.store(device.share_limit, Relaxed);
        self.enforcement.store(device.enforcement as u32, Relaxed);
        let flags = if device.gated { GATED } else { 0 } | if device.whole_card { WHOLE_CARD } else { 0 };
        self.flags.store(flags, Relaxed);
        self.context_bytes.store(device.context_bytes, Relaxed);
    }
}

impl core::fmt::Debug for GatePage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GatePage").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

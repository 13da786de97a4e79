//! How the machine's file is laid out. Atomics only: any process may be killed or stopped between any two of them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

use crate::spec::{MAX_CARDS, MAX_INSTANCES};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"fake-gpu");
pub(super) const LAYOUT: u32 = 1;
pub(super) const CONFIG_BYTES: usize = 16 << 10;
pub(super) const UNITS_PER_CARD: usize = 1 + MAX_INSTANCES;
pub(super) const UNITS: usize = MAX_CARDS * UNITS_PER_CARD;
pub(super) const SLOTS: usize = 512;
pub(super) const INJECTIONS: usize = 32;
pub(super) const XIDS: usize = 64;

/// The byte whose lock guards the making of the file; the bytes after it guard the slots.
pub(super) const SETUP_BYTE: u64 = 0;
pub(super) const FIRST_SLOT_BYTE: u64 = 1;

/// Busy time is kept in buckets of this many nanoseconds, NVML's sampling period on the card.
pub const BUCKET: u64 = 200_000_000;
/// As many buckets are kept.
pub const BUCKETS: usize = 32;

#[repr(C)]
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    config_bytes: AtomicU32,
    config: [AtomicU8; CONFIG_BYTES],
    /// One more than the highest slot ever taken: nobody looks beyond.
    pub(super) slots_used: AtomicU32,
    /// How many injections are set: one load tells a call that there are none.
    pub(super) injections: AtomicU32,
    pub(super) injection: [InjectionCell; INJECTIONS],
    pub(super) cards: [CardCell; MAX_CARDS],
    pub(super) units: [UnitCell; UNITS],
    pub(super) slots: [SlotCell; SLOTS],
}

impl Layout {
    pub(super) fn write_config(&self, text: &str) {
        self.config.iter().zip(text.bytes()).for_each(|(place, byte)| place.store(byte, Relaxed));
        self.config_bytes.store(u32::try_from(text.len()).unwrap_or(0), SeqCst);
    }

    pub(super) fn read_config(&self) -> String {
        let length = self.config_bytes.load(SeqCst) as usize;
        let bytes: Vec<u8> = self.config.iter().take(length).map(|b| b.load(Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A text of fixed room.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Text<const N: usize>([AtomicU8; N]);

impl<const N: usize> Text<N> {
    pub(super) fn write(&self, text: &str) {
        let bytes = text.bytes().take(N - 1).chain(std::iter::repeat(0));
        self.0.iter().zip(bytes).for_each(|(place, byte)| place.store(byte, Relaxed));
    }

    pub(super) fn read(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().map(|b| b.load(Relaxed)).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct InjectionCell {
    /// 0 free, 1 set.
    pub(super) set: AtomicU32,
    /// What the call answers; 0 means that it goes on (after the delay).
    pub(super) answer: AtomicU32,
    /// The call that is hit, counted from the setting: 1 is the next one.
    pub(super) from: AtomicU64,
    /// How many calls are hit from there on.
    pub(super) times: AtomicU64,
    /// Nanoseconds before the call goes on.
    pub(super) delay: AtomicU64,
    /// Only this process, as its own namespace counts it; 0 means all.
    pub(super) pid: AtomicU32,
    pub(super) calls: AtomicU64,
    pub(super) symbol: Text<64>,
}

/// What NVML remembers of a card when somebody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Setting {
    /// Persistence mode.
    Persistence,
    /// Compute mode.
    ComputeMode,
    /// Power limit, milliwatts.
    PowerLimit,
    /// ECC mode after the next reset.
    PendingEcc,
    /// Accounting mode.
    Accounting,
    /// Locked clocks, MHz, lowest in the upper half.
    LockedClocks,
    /// Locked memory clocks, MHz, lowest in the upper half.
    LockedMemoryClocks,
    /// Application clocks, MHz: memory in the upper half, graphics in the lower.
    ApplicationClocks,
    /// MIG mode after the next reset.
    PendingMig,
    /// Temperature, degrees.
    Temperature,
    /// Uncorrected ECC errors since boot.
    EccUncorrected,
    /// Corrected ECC errors since boot.
    EccCorrected,
    /// Fan speed, percent.
    Fan,
    /// Auto boost.
    AutoBoost,
    /// Virtualization mode.
    Virtualization,
    /// GPU operation mode.
    OperationMode,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct CardCell {
    /// 1 when it fell off the bus.
    pub(super) lost: AtomicU32,
    _pad: AtomicU32,
    pub(super) xid_count: AtomicU64,
    pub(super) xid: [XidCell; XIDS],
    /// Value + 1, or 0 for "never set".
    pub(super) settings: [AtomicU64; 32],
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct XidCell {
    pub(super) code: AtomicU64,
    pub(super) at: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct UnitCell {
    /// Whose turn it is and since when, or since when it is nobody's. See `turn.rs`.
    pub(super) turn: AtomicU64,
    /// One bit per slot that waits for a turn.
    pub(super) waiting: [AtomicU64; SLOTS / 64],
    /// Nanoseconds anybody was busy here, ever.
    pub(super) busy: AtomicU64,
    pub(super) buckets: [BucketCell; BUCKETS],
    /// Turns handed from one process to another.
    pub(super) switches: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct BucketCell {
    pub(super) number: AtomicU64,
    pub(super) busy: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct SlotCell {
    /// 0 free, 1 taken (if the lock says so too).
    pub(super) taken: AtomicU32,
    /// The word the process's threads sleep on.
    pub(super) bell: AtomicU32,
    /// Pid in the owner's own namespace.
    pub(super) pid: AtomicU32,
    /// Pid as seen from a namespace above, once somebody there looked.
    pub(super) host_pid: AtomicU32,
    /// Random bytes of the program image, so that two libraries in one process know that they are.
    pub(super) token: AtomicU64,
    pub(super) namespace: AtomicU64,
    /// When the slot was taken, wall clock.
    pub(super) since: AtomicU64,
    pub(super) name: Text<256>,
    pub(super) accounts: [Account; UNITS],
}

/// What one process has and did on one unit. Written by that process alone, except where said.
#[repr(C)]
#[derive(Debug)]
pub struct Account {
    /// Bytes held.
    pub(super) used: AtomicU64,
    /// Bytes being asked for: they count against others, but are not yet held.
    pub(super) pending: AtomicU64,
    /// The most bytes held at once.
    pub(super) peak: AtomicU64,
    /// Contexts on the unit.
    pub contexts: AtomicI64,
    /// Nanoseconds busy.
    pub(super) busy: AtomicU64,
    /// Kernels finished.
    pub kernels: AtomicU64,
    /// Since when it waits for a turn.
    pub(super) waits_since: AtomicU64,
    /// When somebody took the turn away; written by the taker.
    pub(super) lost_turn_at: AtomicU64,
    pub(super) buckets: [BucketCell; BUCKETS],
}

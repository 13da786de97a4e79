//! The first 64 bytes of each file. Their meaning is frozen: whatever else changes, any version can read these.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// The layout this code writes. A reader accepts every layout up to its own.
pub const LAYOUT: u32 = 1;
/// `DIVVYGAT`, little endian: a gate file.
pub const GATE_MAGIC: u64 = u64::from_le_bytes(*b"DIVVYGAT");
/// `DIVVYLED`, little endian: a ledger file.
pub const LEDGER_MAGIC: u64 = u64::from_le_bytes(*b"DIVVYLED");

/// Frozen.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    layout: AtomicU32,
    size: AtomicU32,
    created_ns: AtomicU64,
    reserved: [AtomicU64; 5],
}

/// Why a file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// Shorter than its layout says, or than any layout we know.
    TooShort {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// Not one of our files, or not finished.
    NotOurs,
    /// Written by a newer version, with a layout this one does not know.
    TooNew {
        /// Its layout.
        layout: u32,
    },
}

impl core::fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeaderFault::TooShort { found, expected } => write!(f, "has {found} bytes where {expected} are due"),
            HeaderFault::NotOurs => write!(f, "does not begin like a page of Divvy's"),
            HeaderFault::TooNew { layout } => write!(f, "has layout {layout}, newer than this version's {LAYOUT}"),
        }
    }
}

impl core::error::Error for HeaderFault {}

impl Header {
    /// Makes the file valid; everything else in it must be in place.
    #[cfg(feature = "std")]
    pub(crate) fn seal(&self, magic: u64, size: u32, now_ns: u64) {
        self.layout.store(LAYOUT, Relaxed);
        self.size.store(size, Relaxed);
        self.created_ns.store(now_ns, Relaxed);
        self.magic.store(magic, core::sync::atomic::Ordering::Release);
    }

    /// Is this a file of kind `magic` that we can read, given that `mapped` bytes of it are mapped?
    pub fn check(&self, magic: u64, mapped: u64) -> Result<(), HeaderFault> {
        if self.magic.load(Acquire) != magic {
            return Err(HeaderFault::NotOurs);
        }
        match self.layout.load(Relaxed) {
            0 => return Err(HeaderFault::NotOurs),
            layout if layout > LAYOUT => return Err(HeaderFault::TooNew { layout }),
            _ => {}
        }
        let expected = u64::from(self.size.load(Relaxed));
        if mapped < expected {
            return Err(HeaderFault::TooShort { found: mapped, expected });
        }
        Ok(())
    }

    /// When the file was made, on the [clock](crate::clock).
    pub fn created_ns(&self) -> u64 {
        self.created_ns.load(Relaxed)
    }
}

const _: () = assert!(size_of::<Header>() == 64);

//! The bytes behind device addresses, and copies between any two places.

use std::collections::HashSet;

use super::{GRAIN, Kind, Memory};
use crate::abi::Error;

/// Which grains have been written, up to a budget.
pub(crate) struct Backing {
    written: HashSet<u64>,
    budget: usize,
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) address: u64,
    /// Whether bytes are there only if we put them there (device memory), or in any case (host, managed, mapped).
    zero_until_written: bool,
    /// Whether what is written counts against the budget.
    counted: bool,
}

impl Place {
    /// The same place, some bytes on.
    pub(crate) fn plus(self, bytes: u64) -> Self {
        Self { address: self.address + bytes, ..self }
    }
}

impl Backing {
    pub(crate) fn new(budget: u64) -> Self {
        Self { written: HashSet::new(), budget: (budget / GRAIN).max(1) as usize }
    }

    pub(super) fn is_written(&self, address: u64) -> bool {
        self.written.contains(&(address / GRAIN))
    }

    /// Makes room for bytes at an address; false when the budget is spent.
    fn admit(&mut self, address: u64) -> bool {
        let grain = address / GRAIN;
        self.written.contains(&grain) || (self.written.len() < self.budget && self.written.insert(grain))
    }

    /// The bytes of whole grains are no longer needed.
    pub(crate) fn forget(&mut self, base: u64, size: u64) {
        if self.written.is_empty() {
            return;
        }
        for grain in base / GRAIN..(base + size) / GRAIN {
            if self.written.remove(&grain) {
                // SAFETY: a grain of our own reservation that nothing is allocated in any more.
                unsafe { libc::madvise((grain * GRAIN) as *mut libc::c_void, GRAIN as usize, libc::MADV_DONTNEED) };
            }
        }
    }

    /// The same for memory that the host wrote without asking us.
    pub(crate) fn wipe(&mut self, base: u64, size: u64) {
        self.forget(base, size);
        // SAFETY: a range of our own reservation that nothing is allocated in any more.
        unsafe { libc::madvise(base as *mut libc::c_void, size as usize, libc::MADV_DONTNEED) };
    }
}

impl Memory {
    /// What an address is for a copy.
    pub(crate) fn place(&self, address: u64) -> Place {
        let kind = self.find(address).map(|r| r.kind);
        let plain = matches!(kind, Some(Kind::Linear | Kind::Pooled { .. } | Kind::Array | Kind::Graph));
        // Exported memory may be written by others.
        let alone = plain && !self.is_shared(address);
        Place { address, zero_until_written: alone, counted: plain || matches!(kind, Some(Kind::Mapped { .. })) }
    }

    /// Copies bytes. What was never written reads as zero; what the budget has no room for is dropped.
    pub(crate) fn copy(&mut self, to: Place, from: Place, size: u64) {
        let mut done = 0;
        while done < size {
            let (target, source) = (to.address + done, from.address + done);
            let left_in = |place: &Place, at: u64| if place.counted { GRAIN - at % GRAIN } else { u64::MAX };
            let piece = (size - done).min(left_in(&to, target)).min(left_in(&from, source));
            let empty = from.zero_until_written && !self.backing.is_written(source);
            if !self.is_skipped(&to, target, empty) {
                // SAFETY: both ranges are the program's or ours, valid by the driver's contract with its callers; they may overlap.
                unsafe {
                    if empty {
                        std::ptr::write_bytes(target as *mut u8, 0, piece as usize);
                    } else {
                        std::ptr::copy(source as *const u8, target as *mut u8, piece as usize);
                    }
                }
            }
            done += piece;
        }
    }

    /// Whether a write changes nothing (zeros where nothing was written) or has no room.
    fn is_skipped(&mut self, to: &Place, target: u64, zeros: bool) -> bool {
        if zeros && to.zero_until_written {
            !self.backing.is_written(target)
        } else {
            to.counted && !self.backing.admit(target)
        }
    }

    /// Fills a row with a value of 1, 2 or 4 bytes.
    pub(crate) fn fill(&mut self, to: Place, value: u32, element: u64, count: u64) {
        let pattern = value.to_ne_bytes();
        let mut done = 0;
        let size = element * count;
        while done < size {
            let target = to.address + done;
            let piece = (size - done).min(if to.counted { GRAIN - target % GRAIN } else { u64::MAX });
            if !self.is_skipped(&to, target, value == 0) {
                // SAFETY: the range is the program's or ours, valid by the driver's contract with its callers.
                let bytes = unsafe { std::slice::from_raw_parts_mut(target as *mut u8, piece as usize) };
                if element == 1 || value == 0 {
                    bytes.fill(pattern[0]);
                } else {
                    let at = |i: usize| pattern[(done as usize + i) % element as usize];
                    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = at(i));
                }
            }
            done += piece;
        }
    }

    /// Writes a word for a stream; an error breaks the context, as a fault on the card does.
    pub(crate) fn write_word(&mut self, address: u64, wide: bool, value: u64) -> Result<(), Error> {
        let size = if wide { 8 } else { 4 };
        let region = self.find_range(address, size).ok_or(Error::ILLEGAL_ADDRESS)?;
        if region.is_read_only() {
            return Err(Error::LAUNCH_FAILED);
        }
        let place = self.place(address);
        if place.counted && !self.backing.admit(address) {
            return Ok(());
        }
        // SAFETY: the address lies in a region we know; others may read the word meanwhile, hence volatile.
        unsafe {
            if wide {
                (address as *mut u64).write_volatile(value);
            } else {
                (address as *mut u32).write_volatile(value as u32);
            }
        }
        Ok(())
    }
}

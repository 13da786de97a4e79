//! Pinned host memory: allocated by the driver, or the program's own and registered.

use divvy_fakedriver::machine::Unit;

use super::{Kind, Memory, Region};
use crate::abi::Error;

const PAGE: u64 = 4096;

impl Memory {
    /// Allocates pinned host memory.
    pub(crate) fn allocate_host(&mut self, unit: Unit, context: u64, size: u64, flags: u32) -> Result<Region, Error> {
        if size == 0 || flags & !7 != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let room = size.checked_next_multiple_of(PAGE).ok_or(Error::OUT_OF_MEMORY)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                room as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::OUT_OF_MEMORY);
        }
        Ok(self.note(at as u64, size, Kind::HostAllocated { flags }, unit, context))
    }

    /// Frees what [`Self::allocate_host`] gave.
    pub(crate) fn free_host(&mut self, address: u64) -> Result<(), Error> {
        let region = *self
            .regions
            .get(&address)
            .filter(|r| matches!(r.kind, Kind::HostAllocated { .. }))
            .ok_or(Error::INVALID_VALUE)?;
        self.regions.remove(&address);
        // SAFETY: our own mapping, which the program says it no longer uses.
        unsafe { libc::munmap(address as *mut libc::c_void, region.size.next_multiple_of(PAGE) as usize) };
        Ok(())
    }

    /// Registers the program's own memory.
    pub(crate) fn register_host(
        &mut self,
        unit: Unit,
        context: u64,
        address: u64,
        size: u64,
        flags: u32,
    ) -> Result<(), Error> {
        const READ_ONLY: u32 = 8;
        if address == 0 || size == 0 || flags & !0xf != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let end = address.checked_add(size).ok_or(Error::INVALID_VALUE)?;
        let overlaps = self.regions.range(..end).next_back().is_some_and(|(_, r)| r.end() > address);
        if overlaps {
            return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let (mapped, writable) = host_page_flags(address, end);
        if !mapped || !(writable || flags & READ_ONLY != 0) {
            return Err(Error::INVALID_VALUE);
        }
        self.note(address, size, Kind::HostRegistered { flags }, unit, context);
        Ok(())
    }

    /// Takes a registration back.
    pub(crate) fn unregister_host(&mut self, address: u64) -> Result<(), Error> {
        self.regions
            .get(&address)
            .filter(|r| matches!(r.kind, Kind::HostRegistered { .. }))
            .ok_or(Error::HOST_MEMORY_NOT_REGISTERED)?;
        self.regions.remove(&address);
        Ok(())
    }
}

/// Whether a range is mapped in this process at all, and whether it is writable.
pub(crate) fn host_page_flags(address: u64, end: u64) -> (bool, bool) {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return (true, true) };
    let (mut at, mut writable) = (address, true);
    for line in maps.lines() {
        let mut words = line.split([' ', '-']);
        let hex = |w: Option<&str>| w.and_then(|w| u64::from_str_radix(w, 16).ok()).unwrap_or(0);
        let (from, to, rights) = (hex(words.next()), hex(words.next()), words.next().unwrap_or(""));
        if from <= at && at < to && rights.starts_with('r') {
            writable &= rights.as_bytes().get(1) == Some(&b'w');
            at = to;
        }
        if at >= end {
            return (true, writable);
        }
    }
    (false, false)
}

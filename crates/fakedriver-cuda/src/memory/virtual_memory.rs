//! Virtual memory management: addresses and memory apart, joined by mapping.
//!
//! Memory lives in one file without a name per process, or, if it may be shared, in one of its own. A mapping of it at a device
//! address is a real mapping, so the same memory at two addresses, or in two processes, is the same.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use divvy_fakedriver::machine::Unit;

use super::space::FreeList;
use super::{GRAIN, Kind, Memory, On, Region};
use crate::abi::{CUmemAllocationProp_v1, Error};

/// An allocation without an address.
pub(crate) struct Chunk {
    pub(crate) size: u64,
    pub(crate) properties: CUmemAllocationProp_v1,
    /// The card it is charged to; none for host memory and for what was imported.
    charged: Option<Unit>,
    /// Handles the program holds, and mappings.
    pub(crate) handles: u32,
    maps: u32,
    file: Arc<File>,
    offset: u64,
    own_file: bool,
}

// SAFETY: the one pointer in the properties is never followed.
unsafe impl Send for Chunk {}

/// Where plain allocations live.
#[derive(Default)]
pub(crate) struct Store {
    file: Option<Arc<File>>,
    free: FreeList,
}

/// A name that an importing process can read back.
const NAME: &str = "fake-gpu-memory";

fn nameless_file(size: u64) -> Result<File, Error> {
    let name = std::ffi::CString::new(NAME).unwrap_or_default();
    // SAFETY: creates a file; the descriptor is ours.
    let file = unsafe {
        let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(Error::OUT_OF_MEMORY);
        }
        File::from(OwnedFd::from_raw_fd(descriptor))
    };
    file.set_len(size).map_err(|_| Error::OUT_OF_MEMORY)?;
    Ok(file)
}

impl Store {
    fn take(&mut self, size: u64) -> Result<(Arc<File>, u64), Error> {
        const ROOM: u64 = 1 << 45;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = Arc::new(nameless_file(ROOM)?);
                self.free = FreeList::of(0, ROOM);
                self.file.insert(file).clone()
            }
        };
        let offset = self.free.take(size).ok_or(Error::OUT_OF_MEMORY)?;
        Ok((file, offset))
    }

    fn give(&mut self, offset: u64, size: u64) {
        if let Some(file) = &self.file {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: frees pages of our own file that nothing maps any more.
            unsafe { libc::fallocate(file.as_raw_fd(), hole, offset.cast_signed(), size.cast_signed()) };
        }
        self.free.add(offset, size);
    }
}

const SHAREABLE: u32 = 1;

impl Memory {
    /// `cuMemCreate`.
    pub(crate) fn create_chunk(
        &mut self,
        by: &On,
        id: u64,
        unit: Option<Unit>,
        size: u64,
        properties: CUmemAllocationProp_v1,
    ) -> Result<(), Error> {
        if size == 0 || !size.is_multiple_of(GRAIN) {
            return Err(Error::INVALID_VALUE);
        }
        if let Some(unit) = unit
            && !by.machine.take(by.seat, unit, size)
        {
            return Err(Error::OUT_OF_MEMORY);
        }
        let own_file = properties.handle_types & SHAREABLE != 0;
        let (file, offset) = if own_file { (Arc::new(nameless_file(size)?), 0) } else { self.store.take(size)? };
        self.chunks.insert(id, Chunk { size, properties, charged: unit, handles: 1, maps: 0, file, offset, own_file });
        Ok(())
    }

    /// `cuMemImportFromShareableHandle` of a file descriptor. The importer is not charged: the exporter is.
    pub(crate) fn import_chunk(
        &mut self,
        id: u64,
        descriptor: i32,
        properties: CUmemAllocationProp_v1,
    ) -> Result<(), Error> {
        let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).map_err(|_| Error::INVALID_VALUE)?;
        if !link.to_string_lossy().contains(NAME) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: duplicates a descriptor of the program's; the copy is ours.
        let file = unsafe {
            let copy = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3);
            if copy < 0 {
                return Err(Error::INVALID_VALUE);
            }
            File::from(OwnedFd::from_raw_fd(copy))
        };
        let size = file.metadata().map_err(|_| Error::INVALID_VALUE)?.len();
        self.chunks.insert(
            id,
            Chunk {
                size,
                properties,
                charged: None,
                handles: 1,
                maps: 0,
                file: Arc::new(file),
                offset: 0,
                own_file: true,
            },
        );
        Ok(())
    }

    /// A file descriptor that another process can import.
    pub(crate) fn export_chunk(&self, id: u64) -> Result<i32, Error> {
        let chunk = self.chunks.get(&id).filter(|c| c.handles > 0).ok_or(Error::INVALID_VALUE)?;
        if !chunk.own_file {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: duplicates our own descriptor for the program.
        let copy = unsafe { libc::fcntl(chunk.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 { Err(Error::OUT_OF_MEMORY) } else { Ok(copy) }
    }

    pub(crate) fn chunk(&mut self, id: u64) -> Result<&mut Chunk, Error> {
        self.chunks.get_mut(&id).filter(|c| c.handles > 0).ok_or(Error::INVALID_VALUE)
    }

    /// One more handle of a chunk that is mapped somewhere.
    pub(crate) fn retain_chunk(&mut self, id: u64) -> Result<(), Error> {
        self.chunks.get_mut(&id).ok_or(Error::INVALID_VALUE)?.handles += 1;
        Ok(())
    }

    /// Gives one handle of a chunk back.
    pub(crate) fn release_chunk(&mut self, by: &On, id: u64) -> Result<(), Error> {
        self.chunk(id)?.handles -= 1;
        self.drop_unused_chunk(by, id);
        Ok(())
    }

    fn drop_unused_chunk(&mut self, by: &On, id: u64) {
        if self.chunks.get(&id).is_some_and(|c| c.handles == 0 && c.maps == 0)
            && let Some(chunk) = self.chunks.remove(&id)
        {
            if let Some(unit) = chunk.charged {
                by.machine.give(by.seat, unit, chunk.size);
            }
            if !chunk.own_file {
                self.store.give(chunk.offset, chunk.size);
            }
        }
    }

    /// `cuMemAddressReserve`.
    pub(crate) fn reserve(&mut self, size: u64, alignment: u64, wanted: u64) -> Result<u64, Error> {
        if size == 0 || !size.is_multiple_of(GRAIN) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(Error::INVALID_VALUE);
        }
        let base = if wanted != 0 && wanted.is_multiple_of(GRAIN) && self.space.take_at(wanted, size) {
            wanted
        } else if alignment > GRAIN {
            // More than needed, and what is too much given back.
            let wide = self.space.take(size + alignment).ok_or(Error::OUT_OF_MEMORY)?;
            let base = wide.next_multiple_of(alignment);
            if base > wide {
                self.space.give(wide, base - wide);
            }
            self.space.give(base + size, wide + alignment - base);
            base
        } else {
            self.space.take(size).ok_or(Error::OUT_OF_MEMORY)?
        };
        self.reservations.insert(base, size);
        Ok(base)
    }

    /// `cuMemAddressFree`.
    pub(crate) fn unreserve(&mut self, base: u64, size: u64) -> Result<(), Error> {
        if self.reservations.get(&base) != Some(&size) || self.regions.range(base..base + size).next().is_some() {
            return Err(Error::INVALID_VALUE);
        }
        self.reservations.remove(&base);
        self.space.give(base, size);
        Ok(())
    }

    fn is_reserved(&self, base: u64, size: u64) -> bool {
        let end = base.checked_add(size);
        self.reservations.range(..=base).next_back().is_some_and(|(start, room)| end.is_some_and(|e| e <= start + room))
    }

    /// `cuMemMap`.
    pub(crate) fn map_chunk(&mut self, unit: Unit, base: u64, size: u64, offset: u64, id: u64) -> Result<(), Error> {
        let chunk = self.chunks.get(&id).filter(|c| c.handles > 0).ok_or(Error::INVALID_VALUE)?;
        let odd =
            size == 0 || !size.is_multiple_of(GRAIN) || !base.is_multiple_of(GRAIN) || offset != 0 || size > chunk.size;
        let taken = self.regions.range(..base + size).next_back().is_some_and(|(_, r)| r.end() > base);
        if odd || taken || !self.is_reserved(base, size) {
            return Err(Error::INVALID_VALUE);
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces a part of our own reservation that nothing uses.
        let at = unsafe {
            libc::mmap(
                base as *mut libc::c_void,
                size as usize,
                rights,
                flags,
                chunk.file.as_raw_fd(),
                chunk.offset.cast_signed(),
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::OUT_OF_MEMORY);
        }
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.maps += 1;
        }
        self.note(base, size, Kind::Mapped { chunk: id, access: 0 }, unit, 0);
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings only.
    pub(crate) fn unmap(&mut self, by: &On, base: u64, size: u64) -> Result<(), Error> {
        if base == 0 || size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        // There is nothing wrong with addresses behind which nothing is.
        let nothing = self.regions.range(..base.saturating_add(size)).next_back().is_none_or(|(_, r)| r.end() <= base);
        let mapped = if nothing { Vec::new() } else { self.mappings(base, size)? };
        for region in mapped {
            self.regions.remove(&region.base);
            self.backing.forget(region.base, region.size);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: puts plain reserved address space back in place of a mapping of ours.
            unsafe {
                libc::mmap(
                    region.base as *mut libc::c_void,
                    region.size as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    -1,
                    0,
                )
            };
            if let Kind::Mapped { chunk, .. } = region.kind {
                if let Some(chunk) = self.chunks.get_mut(&chunk) {
                    chunk.maps -= 1;
                }
                self.drop_unused_chunk(by, chunk);
            }
        }
        Ok(())
    }

    /// The mappings that make up a range, without gaps.
    fn mappings(&self, base: u64, size: u64) -> Result<Vec<Region>, Error> {
        let end = base.checked_add(size).filter(|_| size > 0).ok_or(Error::INVALID_VALUE)?;
        let mut at = base;
        let mut found = Vec::new();
        while at < end {
            let region =
                *self.regions.get(&at).filter(|r| matches!(r.kind, Kind::Mapped { .. })).ok_or(Error::INVALID_VALUE)?;
            at = region.end();
            found.push(region);
        }
        if at == end { Ok(found) } else { Err(Error::INVALID_VALUE) }
    }

    /// `cuMemSetAccess` for one device.
    pub(crate) fn set_access(&mut self, base: u64, size: u64, rights: u32) -> Result<(), Error> {
        for region in self.mappings(base, size)? {
            if let Some(region) = self.regions.get_mut(&region.base)
                && let Kind::Mapped { access, .. } = &mut region.kind
            {
                *access = rights;
            }
        }
        Ok(())
    }
}

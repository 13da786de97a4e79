//! Memory shared with other processes by handle (`cuIpc...`, pointers of pools), and what the program advises about managed memory.
//!
//! Memory becomes a file in the machine's directory when it is first exported: its grains are replaced by a mapping of that file.
//! Another process maps the same file. It is not charged for it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use divvy_fakedriver::machine::{Machine, Seat, Unit};

use super::{GRAIN, Kind, Memory, On, Region};
use crate::abi::Error;

/// What the program said about a managed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    /// Location type and id.
    pub(crate) preferred: (u32, i32),
    pub(crate) prefetched: (u32, i32),
    pub(crate) accessed_by: Option<i32>,
    /// Bytes moved to a card.
    resident: (Option<Unit>, u64),
}

/// An exported range of whole grains.
pub(crate) struct Share {
    path: PathBuf,
    size: u64,
}

/// What a handle says: sixty-four bytes that go from process to process.
pub(crate) struct Ticket {
    pub(crate) seat: u32,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) span: u64,
    /// The pid of the exporter, in its own namespace.
    pub(crate) pid: u32,
}

const MAGIC: u64 = u64::from_le_bytes(*b"fgpu-ipc");

impl Ticket {
    pub(crate) fn pack(&self) -> [u8; 64] {
        let words =
            [MAGIC, u64::from(self.seat), self.number, self.offset, self.size, self.span, u64::from(self.pid), 0];
        let mut bytes = [0; 64];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    pub(crate) fn unpack(bytes: &[u8; 64]) -> Result<Self, Error> {
        let word = |i: usize| bytes.get(8 * i..8 * i + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        if word(0) != MAGIC {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Self {
            seat: word(1) as u32,
            number: word(2),
            offset: word(3),
            size: word(4),
            span: word(5),
            pid: word(6) as u32,
        })
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("shared-{}-{}-{}", self.seat, self.pid, self.number))
    }
}

fn map(file: &File, at: u64, size: u64) -> Result<(), Error> {
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE);
    // SAFETY: replaces whole grains of our own reservation.
    let done = unsafe { libc::mmap(at as *mut libc::c_void, size as usize, rights, flags, file.as_raw_fd(), 0) };
    if done == libc::MAP_FAILED { Err(Error::OUT_OF_MEMORY) } else { Ok(()) }
}

fn unmap(at: u64, size: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: puts plain reserved address space back in place of a mapping of ours.
    unsafe { libc::mmap(at as *mut libc::c_void, size as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
}

impl Memory {
    /// Exports the allocation an address lies in.
    pub(crate) fn export(&mut self, on: &On, address: u64) -> Result<Ticket, Error> {
        let region = *self.find(address).ok_or(Error::INVALID_VALUE)?;
        if !matches!(region.kind, Kind::Linear | Kind::Pooled { .. }) {
            return Err(Error::INVALID_VALUE);
        }
        let start = region.base / GRAIN * GRAIN;
        let span = region.end().next_multiple_of(GRAIN) - start;
        let seat = u32::try_from(on.seat.index()).unwrap_or(0);
        let ticket = Ticket {
            seat,
            number: start / GRAIN,
            offset: region.base - start,
            size: region.size,
            span,
            pid: std::process::id(),
        };
        if !self.shares.contains_key(&start) {
            let path = ticket.path(&on.machine.dir);
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .map_err(|_| Error::OUT_OF_MEMORY)?;
            file.set_len(span).map_err(|_| Error::OUT_OF_MEMORY)?;
            self.copy_into(&file, start, span)?;
            map(&file, start, span)?;
            self.shares.insert(start, Share { path, size: span });
        }
        Ok(ticket)
    }

    /// Copies what was written of some grains into a file.
    fn copy_into(&self, file: &File, start: u64, span: u64) -> Result<(), Error> {
        use std::os::unix::fs::FileExt;
        for grain in (start..start + span).step_by(GRAIN as usize).filter(|&g| self.backing.is_written(g)) {
            // SAFETY: a grain of our own reservation.
            let bytes = unsafe { std::slice::from_raw_parts(grain as *const u8, GRAIN as usize) };
            file.write_all_at(bytes, grain - start).map_err(|_| Error::OUT_OF_MEMORY)?;
        }
        Ok(())
    }

    /// Whether others may write here too.
    pub(super) fn is_shared(&self, address: u64) -> bool {
        !self.shares.is_empty() && self.shares.iter().any(|(start, s)| (*start..start + s.size).contains(&address))
    }

    /// The exporter freed these grains: nobody can import them any more.
    pub(super) fn unshare(&mut self, base: u64, size: u64) {
        let gone: Vec<u64> =
            self.shares.keys().copied().filter(|&start| (base..base + size).contains(&start)).collect();
        for start in gone {
            if let Some(share) = self.shares.remove(&start) {
                let _ = std::fs::remove_file(&share.path);
                unmap(start, share.size);
            }
        }
    }

    /// Maps another process's memory here.
    pub(crate) fn import(&mut self, on: &On, ticket: &Ticket) -> Result<Region, Error> {
        let path = ticket.path(&on.machine.dir);
        let file = File::options().read(true).write(true).open(path).map_err(|_| Error::INVALID_VALUE)?;
        let start = self.space.take(ticket.span).ok_or(Error::OUT_OF_MEMORY)?;
        map(&file, start, ticket.span)?;
        let kind = Kind::Imported { offset: ticket.offset };
        Ok(self.note(start + ticket.offset, ticket.size, kind, on.unit, on.context))
    }

    pub(crate) fn close_import(&mut self, address: u64) -> Result<(), Error> {
        let region = *self.regions.get(&address).ok_or(Error::INVALID_VALUE)?;
        let Kind::Imported { offset } = region.kind else { return Err(Error::INVALID_VALUE) };
        self.regions.remove(&address);
        let (start, span) = (address - offset, (offset + region.size).next_multiple_of(GRAIN));
        unmap(start, span);
        self.space.give(start, span);
        Ok(())
    }

    /// A page with two words that several processes see, for events. It stays for the life of the process.
    pub(crate) fn share_words(
        &mut self,
        on: &On,
        ticket: &Ticket,
        make: bool,
    ) -> Result<&'static [AtomicU32; 2], Error> {
        let path = ticket.path(&on.machine.dir);
        let file = File::options()
            .read(true)
            .write(true)
            .create(make)
            .truncate(false)
            .open(path)
            .map_err(|_| Error::INVALID_VALUE)?;
        file.set_len(ticket.span).map_err(|_| Error::OUT_OF_MEMORY)?;
        let at = divvy_fakedriver::sys::map_shared(&file, ticket.span as usize).map_err(|_| Error::OUT_OF_MEMORY)?;
        self.note(at as u64, ticket.span, Kind::HostRegistered { flags: 0 }, on.unit, on.context);
        // SAFETY: the mapping is never unmapped, page-aligned and larger than two words.
        Ok(unsafe { &*at.cast() })
    }

    /// The advice about the managed range an address lies in.
    pub(crate) fn advice_of(&mut self, address: u64, size: u64) -> Result<&mut Advice, Error> {
        let region = *self.find_range(address, size).ok_or(Error::INVALID_VALUE)?;
        if !matches!(region.kind, Kind::Managed { .. }) {
            return Err(Error::INVALID_VALUE);
        }
        let nothing = Advice {
            read_mostly: false,
            preferred: (0, -2),
            prefetched: (0, -2),
            accessed_by: None,
            resident: (None, 0),
        };
        Ok(self.advice.entry(region.base).or_insert(nothing))
    }

    /// Moves bytes of a managed range to a card, or back to the host.
    pub(crate) fn prefetch(
        &mut self,
        machine: &Machine,
        seat: &Seat,
        address: u64,
        size: u64,
        to: Option<Unit>,
    ) -> Result<(), Error> {
        let whole = self.find(address).map_or(0, |r| r.size);
        let advice = self.advice_of(address, size)?;
        let (from, held) = advice.resident;
        let wanted = match to {
            Some(unit) if Some(unit) == from => held.max(size.min(whole)),
            Some(_) => size,
            None => held.saturating_sub(size),
        };
        if let Some(unit) = from {
            machine.give(seat, unit, held);
        }
        let target = to.or(from);
        // A card that is full takes nothing: managed memory never fails for want of room.
        let got = match target {
            Some(unit) if wanted > 0 && machine.take(seat, unit, wanted) => wanted,
            _ => 0,
        };
        advice.resident = (target.filter(|_| got > 0), got);
        Ok(())
    }

    pub(super) fn forget_advice(&mut self, machine: &Machine, seat: &Seat, address: u64) {
        if let Some(advice) = self.advice.remove(&address)
            && let (Some(unit), held) = advice.resident
        {
            machine.give(seat, unit, held);
        }
    }
}

//! Address space: one large reservation, handed out in pieces.

use std::collections::{BTreeMap, BTreeSet};

use super::GRAIN;

/// Free ranges, joined with their neighbours; the smallest that fits is taken.
#[derive(Default)]
pub(crate) struct FreeList {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeList {
    pub(crate) fn of(start: u64, size: u64) -> Self {
        let mut list = Self::default();
        list.add(start, size);
        list
    }

    pub(crate) fn add(&mut self, mut start: u64, mut size: u64) {
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.drop_range(before, length);
            (start, size) = (before, size + length);
        }
        if let Some(&length) = self.by_start.get(&(start + size)) {
            self.drop_range(start + size, length);
            size += length;
        }
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn drop_range(&mut self, start: u64, size: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let &(length, start) = self.by_size.range((size, 0)..).next()?;
        self.drop_range(start, length);
        if length > size {
            self.by_start.insert(start + size, length - size);
            self.by_size.insert((length - size, start + size));
        }
        Some(start)
    }

    /// Takes a certain range, if it is free.
    pub(crate) fn take_at(&mut self, start: u64, size: u64) -> bool {
        let Some((&free, &length)) = self.by_start.range(..=start).next_back() else { return false };
        if free + length < start + size {
            return false;
        }
        self.drop_range(free, length);
        if start > free {
            self.add(free, start - free);
        }
        if free + length > start + size {
            self.add(start + size, free + length - start - size);
        }
        true
    }

    pub(crate) fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(size, _)| size)
    }
}

/// The reservation. Made at the first need, so that a process that only looks costs nothing.
#[derive(Default)]
pub(crate) struct Space {
    free: FreeList,
    range: (u64, u64),
}

impl Space {
    fn reserve(&mut self) {
        // A smaller one where the process's address space is limited.
        for size in [8u64 << 40, 1 << 40, 128 << 30, 8 << 30] {
            // SAFETY: a fresh mapping at an address of the kernel's choice, without memory behind it.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    size as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if at != libc::MAP_FAILED {
                // SAFETY: the mapping just made; children and core dumps have no use for it.
                unsafe {
                    libc::madvise(at, size as usize, libc::MADV_DONTDUMP);
                    libc::madvise(at, size as usize, libc::MADV_DONTFORK);
                    libc::madvise(at, size as usize, libc::MADV_NOHUGEPAGE);
                }
                let start = (at as u64).next_multiple_of(GRAIN);
                let end = (at as u64 + size) / GRAIN * GRAIN;
                self.free = FreeList::of(start, end - start);
                self.range = (start, end);
                return;
            }
        }
    }

    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        if self.range == (0, 0) {
            self.reserve();
        }
        self.free.take(size)
    }

    pub(crate) fn give(&mut self, start: u64, size: u64) {
        self.free.add(start, size);
    }

    pub(crate) fn take_at(&mut self, start: u64, size: u64) -> bool {
        if self.range == (0, 0) {
            self.reserve();
        }
        self.free.take_at(start, size)
    }
}

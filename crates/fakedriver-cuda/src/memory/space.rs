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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_the_smallest_fit_is_taken() {
        let mut list = FreeList::of(0, 100);
        let (a, b, c) = (list.take(10).unwrap(), list.take(20).unwrap(), list.take(30).unwrap());
        assert_eq!((a, b, c, list.largest()), (0, 10, 30, 40));
        list.add(b, 20);
        assert_eq!(list.take(15), Some(10), "the hole of 20, not the rest of 40");
        list.add(10, 15);
        list.add(a, 10);
        list.add(c, 30);
        assert_eq!(list.largest(), 100, "all one again");
        assert!(!list.take_at(90, 20));
        assert!(list.take_at(40, 20));
        assert_eq!((list.largest(), list.take(41)), (40, None));
    }

    /// Whatever is taken and given back in whatever order, nothing overlaps and nothing is lost.
    #[test]
    fn nothing_overlaps_and_nothing_is_lost() {
        let (mut list, mut held, mut dice) = (FreeList::of(0, 1 << 20), Vec::<(u64, u64)>::new(), 7u64);
        for _ in 0..5_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let roll = dice >> 40;
            if roll % 3 > 0 {
                let size = 1 + roll % 5_000;
                if let Some(start) = list.take(size) {
                    assert!(held.iter().all(|(s, l)| start + size <= *s || s + l <= start));
                    held.push((start, size));
                }
            } else if !held.is_empty() {
                let (start, size) = held.swap_remove(roll as usize % held.len());
                list.add(start, size);
            }
            let sum: u64 = held.iter().map(|(_, l)| l).sum();
            assert_eq!(list.by_start.values().sum::<u64>() + sum, 1 << 20);
        }
        held.into_iter().for_each(|(start, size)| list.add(start, size));
        assert_eq!(list.largest(), 1 << 20);
    }
}

//! Maps from addresses and handles to what we know about them.
//!
//! Constant time whatever the number of entries, split into shards so that threads do not meet, in memory of their own rather than
//! the program's heap. Empty when all zero. Keys are never zero: no allocation is at zero and no handle is.

use core::ptr::null_mut;
use core::slice;

use crate::lock::Lock;

const SHARDS: usize = 64;
const FIRST_ROOM: usize = 64;

/// A map of many shards.
pub(crate) struct Map<V> {
    shards: [Lock<Shard<V>>; SHARDS],
}

struct Shard<V> {
    entries: *mut Entry<V>,
    room: usize,
    used: usize,
}

#[derive(Clone, Copy)]
struct Entry<V> {
    key: u64,
    value: V,
}

// SAFETY: a shard owns its memory; it moves between threads under a lock.
unsafe impl<V: Send> Send for Shard<V> {}

/// Spreads keys that are multiples of large powers of two.
fn spread(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl<V: Copy> Map<V> {
    #[cfg(test)]
    pub(crate) const fn new() -> Self {
        Map { shards: [const { Lock::new(Shard { entries: null_mut(), room: 0, used: 0 }) }; SHARDS] }
    }

    fn shard(&self, key: u64) -> &Lock<Shard<V>> {
        &self.shards[spread(key) as usize % SHARDS]
    }

    /// Puts a value under a key and returns what was there. A key of zero, or no memory for the map, loses the value.
    pub(crate) fn insert(&self, key: u64, value: V) -> Option<V> {
        self.shard(key).lock().insert(key, value)
    }

    /// Takes out what is under a key.
    pub(crate) fn remove(&self, key: u64) -> Option<V> {
        self.shard(key).lock().remove(key)
    }

    /// What is under a key.
    pub(crate) fn get(&self, key: u64) -> Option<V> {
        let mut shard = self.shard(key).lock();
        let at = shard.find(key)?;
        Some(shard.all()[at].value)
    }

    /// Changes what is under a key; the entry goes if `change` says so. Returns what `change` does.
    pub(crate) fn change<R>(&self, key: u64, change: impl FnOnce(&mut V) -> (Keep, R)) -> Option<R> {
        let mut shard = self.shard(key).lock();
        let at = shard.find(key)?;
        let (keep, result) = change(&mut shard.all()[at].value);
        if keep == Keep::No {
            shard.remove(key);
        }
        Some(result)
    }

    /// Changes what is under a key, which is `fresh` if there was nothing. No memory for the map changes a value that is lost.
    pub(crate) fn change_or_insert<R>(&self, key: u64, fresh: V, change: impl FnOnce(&mut V) -> R) -> R {
        let mut shard = self.shard(key).lock();
        if shard.find(key).is_none() {
            shard.insert(key, fresh);
        }
        match shard.find(key) {
            Some(at) => change(&mut shard.all()[at].value),
            None => change(&mut { fresh }),
        }
    }

    /// Takes out everything that `which` says yes to.
    pub(crate) fn drain(&self, mut which: impl FnMut(u64, &V) -> bool, mut gone: impl FnMut(V)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut at = 0;
            while at < shard.room {
                let entry = shard.all()[at];
                if entry.key != 0 && which(entry.key, &entry.value) {
                    shard.remove(entry.key);
                    gone(entry.value);
                } else {
                    at += 1; // a removal moves another entry here, so the place is looked at again
                }
            }
        }
    }

    /// Looks at everything.
    pub(crate) fn each(&self, mut look: impl FnMut(u64, &V)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.all().iter().filter(|e| e.key != 0).for_each(|e| look(e.key, &e.value));
        }
    }
}

/// Whether an entry stays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It does.
    Yes,
    /// It goes.
    No,
}

impl<V: Copy> Shard<V> {
    fn all(&mut self) -> &mut [Entry<V>] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: `room` entries, zeroed at first and written whole since; zero is a valid key and V is Copy data read only where
        // the key says that one was written.
        unsafe { slice::from_raw_parts_mut(self.entries, self.room) }
    }

    fn home(&self, key: u64) -> usize {
        (spread(key) / SHARDS as u64) as usize & (self.room - 1)
    }

    fn find(&mut self, key: u64) -> Option<usize> {
        if self.room == 0 || key == 0 {
            return None;
        }
        let mask = self.room - 1;
        let mut at = self.home(key);
        let all = self.all();
        loop {
            match all[at].key {
                0 => return None,
                found if found == key => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if key == 0 {
            return None;
        }
        if let Some(at) = self.find(key) {
            return Some(core::mem::replace(&mut self.all()[at].value, value));
        }
        if self.used * 4 >= self.room * 3 && !self.grow() {
            return None;
        }
        self.place(key, value);
        self.used += 1;
        None
    }

    fn place(&mut self, key: u64, value: V) {
        let mask = self.room - 1;
        let mut at = self.home(key);
        let all = self.all();
        while all[at].key != 0 {
            at = (at + 1) & mask;
        }
        all[at] = Entry { key, value };
    }

    /// Takes an entry out and moves those after it back, so that no search breaks off too early.
    fn remove(&mut self, key: u64) -> Option<V> {
        let mut hole = self.find(key)?;
        let mask = self.room - 1;
        let value = self.all()[hole].value;
        let mut next = (hole + 1) & mask;
        loop {
            let entry = self.all()[next];
            if entry.key == 0 {
                break;
            }
            let home = self.home(entry.key);
            // May move back if its home is not between the hole and where it is.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.all()[hole] = entry;
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.all()[hole].key = 0;
        self.used -= 1;
        Some(value)
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let room = if self.room == 0 { FIRST_ROOM } else { self.room * 2 };
        // SAFETY: a fresh mapping, zeroed, at a place of the kernel's choosing.
        let fresh = unsafe {
            libc::mmap(
                null_mut(),
                room * size_of::<Entry<V>>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if fresh == libc::MAP_FAILED {
            return self.used + 1 < self.room; // one place must stay empty, or searches never end
        }
        let mut old = Shard { entries: self.entries, room: self.room, used: 0 };
        self.entries = fresh.cast();
        self.room = room;
        for entry in old.all().iter().filter(|e| e.key != 0) {
            self.place(entry.key, entry.value);
        }
        if !old.entries.is_null() {
            // SAFETY: the old mapping, of the length it was made with; nothing points into it.
            unsafe { libc::munmap(old.entries.cast(), old.room * size_of::<Entry<V>>()) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_plain_map_through_growth_and_removal() {
        let (map, mut plain) = (Map::<u64>::new(), HashMap::new());
        let mut x = 88172645463325252u64;
        for step in 0..200_000u64 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let key = (x % 5000 + 1) << 21; // like device addresses
            match x >> 62 {
                0 | 1 => assert_eq!(map.insert(key, step), plain.insert(key, step)),
                2 => assert_eq!(map.remove(key), plain.remove(&key)),
                _ => assert_eq!(map.get(key), plain.get(&key).copied()),
            }
        }
        let mut seen = 0;
        map.each(|k, v| {
            assert_eq!(plain.get(&k), Some(v));
            seen += 1;
        });
        assert_eq!(seen, plain.len());
        let mut sum = 0;
        map.drain(|k, _| k % (1 << 22) == 0, |_| sum += 1);
        assert_eq!(sum, plain.keys().filter(|k| **k % (1 << 22) == 0).count());
        map.each(|k, _| assert_ne!(k % (1 << 22), 0));
    }

    #[test]
    fn zero_is_no_key() {
        let map = Map::<u8>::new();
        assert_eq!(map.insert(0, 1), None);
        assert_eq!((map.get(0), map.remove(0)), (None, None));
        assert_eq!(map.change(7, |_| (Keep::No, ())), None);
        let add = |n: u8| {
            map.change_or_insert(7, 40, |v| {
                *v += n;
                *v
            })
        };
        assert_eq!((add(1), add(1), map.get(7)), (41, 42, Some(42)));
    }
}

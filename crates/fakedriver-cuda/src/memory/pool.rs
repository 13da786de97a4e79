//! Memory pools: what `cuMemAllocAsync` allocates from.
//!
//! A pool takes memory of the card in large pieces and keeps it when it is freed, up to its release threshold, which is looked at
//! when somebody synchronizes. What a stream freed it may have again at once; others have to wait until the stream got there.

use std::collections::BTreeMap;

use divvy_fakedriver::machine::Unit;

use super::space::{FreeList, Space};
use super::{GRAIN, Kind, Memory, On, Region};
use crate::abi::Error;
use crate::engine::StreamId;

/// A pool takes multiples of this.
const PIECE: u64 = 32 << 20;
/// Every address is a multiple of this.
const ALIGN: u64 = 512;

/// Where a pool's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Device(Unit),
    Host,
}

pub(crate) struct Pool {
    pub(crate) home: Home,
    /// The device whose default it is.
    pub(crate) default_of: Option<usize>,
    pub(crate) device: i32,
    pub(crate) handle_types: u32,
    /// Reserved bytes never exceed this; 0 means no such limit.
    max: u64,
    pub(crate) threshold: u64,
    /// The three switches for reuse.
    pub(crate) reuse: [i32; 3],
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Rights of other devices.
    pub(crate) access: BTreeMap<i32, u32>,
    pieces: BTreeMap<u64, u64>,
    free: FreeList,
    /// Freed by a stream that has not got there yet.
    pending: Vec<(StreamId, u64, u64)>,
    /// Destroyed by its owner, kept while something of it is in use.
    dead: bool,
}

impl Pool {
    pub(crate) fn new(home: Home, device: i32, handle_types: u32, max: u64) -> Self {
        Self {
            home,
            default_of: None,
            device,
            handle_types,
            max,
            threshold: 0,
            reuse: [1; 3],
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            access: BTreeMap::new(),
            pieces: BTreeMap::new(),
            free: FreeList::default(),
            pending: Vec::new(),
            dead: false,
        }
    }

    fn charge(&self, by: &On, bytes: u64) -> bool {
        match self.home {
            Home::Device(unit) => by.machine.take(by.seat, unit, bytes),
            Home::Host => true,
        }
    }

    fn credit(&self, by: &On, bytes: u64) {
        if let Home::Device(unit) = self.home {
            by.machine.give(by.seat, unit, bytes);
        }
    }

    /// Takes another piece of the card.
    fn grow(&mut self, by: &On, room: u64, space: &mut Space) -> Result<(), Error> {
        let exact = room.checked_next_multiple_of(GRAIN).ok_or(Error::OUT_OF_MEMORY)?;
        let fits = |piece: u64| self.max == 0 || self.reserved + piece <= self.max.next_multiple_of(GRAIN);
        let whole = room.checked_next_multiple_of(PIECE).ok_or(Error::OUT_OF_MEMORY)?;
        let piece = [whole, exact].into_iter().find(|&p| fits(p) && self.charge(by, p)).ok_or(Error::OUT_OF_MEMORY)?;
        let Some(base) = space.take(piece) else {
            self.credit(by, piece);
            return Err(Error::OUT_OF_MEMORY);
        };
        self.pieces.insert(base, piece);
        self.free.add(base, piece);
        self.reserved += piece;
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Gives whole pieces back until at most `keep` bytes are reserved. Answers what was given back.
    fn trim(&mut self, by: &On, keep: u64, space: &mut Space) -> Vec<(u64, u64)> {
        let mut given = Vec::new();
        for (base, size) in self.pieces.clone().into_iter().rev() {
            if self.reserved <= keep {
                break;
            }
            if self.free.take_at(base, size) {
                self.pieces.remove(&base);
                self.reserved -= size;
                self.credit(by, size);
                space.give(base, size);
                given.push((base, size));
            }
        }
        given
    }
}

impl Memory {
    pub(crate) fn pool(&self, id: u64) -> Result<&Pool, Error> {
        self.pools.get(&id).filter(|p| !p.dead).ok_or(Error::INVALID_VALUE)
    }

    pub(crate) fn pool_mut(&mut self, id: u64) -> Result<&mut Pool, Error> {
        self.pools.get_mut(&id).filter(|p| !p.dead).ok_or(Error::INVALID_VALUE)
    }

    pub(crate) fn add_pool(&mut self, id: u64, pool: Pool) {
        self.pools.insert(id, pool);
    }

    /// Allocates from a pool for a stream.
    pub(crate) fn allocate_from_pool(
        &mut self,
        by: &On,
        id: u64,
        size: u64,
        stream: StreamId,
        context: u64,
    ) -> Result<Region, Error> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let room = size.checked_next_multiple_of(ALIGN).ok_or(Error::OUT_OF_MEMORY)?;
        self.pool(id)?;
        let pool = self.pools.get_mut(&id).ok_or(Error::INVALID_VALUE)?;
        let mut base = pool.free.take(room);
        if base.is_none() {
            // What this stream freed is free for what it does next.
            if let Some(at) = pool.pending.iter().position(|&(s, _, have)| s == stream && have >= room) {
                let (_, from, have) = pool.pending.remove(at);
                if have > room {
                    pool.free.add(from + room, have - room);
                }
                base = Some(from);
            }
        }
        if base.is_none() {
            pool.grow(by, room, &mut self.space)?;
            base = pool.free.take(room);
        }
        let base = base.ok_or(Error::OUT_OF_MEMORY)?;
        pool.used += size;
        pool.used_high = pool.used_high.max(pool.used);
        let unit = match pool.home {
            Home::Device(unit) => unit,
            Home::Host => by.unit,
        };
        Ok(self.note(base, size, Kind::Pooled { pool: id }, unit, context))
    }

    /// Notes that a stream will free an allocation; the addresses are no longer the program's.
    pub(crate) fn free_to_pool(&mut self, address: u64, stream: StreamId) -> Result<(), Error> {
        let region = *self.regions.get(&address).ok_or(Error::INVALID_VALUE)?;
        let Kind::Pooled { pool } = region.kind else { return Err(Error::INVALID_VALUE) };
        self.regions.remove(&address);
        let room = region.size.next_multiple_of(ALIGN);
        let pool = self.pools.get_mut(&pool).ok_or(Error::INVALID_VALUE)?;
        pool.used -= region.size;
        pool.pending.push((stream, address, room));
        Ok(())
    }

    /// The stream got to a free: the memory is anybody's, unless the stream itself has taken it again.
    pub(crate) fn settle_free(&mut self, address: u64, stream: StreamId) {
        for pool in self.pools.values_mut() {
            if let Some(at) = pool.pending.iter().position(|&(s, base, _)| s == stream && base == address) {
                let (_, base, size) = pool.pending.remove(at);
                pool.free.add(base, size);
            }
        }
        self.bury_pools();
    }

    /// Whether streams have frees ahead of them that could make room.
    pub(crate) fn has_pending_frees(&self) -> bool {
        self.pools.values().any(|p| !p.pending.is_empty())
    }

    /// Gives back what pools keep beyond their thresholds: somebody synchronized.
    pub(crate) fn release_beyond_thresholds(&mut self, by: &On) {
        for pool in self.pools.values_mut().filter(|p| p.reserved > p.threshold && p.reserved > p.used) {
            for (base, size) in pool.trim(by, pool.threshold, &mut self.space) {
                self.backing.forget(base, size);
            }
        }
    }

    /// Gives back everything that pools and graphs keep for later: somebody is short of memory.
    pub(crate) fn release_unused(&mut self, on: &On) {
        for pool in self.pools.values_mut() {
            for (base, size) in pool.trim(on, 0, &mut self.space) {
                self.backing.forget(base, size);
            }
        }
        self.trim_graph_memory(on, on.unit);
    }

    pub(crate) fn trim_pool(&mut self, by: &On, id: u64, keep: u64) -> Result<(), Error> {
        self.pool(id)?;
        if let Some(pool) = self.pools.get_mut(&id) {
            for (base, size) in pool.trim(by, keep, &mut self.space) {
                self.backing.forget(base, size);
            }
        }
        Ok(())
    }

    /// The owner is done with a pool; it goes when nothing of it is in use.
    pub(crate) fn destroy_pool(&mut self, by: &On, id: u64) -> Result<(), Error> {
        if self.pool(id)?.default_of.is_some() {
            return Err(Error::INVALID_VALUE);
        }
        self.trim_pool(by, id, 0)?;
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.dead = true;
        }
        self.bury_pools();
        Ok(())
    }

    fn bury_pools(&mut self) {
        // Memory of a dead pool is credited when its last piece is trimmed, which happens at the next synchronization.
        self.pools.retain(|_, p| !(p.dead && p.reserved == 0));
    }
}

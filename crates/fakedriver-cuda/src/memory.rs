//! The memory of the process: which addresses mean what, and what of it is held on which unit.
//!
//! Device addresses are real addresses: they lie in one large reservation of host address space that costs nothing until it is
//! written. What is written is kept up to a budget (`backing` of the spec) and dropped beyond it, so that a program may
//! allocate and fill a card of 140 GiB on a small machine.

use std::collections::BTreeMap;

use divvy_fakedriver::machine::{Machine, Seat, Unit};

use crate::abi::Error;
use crate::handles::Handles;

pub(crate) mod array;
mod backing;
mod graph;
mod host;
mod linear;
pub(crate) mod pool;
pub(crate) mod shared;
mod space;
mod virtual_memory;

pub(crate) use backing::Place;

use array::{Array, Mipmap};
use backing::Backing;
use graph::GraphMemory;
use linear::Linear;
use pool::Pool;
use shared::{Advice, Share};
use space::Space;
use virtual_memory::{Chunk, Store};

/// The unit in which the driver takes memory of a card.
pub(crate) const GRAIN: u64 = 2 << 20;

/// What an address range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc` and relatives.
    Linear,
    /// `cuMemAllocManaged`.
    Managed { attach: u32 },
    /// `cuMemAllocAsync` and relatives.
    Pooled { pool: u64 },
    /// A mapping of a chunk, with the rights given to it.
    Mapped { chunk: u64, access: u32 },
    /// The inside of an array.
    Array,
    /// Allocated by a graph.
    Graph,
    /// Another process's memory.
    Imported { offset: u64 },
    /// `cuMemHostAlloc` and relatives.
    HostAllocated { flags: u32 },
    /// `cuMemHostRegister`.
    HostRegistered { flags: u32 },
}

/// A range of addresses the driver knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) context: u64,
    /// Unique for the life of the process.
    pub(crate) id: u64,
}

impl Region {
    pub(crate) fn end(&self) -> u64 {
        self.base + self.size
    }

    pub(crate) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::HostAllocated { .. } | Kind::HostRegistered { .. })
    }

    /// Whether the host may not let the device write here.
    pub(crate) fn is_read_only(&self) -> bool {
        const READ_ONLY: u32 = 8;
        matches!(self.kind, Kind::HostRegistered { flags } if flags & READ_ONLY != 0)
    }
}

pub(crate) struct Memory {
    regions: BTreeMap<u64, Region>,
    space: Space,
    backing: Backing,
    linear: Linear,
    pub(crate) pools: Handles<Pool>,
    chunks: Handles<Chunk>,
    store: Store,
    reservations: BTreeMap<u64, u64>,
    pub(crate) arrays: Handles<Array>,
    pub(crate) mipmaps: Handles<Mipmap>,
    pub(crate) graph: BTreeMap<Unit, GraphMemory>,
    /// Attributes of managed ranges, by their first address.
    advice: Handles<Advice>,
    shares: Handles<Share>,
    next_id: u64,
}

/// Where memory is taken: by whom, on which unit, for which context.
pub(crate) struct On<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) seat: &'a Seat,
    pub(crate) unit: Unit,
    pub(crate) context: u64,
}

impl On<'_> {
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Error> {
        if self.machine.take(self.seat, self.unit, bytes) { Ok(()) } else { Err(Error::OUT_OF_MEMORY) }
    }

    pub(crate) fn credit(&self, bytes: u64) {
        self.machine.give(self.seat, self.unit, bytes);
    }
}

impl Memory {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            regions: BTreeMap::new(),
            space: Space::default(),
            backing: Backing::new(budget),
            linear: Linear::default(),
            pools: Handles::default(),
            chunks: Handles::default(),
            store: Store::default(),
            reservations: BTreeMap::new(),
            arrays: Handles::default(),
            mipmaps: Handles::default(),
            graph: BTreeMap::new(),
            advice: Handles::default(),
            shares: Handles::default(),
            next_id: 1,
        }
    }

    /// The region an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<&Region> {
        self.regions.range(..=address).next_back().map(|(_, r)| r).filter(|r| address < r.end())
    }

    /// The region a whole range lies in, and that the device may use; several mappings side by side count as one.
    pub(crate) fn find_range(&self, address: u64, size: u64) -> Option<&Region> {
        let end = address.checked_add(size)?;
        let first = self.find(address)?;
        let mut region = first;
        loop {
            if matches!(region.kind, Kind::Mapped { access: 0, .. }) {
                return None;
            }
            if end <= region.end() {
                return Some(first);
            }
            let next = self.regions.get(&region.end())?;
            if !matches!((next.kind, first.kind), (Kind::Mapped { .. }, Kind::Mapped { .. })) {
                return None;
            }
            region = next;
        }
    }

    /// Whether a stream may wait for a word there.
    pub(crate) fn is_watchable(&self, address: u64, size: u64) -> bool {
        self.find_range(address, size).is_some()
    }

    fn note(&mut self, base: u64, size: u64, kind: Kind, unit: Unit, context: u64) -> Region {
        let region = Region { base, size, kind, unit, context, id: self.next_id };
        self.next_id += 1;
        self.regions.insert(base, region);
        region
    }

    /// Regions of a context.
    pub(crate) fn of_context(&self, context: u64) -> Vec<Region> {
        self.regions.values().filter(|r| r.context == context).copied().collect()
    }

    /// Allocates plain device memory.
    pub(crate) fn allocate(&mut self, on: &On, size: u64) -> Result<Region, Error> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let base = self.linear.take(on, size, &mut self.space)?;
        Ok(self.note(base, size, Kind::Linear, on.unit, on.context))
    }

    /// Allocates managed memory: addresses only, its pages go where they are used.
    pub(crate) fn allocate_managed(&mut self, on: &On, size: u64, attach: u32) -> Result<Region, Error> {
        if size == 0 || !matches!(attach, 1 | 2) {
            return Err(Error::INVALID_VALUE);
        }
        let room = size.checked_next_multiple_of(GRAIN).ok_or(Error::OUT_OF_MEMORY)?;
        let base = self.space.take(room).ok_or(Error::OUT_OF_MEMORY)?;
        Ok(self.note(base, size, Kind::Managed { attach }, on.unit, on.context))
    }

    /// Frees what [`Self::allocate`] or [`Self::allocate_managed`] gave, by its first address.
    pub(crate) fn free(&mut self, machine: &Machine, seat: &Seat, address: u64) -> Result<(), Error> {
        let region = *self.regions.get(&address).ok_or(Error::INVALID_VALUE)?;
        match region.kind {
            Kind::Linear | Kind::Array => {
                self.regions.remove(&address);
                let on = On { machine, seat, unit: region.unit, context: region.context };
                if let Some((base, size)) = self.linear.give(&on, address, region.size, &mut self.space) {
                    self.unshare(base, size);
                    self.backing.forget(base, size);
                }
                Ok(())
            }
            Kind::Managed { .. } => {
                self.regions.remove(&address);
                self.forget_advice(machine, seat, address);
                let room = region.size.next_multiple_of(GRAIN);
                self.backing.wipe(address, room);
                self.space.give(address, room);
                Ok(())
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }
}

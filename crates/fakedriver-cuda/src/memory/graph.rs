//! Memory that graphs allocate: addresses are fixed when the node is made, memory is taken when the graph is launched and kept
//! for the next launch until it is trimmed.

use divvy_fakedriver::machine::Unit;

use super::{GRAIN, Kind, Memory, On};
use crate::abi::Error;

/// What graphs hold of one unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphMemory {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

impl Memory {
    /// An address for an allocation node.
    pub(crate) fn graph_address(&mut self, size: u64) -> Result<u64, Error> {
        let room = size.checked_next_multiple_of(GRAIN).filter(|_| size > 0).ok_or(Error::INVALID_VALUE)?;
        self.space.take(room).ok_or(Error::OUT_OF_MEMORY)
    }

    pub(crate) fn is_live(&self, address: u64) -> bool {
        self.regions.contains_key(&address)
    }

    /// The allocation of a node becomes memory.
    pub(crate) fn allocate_for_graph(&mut self, on: &On, address: u64, size: u64) -> Result<(), Error> {
        if self.regions.contains_key(&address) {
            return Err(Error::INVALID_VALUE);
        }
        let room = size.next_multiple_of(GRAIN);
        let held = self.graph.entry(on.unit).or_default();
        let short = (held.used + room).saturating_sub(held.reserved);
        if short > 0 {
            on.charge(short)?;
            held.reserved += short;
            held.reserved_high = held.reserved_high.max(held.reserved);
        }
        held.used += room;
        held.used_high = held.used_high.max(held.used);
        self.note(address, size, Kind::Graph, on.unit, on.context);
        Ok(())
    }

    /// And ceases to be.
    pub(crate) fn free_graph_allocation(&mut self, address: u64) -> Result<(), Error> {
        let region = *self.regions.get(&address).filter(|r| r.kind == Kind::Graph).ok_or(Error::INVALID_VALUE)?;
        self.regions.remove(&address);
        let room = region.size.next_multiple_of(GRAIN);
        self.backing.forget(address, room);
        if let Some(held) = self.graph.get_mut(&region.unit) {
            held.used -= room;
        }
        Ok(())
    }

    /// Gives back what no live allocation needs.
    pub(crate) fn trim_graph_memory(&mut self, on: &On, unit: Unit) {
        if let Some(held) = self.graph.get_mut(&unit) {
            on.machine.give(on.seat, unit, held.reserved - held.used);
            held.reserved = held.used;
        }
    }
}

//! Plain allocations: large ones take grains of the card for themselves, small ones share a grain, as on the card.

use std::collections::BTreeMap;

use divvy_fakedriver::machine::Unit;

use super::space::{FreeList, Space};
use super::{GRAIN, On};
use crate::abi::Error;

/// Every address is a multiple of this.
const ALIGN: u64 = 512;
/// What is larger gets grains of its own.
const SMALL: u64 = GRAIN / 2;

/// A grain that small allocations share.
struct Shared {
    free: FreeList,
    live: usize,
}

#[derive(Default)]
pub(crate) struct Linear {
    /// By owner, then by first address.
    shared: BTreeMap<(u64, Unit), BTreeMap<u64, Shared>>,
}

impl Linear {
    pub(crate) fn take(&mut self, on: &On, size: u64, space: &mut Space) -> Result<u64, Error> {
        if size > SMALL {
            let room = size.checked_next_multiple_of(GRAIN).ok_or(Error::OUT_OF_MEMORY)?;
            on.charge(room)?;
            return space.take(room).ok_or_else(|| {
                on.credit(room);
                Error::OUT_OF_MEMORY
            });
        }
        let room = size.next_multiple_of(ALIGN);
        let grains = self.shared.entry((on.context, on.unit)).or_default();
        for grain in grains.values_mut().rev().filter(|g| g.free.largest() >= room) {
            if let Some(base) = grain.free.take(room) {
                grain.live += 1;
                return Ok(base);
            }
        }
        on.charge(GRAIN)?;
        let Some(base) = space.take(GRAIN) else {
            on.credit(GRAIN);
            return Err(Error::OUT_OF_MEMORY);
        };
        grains.insert(base, Shared { free: FreeList::of(base + room, GRAIN - room), live: 1 });
        Ok(base)
    }

    /// Gives an allocation back; answers the ranges whose bytes nobody needs any more.
    pub(crate) fn give(&mut self, on: &On, base: u64, size: u64, space: &mut Space) -> Option<(u64, u64)> {
        if size > SMALL {
            let room = size.next_multiple_of(GRAIN);
            space.give(base, room);
            on.credit(room);
            return Some((base, room));
        }
        let grains = self.shared.get_mut(&(on.context, on.unit))?;
        let (&start, grain) = grains.range_mut(..=base).next_back()?;
        grain.free.add(base, size.next_multiple_of(ALIGN));
        grain.live -= 1;
        if grain.live > 0 {
            return None;
        }
        grains.remove(&start);
        space.give(start, GRAIN);
        on.credit(GRAIN);
        Some((start, GRAIN))
    }
}

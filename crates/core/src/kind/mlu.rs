//! Cambricon MLUs: shared by memory where the model can be split, whole otherwise.

use crate::ask::MemoryAsk;
use crate::device::{Device, DeviceKind, Inventory};
use crate::grant::Slice;
use crate::kind::{DeviceScheduler, Want, shared_slice};
use crate::reason::Obstacle;

/// The placing half of MLUs.
#[derive(Clone, Copy, Debug)]
pub struct Mlu;

impl DeviceScheduler for Mlu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Mlu
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, _taken: u32) -> Result<Slice, Obstacle> {
        // Alone on the card is not all of its memory where an amount is asked for.
        let amount = matches!(want.ask.memory, MemoryAsk::Bytes(_));
        let whole = want.ask.memory == MemoryAsk::Nothing || (want.ask.exclusive && !amount);
        // Only the 370 series can be split by memory.
        if !whole && !device.model.as_str().contains("370") {
            return Err(Obstacle::Model);
        }
        let mut slice = shared_slice(device, inventory, want)?;
        if whole {
            (slice.memory, slice.memory_limit, slice.exclusive) = (device.bookable_memory(), device.memory, true);
        }
        Ok(slice)
    }
}

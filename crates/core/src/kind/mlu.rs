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
        let whole = want.ask.exclusive || want.ask.memory == MemoryAsk::Nothing;
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

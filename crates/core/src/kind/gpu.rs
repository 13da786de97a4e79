//! GPUs: shared by memory and time, or cut into hardware partitions.

use crate::device::{Device, DeviceKind, Inventory, Isolation};
use crate::grant::Slice;
use crate::kind::{DeviceScheduler, Want, memory_of, shared_slice};
use crate::mig;
use crate::reason::Obstacle;
use crate::units::Share;

/// The placing half of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Gpu;

impl DeviceScheduler for Gpu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle> {
        if device.isolation.first() == Some(&Isolation::Mig) {
            if !want.isolation.is_empty() && !want.isolation.contains(&Isolation::Mig) {
                return Err(Obstacle::Isolation { want: want.isolation.to_vec() });
            }
            return partition(device, inventory, want, taken);
        }
        if want.isolation == [Isolation::Mig] {
            return Err(Obstacle::Isolation { want: want.isolation.to_vec() });
        }
        shared_slice(device, inventory, want)
    }
}

/// A card that is cut up gives the smallest partition with enough memory, and all of that partition's time.
fn partition(device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle> {
    let need = memory_of(want.ask.memory, device, inventory);
    let (name, memory, _) = mig::choose(device, need, taken).ok_or(Obstacle::Partition)?;
    Ok(Slice {
        device: device.id.clone(),
        kind: device.kind,
        memory,
        memory_limit: memory,
        share: Share::ZERO,
        share_limit: Share::WHOLE,
        exclusive: false,
        isolation: Isolation::Mig,
        partition: Some(name),
    })
}

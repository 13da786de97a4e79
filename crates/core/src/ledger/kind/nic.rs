//! RDMA NICs: counted, and wanted on the switch of the GPUs they feed.

use crate::ledger::Book;
use crate::ledger::kind::{DeviceScheduler, Want, memory_of};
use crate::model::device::{Device, DeviceKind, Inventory, Isolation, Link};
use crate::model::grant::Slice;
use crate::model::reason::Obstacle;
use crate::model::units::{Bytes, Share};

/// The placing half of NICs.
#[derive(Clone, Copy, Debug)]
pub struct Nic;

impl DeviceScheduler for Nic {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Nic
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, _taken: u32) -> Result<Slice, Obstacle> {
        // It has nothing that can be divided.
        if let Some(profile) = &want.ask.partition {
            return Err(Obstacle::Profile { want: profile.clone() });
        }
        let memory = memory_of(want.ask.memory, device, inventory);
        if memory > Bytes::ZERO {
            return Err(Obstacle::Memory { want: memory, free: Bytes::ZERO });
        }
        if want.ask.share > Share::ZERO {
            return Err(Obstacle::Share { want: want.ask.share, free: Share::ZERO });
        }
        Ok(Slice {
            device: device.id.clone(),
            kind: device.kind,
            memory: Bytes::ZERO,
            memory_limit: Bytes::ZERO,
            share: Share::ZERO,
            share_limit: want.ask.share_limit.max(Share::WHOLE),
            exclusive: want.ask.exclusive,
            isolation: Isolation::None,
            partition: None,
        })
    }

    /// The closer to the container's GPUs the better, then the less used.
    fn score(&self, device: &Device, book: &Book, beside: &[&Device]) -> i64 {
        let closeness =
            beside.iter().map(|gpu| device.links.get(&gpu.id).copied().unwrap_or_default() as i64).sum::<i64>();
        closeness * 1_000_000 - i64::from(book.tasks)
    }

    fn wants_neighbour(&self) -> Option<Link> {
        Some(Link::SingleSwitch)
    }
}

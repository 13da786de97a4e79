//! Cambricon MLUs: shared by memory where the model can be split, whole otherwise.

use crate::ledger::kind::{DeviceScheduler, Want, shared_slice};
use crate::model::ask::MemoryAsk;
use crate::model::device::{Device, DeviceKind, Inventory};
use crate::model::grant::Slice;
use crate::model::reason::Obstacle;

/// The placing half of MLUs.
#[derive(Clone, Copy, Debug)]
pub struct Mlu;

impl DeviceScheduler for Mlu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Mlu
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, _taken: u32) -> Result<Slice, Obstacle> {
        if let Some(profile) = &want.ask.partition {
            return Err(Obstacle::Profile { want: profile.clone() });
        }
        // Alone on the card is not all of its memory where an amount is asked for.
        let amount = matches!(want.ask.memory, MemoryAsk::Bytes(_) | MemoryAsk::NodeUnits(_));
        let whole = want.ask.memory == MemoryAsk::Nothing || (want.ask.exclusive && !amount);
        // Only the 370 series can be split by memory.
        if !whole && !device.model.as_str().contains("370") {
            return Err(Obstacle::Model);
        }
        let mut slice = shared_slice(device, inventory, want)?;
        if whole {
            let memory = device.bookable_memory();
            (slice.memory, slice.memory_limit, slice.exclusive) = (memory, memory.max(device.memory), true);
        }
        Ok(slice)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::policy::{Placement, Policy};
    use crate::model::time::Time;
    use crate::model::units::Bytes;
    use crate::schedule::schedule;
    use crate::testing::cluster;

    #[test]
    fn a_whole_mlu_is_to_be_had_where_more_memory_is_promised_than_there_is() {
        let mut snapshot = cluster("node a mlu=1:16Gi:MLU270-S4\nwait p kind=mlu whole");
        let mut node = snapshot.nodes().next().unwrap().1.node().clone();
        node.inventory.devices[0].bookable_memory = Some(Bytes::gib(24));
        snapshot.put_node(node);
        let plan = schedule(&snapshot, &Policy::only(Placement::Binpack), Time(0));
        assert_eq!((plan.binds.len(), crate::audit(&snapshot, &plan)), (1, Vec::new()));
    }
}

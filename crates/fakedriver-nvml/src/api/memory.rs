//! Memory of a device.

use divvy_fakedriver::machine::{Machine, Unit};

use crate::abi::{Answer, Error, nvmlBAR1Memory_t, nvmlMemory_t, nvmlMemory_v2_t, version_of};
use crate::call::{card, device, get, put};

/// What is used of a device: of a card in MIG mode, what its instances use together.
pub(crate) fn used(machine: &Machine, unit: Unit) -> u64 {
    let parts = machine
        .units()
        .into_iter()
        .filter(|u| *u == unit || (unit.instance_index().is_none() && u.card_index() == unit.card_index()));
    parts.map(|u| machine.used(u)).sum()
}

pub(crate) fn nvmlDeviceGetMemoryInfo(device: u64, memory: *mut nvmlMemory_t) -> Answer {
    let (machine, unit) = self::device(device)?;
    let (total, used) = (machine.memory(unit), used(machine, unit) + machine.reserved(unit));
    put(memory, nvmlMemory_t { total, free: total.saturating_sub(used), used: used.min(total) })
}

pub(crate) fn nvmlDeviceGetMemoryInfo_v2(device: u64, memory: *mut nvmlMemory_v2_t) -> Answer {
    let (machine, unit) = self::device(device)?;
    let version = get(memory)?.version;
    if version != version_of::<nvmlMemory_v2_t>(2) {
        return Err(Error::FUNCTION_NOT_FOUND);
    }
    let (total, reserved, used) = (machine.memory(unit), machine.reserved(unit), used(machine, unit));
    put(memory, nvmlMemory_v2_t { version, total, reserved, free: total.saturating_sub(used + reserved), used })
}

pub(crate) fn nvmlDeviceGetBAR1MemoryInfo(device: u64, bar1Memory: *mut nvmlBAR1Memory_t) -> Answer {
    let (machine, card) = card(device)?;
    let (total, used) = (machine.spec.cards[card].model.bar1 << 20, 1 << 20);
    put(bar1Memory, nvmlBAR1Memory_t { total, free: total - used, used })
}

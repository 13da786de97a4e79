//! Cambricon MLUs, under 4paradigm's names (`mlunum`, `mlumem` in MiB) and under HAMi's (`vmlu`, `vmemory` in blocks of 256 MiB, `vcore`).

use divvy_core::ask::{DeviceAsk, Dialect, MemoryAsk};
use divvy_core::device::DeviceKind;
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::config::DialectConfig;
use crate::manifest::Container;
use crate::mistake::{Field, Mistake};
use crate::reading::{Hints, PostStartHint};

const MOST_CARDS: u64 = 1024;

/// The MLUs a container asks for: whole ones, or a slice of memory on each.
pub(super) fn read(
    container: &Container<'_>,
    config: &DialectConfig,
    dialect: Dialect,
    mistakes: &mut Vec<Mistake>,
) -> Option<DeviceAsk> {
    let names = &config.vgpu.names;
    let before = mistakes.len();
    let mut amount = |key: &str, unit: &str| container.amount(key, unit, dialect, mistakes);
    let old = (
        amount(&names.mlu_resource_name, "a number of MLUs"),
        amount(&names.mlu_resource_mem, "MiB as a whole number"),
    );
    let new = (amount(keys::HAMI_MLU_COUNT, "a number of MLUs"), amount(keys::HAMI_MLU_MEMORY, "blocks of 256 MiB"));
    let cores = amount(keys::HAMI_MLU_CORES, "percent, 0 to 100");
    if mistakes.len() > before || (old == (None, None) && new == (None, None) && cores.is_none()) {
        return None;
    }
    let mut wrong = |key: &str, problem: &str, mend: &str| {
        mistakes.push(Mistake::at(dialect, Field::resource(&container.name(), key), problem, mend));
        None
    };
    if old != (None, None) && (new != (None, None) || cores.is_some()) {
        return wrong(keys::HAMI_MLU_COUNT, "asks for MLUs under two names", "keep one of them");
    }
    let (count_key, memory_key, unit) = match old {
        (None, None) => (keys::HAMI_MLU_COUNT, keys::HAMI_MLU_MEMORY, 256u64),
        _ => (names.mlu_resource_name.as_str(), names.mlu_resource_mem.as_str(), 1),
    };
    let (count, memory) = if old == (None, None) { new } else { old };
    let count = match count {
        None => return wrong(count_key, "is missing", "add it: how many MLUs the rest is asked of"),
        Some(0) if memory.unwrap_or(0) == 0 && cores.unwrap_or(0) == 0 => return None,
        Some(0) => return wrong(count_key, "asks for parts of no MLU", "write 1 or more"),
        Some(count) if count > MOST_CARDS => {
            return wrong(count_key, "is more MLUs than any node has", "write how many");
        }
        Some(count) => count as u32,
    };
    let mib = match memory.unwrap_or(0).checked_mul(unit).filter(|mib| *mib <= i32::MAX as u64) {
        Some(mib) => mib,
        None => {
            return wrong(memory_key, "is more memory than any MLU has", "write MiB, or blocks of 256 MiB for vmemory");
        }
    };
    let cores = match cores {
        None => 0,
        Some(cores @ 0..=100) => cores as u32,
        Some(_) => return wrong(keys::HAMI_MLU_CORES, "is more than an MLU has", "write percent, 0 to 100"),
    };
    if mib == 0 && cores == 0 {
        return Some(DeviceAsk { kind: DeviceKind::Mlu, ..DeviceAsk::whole(count) });
    }
    let memory = if mib == 0 { MemoryAsk::Part(Share::WHOLE) } else { MemoryAsk::Bytes(Bytes::mib(mib)) };
    let share = Share(cores * 10);
    Some(DeviceAsk {
        kind: DeviceKind::Mlu,
        count,
        memory,
        share,
        share_limit: if share == Share::ZERO { Share::WHOLE } else { share },
        exclusive: cores == 100,
        ..DeviceAsk::default()
    })
}

/// What splits a card for 4paradigm's users runs after the container has started.
const SPLITTER: &str = "/usr/bin/smlu-containerd";

/// Asks for the splitter in a container with a part of an MLU. 4paradigm overwrote a hook of the user's; here both are known.
pub(super) fn hook(
    container: &Container<'_>,
    want: &DeviceAsk,
    dialect: Dialect,
    hints: &mut Hints,
    mistakes: &mut Vec<Mistake>,
) {
    if dialect != Dialect::Vgpu || !matches!(want.memory, MemoryAsk::Bytes(_)) {
        return;
    }
    let name = container.name();
    match container.post_start() {
        None => hints.post_start.push(PostStartHint { container: (*name).into(), command: vec![SPLITTER.into()] }),
        Some(theirs) if theirs.to_string().contains(SPLITTER) => {}
        Some(_) => mistakes.push(Mistake::at(
            dialect,
            Field::Spec(format!("container {name}: lifecycle.postStart")),
            "a part of an MLU is split off by a hook in the same place",
            format!("run {SPLITTER} in your own hook"),
        )),
    }
}

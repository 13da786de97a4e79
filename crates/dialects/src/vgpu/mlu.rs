//! Cambricon MLUs, under 4paradigm's names (`mlunum`, `mlumem` in MiB) and under HAMi's (`vmlu`, `vmemory` in blocks of 256 MiB, `vcore`).

use divvy_core::ask::{DeviceAsk, Dialect, MemoryAsk};
use divvy_core::device::DeviceKind;
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::config::DialectConfig;
use crate::manifest::Container;
use crate::mistake::{Field, Mistake};
use crate::reading::{Hints, PostStartHint};
use crate::vgpu::memory;

const MOST_CARDS: u64 = 1024;
/// MiB of one block of HAMi's `vmemory`.
const BLOCK: u64 = 256;

/// What a container says about MLUs, under either system's names.
struct Said<'n> {
    count_key: &'n str,
    count: Option<u64>,
    /// MiB.
    memory: Option<u64>,
    /// Percent.
    cores: Option<u64>,
}

/// The MLUs a container asks for: whole ones, or a slice of memory on each. Every mistake is named.
pub(super) fn read(
    container: &Container<'_>,
    config: &DialectConfig,
    dialect: Dialect,
    mistakes: &mut Vec<Mistake>,
) -> Option<DeviceAsk> {
    let names = &config.vgpu.names;
    let old = [names.mlu_resource_name.as_str(), &names.mlu_resource_mem];
    let new = [keys::HAMI_MLU_COUNT, keys::HAMI_MLU_MEMORY, keys::HAMI_MLU_CORES];
    let (speaks_old, speaks_new) =
        (old.iter().any(|key| container.names(key)), new.iter().any(|key| container.names(key)));
    let before = mistakes.len();
    let mut one = |count_key, memory_key: &str, block, cores_key: Option<&str>| Said {
        count_key,
        count: container.amount(count_key, "a number of MLUs", dialect, mistakes),
        memory: memory::mib(container, memory_key, block, dialect, mistakes),
        cores: cores_key.and_then(|key| container.amount(key, "percent, 0 to 100", dialect, mistakes)),
    };
    let said = match (speaks_old, speaks_new) {
        (false, false) => return None,
        (true, false) => one(old[0], old[1], 1, None),
        (false, true) => one(new[0], new[1], BLOCK, Some(new[2])),
        (true, true) => {
            let field = Field::resource(&container.name(), keys::HAMI_MLU_COUNT);
            mistakes.push(Mistake::at(dialect, field, "asks for MLUs under two names", "keep one of them"));
            return None;
        }
    };
    check(container, &said, dialect, mistakes);
    let count = said.count.filter(|count| mistakes.len() == before && *count > 0)?;
    Some(want(count as u32, said.memory.unwrap_or(0), said.cores.unwrap_or(0) as u32))
}

/// Names what cannot be: parts of no MLU, more MLUs than there are, more cores than one has.
fn check(container: &Container<'_>, said: &Said<'_>, dialect: Dialect, mistakes: &mut Vec<Mistake>) {
    let mut wrong = |key: &str, problem: &str, mend: &str| {
        mistakes.push(Mistake::at(dialect, Field::resource(&container.name(), key), problem, mend));
    };
    let parts = said.memory.unwrap_or(0) > 0 || said.cores.unwrap_or(0) > 0;
    match said.count {
        None if !container.names(said.count_key) => {
            wrong(said.count_key, "is missing", "add it: how many MLUs the rest is asked of");
        }
        Some(0) if parts => wrong(said.count_key, "asks for parts of no MLU", "write 1 or more"),
        Some(count) if count > MOST_CARDS => {
            wrong(said.count_key, "is more MLUs than any node has", "write how many");
        }
        _ => {}
    }
    if said.cores.is_some_and(|cores| cores > 100) {
        wrong(keys::HAMI_MLU_CORES, "is more than an MLU has", "write percent, 0 to 100");
    }
}

fn want(count: u32, mib: u64, cores: u32) -> DeviceAsk {
    if mib == 0 && cores == 0 {
        return DeviceAsk { kind: DeviceKind::Mlu, ..DeviceAsk::whole(count) };
    }
    let memory = if mib == 0 { MemoryAsk::Part(Share::WHOLE) } else { MemoryAsk::Bytes(Bytes::mib(mib)) };
    let share = Share(cores * 10);
    DeviceAsk {
        kind: DeviceKind::Mlu,
        count,
        memory,
        share,
        share_limit: if share == Share::ZERO { Share::WHOLE } else { share },
        exclusive: cores == 100,
        ..DeviceAsk::default()
    }
}

/// What splits a card for 4paradigm's users runs after the container has started.
const SPLITTER: &str = "/usr/bin/smlu-containerd";

/// Asks for the splitter in a container that wants a part of an MLU by 4paradigm's names, also where HAMi's reading holds of the rest.
/// 4paradigm overwrote a hook of the user's; here both are known.
pub(super) fn hook(
    container: &Container<'_>,
    want: &DeviceAsk,
    config: &DialectConfig,
    dialect: Dialect,
    hints: &mut Hints,
    mistakes: &mut Vec<Mistake>,
) {
    if !container.names(&config.vgpu.names.mlu_resource_name) || !matches!(want.memory, MemoryAsk::Bytes(_)) {
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

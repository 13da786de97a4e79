//! gpu-manager, and GPUSharing on top of it: hundredths of a card and blocks of 256 MiB in each container's limits.
//!
//! 1 to 99 is a part of one card, a multiple of 100 that many whole cards. GPUSharing insists that core and memory come together and
//! sets `vcuda-core-limit` for its users; both are done here.

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::config::{DialectConfig, VcudaFlavour};
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};

const DIALECT: Dialect = Dialect::GpuManager;

/// One block of `vcuda-memory`.
const BLOCK: u64 = 256 << 20;

/// GPUSharing's own words.
fn both() -> String {
    format!("Must supply both {} AND {}", keys::VCUDA_CORE, keys::VCUDA_MEMORY)
}

/// Reads each container's limits.
pub(crate) fn read(pod: &PodManifest<'_>, config: &DialectConfig) -> Spoken {
    let mut mistakes = Vec::new();
    let mut containers = Vec::new();
    let mut cores = Vec::new();
    let mut voice = None;
    for container in pod.containers() {
        let (has_core, has_memory) = (container.names(keys::VCUDA_CORE), container.names(keys::VCUDA_MEMORY));
        if !has_core && !has_memory {
            continue;
        }
        let name = container.name();
        voice.get_or_insert_with(|| {
            Field::resource(&name, if has_core { keys::VCUDA_CORE } else { keys::VCUDA_MEMORY })
        });
        let core = container.amount(
            keys::VCUDA_CORE,
            "hundredths of a card: 1 to 99, or a multiple of 100",
            DIALECT,
            &mut mistakes,
        );
        let memory = container.amount(keys::VCUDA_MEMORY, "blocks of 256 MiB", DIALECT, &mut mistakes);
        if (has_core && core.is_none()) || (has_memory && memory.is_none()) {
            continue; // said already
        }
        let whole_cards = core.is_some_and(|core| core >= 100 && core % 100 == 0);
        match (core, memory) {
            (Some(_), Some(_)) => {}
            (Some(_), None) if whole_cards && config.vcuda == VcudaFlavour::GpuManager => {}
            (core, _) => {
                let missing = if core.is_some() { keys::VCUDA_MEMORY } else { keys::VCUDA_CORE };
                mistakes.push(Mistake::at(
                    DIALECT,
                    Field::resource(&name, missing),
                    both(),
                    "add it to the container's limits",
                ));
                continue;
            }
        }
        let (core, memory) = (core.unwrap_or(0), memory.unwrap_or(0));
        if core == 0 && memory == 0 {
            continue;
        }
        let mut wrong = |key: &str, value: u64, problem: &str, mend: &str| {
            mistakes.push(Mistake::about(DIALECT, Field::resource(&name, key), &value.to_string(), problem, mend));
        };
        let want = match core {
            1..=99 if memory == 0 => {
                wrong(
                    keys::VCUDA_MEMORY,
                    0,
                    "part of a card without memory can run nothing",
                    "write blocks of 256 MiB, at least 1",
                );
                continue;
            }
            1..=99 => match memory.checked_mul(BLOCK) {
                Some(bytes) => DeviceAsk {
                    memory: MemoryAsk::Bytes(Bytes(bytes)),
                    share: Share(core as u32 * 10),
                    share_limit: Share(core as u32 * 10),
                    ..DeviceAsk::default()
                },
                None => {
                    wrong(
                        keys::VCUDA_MEMORY,
                        memory,
                        "is more memory than any card has",
                        "memory is counted in blocks of 256 MiB",
                    );
                    continue;
                }
            },
            0 => {
                wrong(
                    keys::VCUDA_CORE,
                    0,
                    "memory without compute can run nothing",
                    "write 1 to 99, or a multiple of 100",
                );
                continue;
            }
            _ if core % 100 != 0 || core > 102_400 => {
                let problem = "cores are greater than 100, must be multiple of 100";
                wrong(
                    keys::VCUDA_CORE,
                    core,
                    problem,
                    "write 1 to 99 for a part of a card, or 100 for each whole card",
                );
                continue;
            }
            _ => DeviceAsk::whole((core / 100) as u32),
        };
        cores.push(core);
        containers.push(ContainerAsk { name: (*name).into(), role: container.role, wants: vec![want] });
    }
    let Some(voice) = voice else { return Spoken::Silent };

    let written = pod.annotation(keys::VCUDA_CORE_LIMIT);
    if let Some(text) = &written {
        soften(text, &mut containers, &mut mistakes);
    }
    let mut draft = Draft::new(GpuAsk::of(DIALECT, containers), voice);
    // One annotation speaks for all containers: it is set where all say the same.
    if let (None, Some(core)) = (written, cores.first())
        && cores.iter().all(|other| other == core)
    {
        draft.hints.annotations.insert(keys::VCUDA_CORE_LIMIT.into(), core.to_string());
    }
    Spoken::from(Some(draft), DIALECT, mistakes)
}

/// `vcuda-core-limit` raises the hard limit of every part of a card to a soft one; 100 and more is the whole card.
fn soften(text: &str, containers: &mut [ContainerAsk], mistakes: &mut Vec<Mistake>) {
    let mut wrong = |problem: String, mend: String| {
        mistakes.push(Mistake::about(DIALECT, Field::annotation(keys::VCUDA_CORE_LIMIT), text, problem, mend));
    };
    let Ok(limit) = text.trim().parse::<u32>() else {
        return wrong("is not a number".into(), "write hundredths of a card, such as 80".into());
    };
    let limit = Share(limit.min(100) * 10);
    for container in containers {
        for want in container.wants.iter_mut().filter(|want| !want.exclusive) {
            if limit < want.share {
                let core = want.share.0 / 10;
                wrong(
                    format!("is below the vcuda-core of container {}", container.name),
                    format!("write at least {core}"),
                );
            }
            want.share_limit = limit.max(want.share);
        }
    }
}

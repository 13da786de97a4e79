//! gpu-manager, and GPUSharing on top of it: hundredths of a card and blocks of 256 MiB in each container's limits.
//!
//! 1 to 99 is a part of one card, a multiple of 100 that many whole cards. GPUSharing insists that core and memory come together and
//! sets `vcuda-core-limit` for its users; both are done here.

use std::num::IntErrorKind;

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::config::{DialectConfig, VcudaFlavour};
use crate::manifest::{Container, PodManifest};
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};

const DIALECT: Dialect = Dialect::GpuManager;

/// One block of `vcuda-memory`.
const BLOCK: u64 = 256 << 20;

/// 1024 cards: more than any node has is certainly a slip.
const MOST_CORES: u64 = 102_400;

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
    let mut in_parts = false;
    for container in pod.containers() {
        let Some(key) = [keys::VCUDA_CORE, keys::VCUDA_MEMORY].into_iter().find(|key| container.names(key)) else {
            continue;
        };
        let name = container.name();
        voice.get_or_insert_with(|| Field::resource(&name, key));
        let amounts = Amounts::read(&container, config, &mut mistakes);
        in_parts |= amounts.may_be_a_part();
        if let Some((core, want)) = amounts.want() {
            cores.push(core);
            containers.push(ContainerAsk { name: (*name).into(), role: container.role, wants: vec![want] });
        }
    }
    let Some(voice) = voice else { return Spoken::Silent };

    let written = pod.annotation(keys::VCUDA_CORE_LIMIT);
    // Nothing limits whole cards, so that gpu-manager never read it beside them.
    if let (Some(text), true) = (&written, in_parts) {
        soften(text, &mut containers, &mut mistakes);
    }
    let mut draft = Draft::new(GpuAsk::of(DIALECT, containers), voice);
    // GPUSharing set it at admission, for all containers together: it is set where all say the same.
    if let (VcudaFlavour::GpuSharing, None, Some(core)) = (config.vcuda, written, cores.first())
        && cores.iter().all(|other| other == core)
    {
        draft.hints.annotations.insert(keys::VCUDA_CORE_LIMIT.into(), core.to_string());
    }
    Spoken::from(Some(draft), DIALECT, mistakes)
}

/// What one container writes, as numbers.
struct Amounts {
    core: Option<u64>,
    memory: Option<u64>,
    /// Something is wrong with it, and was said.
    wrong: bool,
}

impl Amounts {
    /// Reads and judges both: whoever wrote two things wrongly is told of both.
    fn read(container: &Container<'_>, config: &DialectConfig, mistakes: &mut Vec<Mistake>) -> Amounts {
        let before = mistakes.len();
        let unit = "hundredths of a card: 1 to 99, or a multiple of 100";
        let core = container.amount(keys::VCUDA_CORE, unit, DIALECT, mistakes);
        let memory = container.amount(keys::VCUDA_MEMORY, "blocks of 256 MiB", DIALECT, mistakes);
        refuse_half(container, core, config, mistakes);
        let mut wrong = |key: &str, value: u64, problem: &str, mend: &str| {
            let field = Field::resource(&container.name(), key);
            mistakes.push(Mistake::about(DIALECT, field, &value.to_string(), problem, mend));
        };
        match core {
            Some(0) if memory.is_some_and(|blocks| blocks > 0) => wrong(
                keys::VCUDA_CORE,
                0,
                "memory without compute can run nothing",
                "write 1 to 99, or a multiple of 100",
            ),
            Some(core) if core > MOST_CORES => wrong(
                keys::VCUDA_CORE,
                core,
                "is more cards than any node has",
                "write 1 to 99 for a part of a card, or 100 for each whole card; ask per pod, not per job",
            ),
            Some(core) if core > 100 && core % 100 != 0 => wrong(
                keys::VCUDA_CORE,
                core,
                "cores are greater than 100, must be multiple of 100",
                "write 1 to 99 for a part of a card, or 100 for each whole card",
            ),
            _ => {}
        }
        match memory {
            Some(0) if matches!(core, Some(1..=99)) => wrong(
                keys::VCUDA_MEMORY,
                0,
                "part of a card without memory can run nothing",
                "write blocks of 256 MiB, at least 1",
            ),
            Some(blocks) if blocks.checked_mul(BLOCK).is_none() && !core.is_some_and(is_whole) => wrong(
                keys::VCUDA_MEMORY,
                blocks,
                "is more memory than any card has",
                "memory is counted in blocks of 256 MiB",
            ),
            _ => {}
        }
        Amounts { core, memory, wrong: mistakes.len() > before }
    }

    /// Does it ask for a part of a card, or might it once it is mended?
    fn may_be_a_part(&self) -> bool {
        self.core.is_none_or(|core| core != 0 && !is_whole(core))
    }

    /// The core it names and what that stands for; nothing where it asks for nothing, or wrongly.
    fn want(&self) -> Option<(u64, DeviceAsk)> {
        let core = self.core.filter(|core| *core > 0 && !self.wrong)?;
        if is_whole(core) {
            return Some((core, DeviceAsk::whole((core / 100) as u32)));
        }
        let share = Share(core as u32 * 10);
        let memory = MemoryAsk::Bytes(Bytes(self.memory?.checked_mul(BLOCK)?));
        Some((core, DeviceAsk { memory, share, share_limit: share, ..DeviceAsk::default() }))
    }
}

fn is_whole(core: u64) -> bool {
    core >= 100 && core.is_multiple_of(100)
}

/// Core and memory come together; only plain gpu-manager gives whole cards by core alone.
fn refuse_half(container: &Container<'_>, core: Option<u64>, config: &DialectConfig, mistakes: &mut Vec<Mistake>) {
    let missing = match (container.names(keys::VCUDA_CORE), container.names(keys::VCUDA_MEMORY)) {
        (false, true) => keys::VCUDA_CORE,
        (true, false) => keys::VCUDA_MEMORY,
        _ => return,
    };
    // A core that cannot be read or is no whole number of cards is told by itself; it may become whole cards.
    let may_be_whole = missing == keys::VCUDA_MEMORY && core.is_none_or(|core| core >= 100);
    if config.vcuda == VcudaFlavour::GpuManager && may_be_whole {
        return;
    }
    let field = Field::resource(&container.name(), missing);
    mistakes.push(Mistake::at(DIALECT, field, both(), "add it to the container's limits"));
}

/// `vcuda-core-limit` raises the hard limit of every part of a card to a soft one; 100 and more is the whole card. It speaks for all
/// containers, so that one below a container's own core takes nothing away from that container.
fn soften(text: &str, containers: &mut [ContainerAsk], mistakes: &mut Vec<Mistake>) {
    let mut wrong = |problem: &str| {
        let field = Field::annotation(keys::VCUDA_CORE_LIMIT);
        mistakes.push(Mistake::about(DIALECT, field, text, problem, "write hundredths of a card, such as 80"));
    };
    let limit = match text.trim().parse::<i64>() {
        Ok(limit @ 0..) => Share(limit.min(100) as u32 * 10),
        Ok(_) => return wrong("is negative"),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => Share::WHOLE,
            IntErrorKind::NegOverflow => return wrong("is negative"),
            _ => return wrong("is not a number"),
        },
    };
    let parts = containers.iter_mut().flat_map(|container| &mut container.wants).filter(|want| !want.exclusive);
    for want in parts {
        want.share_limit = limit.max(want.share);
    }
}

//! Aliyun gpushare: card memory in the node's own units (GiB or MiB), all containers of a pod on one card.
//!
//! `aliyun.com/gpu-count`, as a label or a resource, spreads the memory evenly over that many cards (as Alibaba Cloud's own scheduler
//! documents it); alone it asks for whole cards.

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk, Role, Topology};
use divvy_core::keys;
use serde_json::Value;

use crate::manifest::{Container, PodManifest};
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};

const DIALECT: Dialect = Dialect::Gpushare;

/// 4 TiB in MiB: no card has more.
const MOST_UNITS: u64 = 1 << 22;
const MOST_CARDS: u64 = 1024;

/// Reads each container's limits.
pub(crate) fn read(pod: &PodManifest<'_>) -> Spoken {
    let mut mistakes = Vec::new();
    let mut containers = Vec::new();
    let mut voice = None;
    let label = pod.label(keys::GPUSHARE_COUNT).map(|text| {
        let count = text.parse::<u64>().ok().filter(|count| (1..=MOST_CARDS).contains(count));
        if count.is_none() {
            let field = Field::label(keys::GPUSHARE_COUNT);
            let mend = format!("write 1 to {MOST_CARDS}");
            mistakes.push(Mistake::about(DIALECT, field, &text, "is not a number of cards", mend));
        }
        count
    });
    for container in pod.containers() {
        let Some(key) = [keys::GPUSHARE_MEMORY, keys::GPUSHARE_COUNT].into_iter().find(|key| container.names(key))
        else {
            continue;
        };
        let name = container.name();
        voice.get_or_insert_with(|| Field::resource(&name, key));
        let before = mistakes.len();
        for key in [keys::GPUSHARE_MEMORY, keys::GPUSHARE_COUNT] {
            if container.names(key) && limit(pod, &container, key).is_none() {
                let field = Field::resource(&name, key);
                mistakes.push(Mistake::at(DIALECT, field, "is only requested", "write it under limits"));
            }
        }
        let units = container.amount(
            keys::GPUSHARE_MEMORY,
            "the node's units of memory, without a suffix",
            DIALECT,
            &mut mistakes,
        );
        let count = container.amount(keys::GPUSHARE_COUNT, "a whole number of cards", DIALECT, &mut mistakes);
        let written = |key: &str, value: u64| limit(pod, &container, key).unwrap_or_else(|| value.to_string());
        let mut wrong = |key: &str, value: u64, problem: String, mend: String| {
            let field = Field::resource(&name, key);
            mistakes.push(Mistake::about(DIALECT, field, &written(key, value), problem, mend));
        };
        let bare = || "gpu-mem counts the node's units, GiB or MiB: write the bare number".to_owned();
        if let Some(units) = units.filter(|units| !is_bare(&written(keys::GPUSHARE_MEMORY, *units))) {
            wrong(keys::GPUSHARE_MEMORY, units, "is not a number of units".into(), bare());
        } else if let Some(units) = units.filter(|units| *units > MOST_UNITS) {
            wrong(keys::GPUSHARE_MEMORY, units, "is more memory than any card has".into(), bare());
        }
        if let Some(count) = count.filter(|count| *count > MOST_CARDS) {
            let mend = format!("write 1 to {MOST_CARDS}");
            wrong(keys::GPUSHARE_COUNT, count, "is more cards than any node has".into(), mend);
        }
        let label = label.flatten();
        if let (Some(count), Some(label)) = (count, label)
            && count != label
        {
            wrong(
                keys::GPUSHARE_COUNT,
                count,
                format!("contradicts the label, which says {label}"),
                "say it once".into(),
            );
        }
        // The label spreads memory; where none is asked for there is nothing to spread.
        let cards = count.or(label.filter(|_| units.is_some_and(|units| units > 0)));
        if let (Some(units), Some(cards @ 1..)) = (units, cards)
            && units % cards != 0
        {
            let problem = format!("cannot be spread evenly over {cards} cards");
            wrong(keys::GPUSHARE_MEMORY, units, problem, format!("write a multiple of {cards}"));
        }
        if mistakes.len() > before {
            continue;
        }
        let want = match (units.unwrap_or(0), cards) {
            (0, None | Some(0)) => continue,
            (0, Some(cards)) => DeviceAsk::whole(cards as u32),
            (units, cards) => {
                let cards = cards.unwrap_or(1).max(1);
                DeviceAsk { count: cards as u32, memory: MemoryAsk::NodeUnits(units / cards), ..DeviceAsk::default() }
            }
        };
        containers.push(ContainerAsk { name: (*name).into(), role: container.role, wants: vec![want] });
    }
    let Some(voice) = voice else { return Spoken::Silent };
    let mut ask = GpuAsk::of(DIALECT, containers);
    let sharing = ask
        .containers
        .iter()
        .filter(|container| container.wants.iter().all(|want| !want.exclusive && want.count == 1))
        .count();
    if sharing > 1 && sharing == ask.containers.len() {
        ask.topology = Topology::SameDevice;
    }
    Spoken::from(Some(Draft::new(ask, voice)), DIALECT, mistakes)
}

/// A limit as it is written. gpushare counts limits only, and Kubernetes refuses such a resource without one.
fn limit(pod: &PodManifest<'_>, container: &Container<'_>, key: &str) -> Option<String> {
    let list = if container.role == Role::Main { "containers" } else { "initContainers" };
    match pod.spec(list)?.get(container.index)?.get("resources")?.get("limits")?.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// A number without a suffix. `k` alone passes: the API server itself writes 16000 as `16k`, so a user may never have written it.
fn is_bare(text: &str) -> bool {
    let digits = text.strip_suffix('k').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

//! Our own spelling: amounts in a container's resources, everything else as annotations of the pod.
//!
//! | in resources | meaning |
//! |---|---|
//! | `gpu` | how many devices; alone, whole ones |
//! | `gpu-memory` | bytes per device, guaranteed |
//! | `gpu-share` | thousandths of each device's time, guaranteed |
//! | `gpu-memory-limit`, `gpu-share-limit` | up to how much when others leave it idle |

pub(crate) mod render;
pub(crate) mod wishes;

use divvy_core::ask::{Class, ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use serde_json::Value;

use crate::manifest::{Container, PodManifest};
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};
use crate::suggest;
use wishes::Wishes;

const DIALECT: Dialect = Dialect::Native;

/// More devices than any node has: certainly a slip.
const MOST_DEVICES: u64 = 1024;

/// Less memory than any CUDA context needs: certainly a forgotten suffix.
const LEAST_MEMORY: u64 = 1 << 20;

/// Reads the amounts; limits that the annotations set for all containers come from `wishes`.
pub(crate) fn read(pod: &PodManifest<'_>, wishes: &Wishes) -> Spoken {
    let mut mistakes = Vec::new();
    let mut containers = Vec::new();
    let mut voice = None;
    for container in pod.containers() {
        let Some(key) = keys::USER_RESOURCES.into_iter().find(|key| container.names(key)) else { continue };
        let name = container.name();
        voice.get_or_insert_with(|| Field::resource(&name, key));
        if let Some(want) = Amounts::read(&container, &mut mistakes).want(wishes, &mut mistakes) {
            containers.push(ContainerAsk { name: (*name).into(), role: container.role, wants: vec![want] });
        }
    }
    Spoken::from(voice.map(|voice| Draft::new(GpuAsk::of(DIALECT, containers), voice)), DIALECT, mistakes)
}

/// What one container writes, as numbers.
struct Amounts {
    container: String,
    count: Option<u64>,
    memory: Option<u64>,
    memory_limit: Option<u64>,
    share: Option<Share>,
    share_limit: Option<Share>,
    /// Something could not be read: what is left must not be judged.
    incomplete: bool,
}

impl Amounts {
    fn read(container: &Container<'_>, mistakes: &mut Vec<Mistake>) -> Amounts {
        let name = container.name().into_owned();
        let before = mistakes.len();
        let bytes = "bytes, such as 8Gi";
        let mut memory = |key| {
            let amount = container.amount(key, bytes, DIALECT, mistakes)?;
            if (1..LEAST_MEMORY).contains(&amount) {
                let problem = format!("is {amount} bytes");
                let mend = format!("memory is counted in bytes: write {amount}Gi or {amount}Mi");
                mistakes.push(Mistake::about(DIALECT, Field::resource(&name, key), &amount.to_string(), problem, mend));
            }
            Some(amount)
        };
        let (memory, memory_limit) = (memory(keys::GPU_MEMORY), memory(keys::GPU_MEMORY_LIMIT));
        let mut share = |key| {
            let amount =
                container.amount(key, "thousandths of a device's time: 300 is 0.3 of it", DIALECT, mistakes)?;
            if amount <= u64::from(Share::WHOLE.0) {
                return Some(Share(amount as u32));
            }
            mistakes.push(Mistake::about(
                DIALECT,
                Field::resource(&name, key),
                &amount.to_string(),
                "is more than one device's time",
                format!("write 1 to 1000 thousandths per device; for more devices raise {}", keys::GPU),
            ));
            None
        };
        let (share, share_limit) = (share(keys::GPU_SHARE), share(keys::GPU_SHARE_LIMIT));
        let count = container.amount(keys::GPU, "a whole number of devices", DIALECT, mistakes);
        let incomplete = mistakes.len() > before;
        Amounts { container: name, count, memory, memory_limit, share, share_limit, incomplete }
    }

    fn want(self, wishes: &Wishes, mistakes: &mut Vec<Mistake>) -> Option<DeviceAsk> {
        if self.incomplete {
            return None;
        }
        let mut wrong = |key: &str, value: String, problem: &str, mend: String| {
            mistakes.push(Mistake::about(DIALECT, Field::resource(&self.container, key), &value, problem, mend));
        };
        let fraction = self.memory.is_some() || self.share.is_some();
        let count = match self.count {
            Some(0) if !fraction && self.memory_limit.is_none() && self.share_limit.is_none() => return None,
            Some(0) => {
                wrong(
                    keys::GPU,
                    "0".into(),
                    "asks for parts of no device",
                    "write 1 or more, or remove the rest".into(),
                );
                return None;
            }
            Some(count) if count > MOST_DEVICES => {
                wrong(
                    keys::GPU,
                    count.to_string(),
                    "is more devices than any node has",
                    "ask per pod, not per job".into(),
                );
                return None;
            }
            Some(count) => count as u32,
            None => 1,
        };
        if !fraction {
            for (key, value) in [
                (keys::GPU_MEMORY_LIMIT, self.memory_limit.map(|v| v.to_string())),
                (keys::GPU_SHARE_LIMIT, self.share_limit.map(|v| v.0.to_string())),
            ] {
                let Some(value) = value else { continue };
                let mend = format!("add {} or {} (0 books nothing)", keys::GPU_MEMORY, keys::GPU_SHARE);
                wrong(key, value, "is a limit without a request", mend);
            }
            return Some(DeviceAsk::whole(count));
        }

        let memory = match (self.memory, self.share) {
            (Some(0), _) | (None, None | Some(Share::ZERO)) => MemoryAsk::Nothing,
            (Some(bytes), _) => MemoryAsk::Bytes(Bytes(bytes)),
            (None, Some(share)) => MemoryAsk::Part(share),
        };
        let share = self.share.unwrap_or(Share::ZERO);
        if self.memory_limit == Some(0) {
            wrong(
                keys::GPU_MEMORY_LIMIT,
                "0".into(),
                "leaves the container no memory",
                "remove it, or write bytes".into(),
            );
        }
        if self.share_limit == Some(Share::ZERO) {
            wrong(
                keys::GPU_SHARE_LIMIT,
                "0".into(),
                "leaves the container no time",
                "remove it, or write 1 to 1000".into(),
            );
        }
        if let (Some(limit), MemoryAsk::Bytes(booked)) = (self.memory_limit, memory)
            && limit < booked.0
        {
            let mend = format!("raise it to at least {booked}, or lower {}", keys::GPU_MEMORY);
            wrong(keys::GPU_MEMORY_LIMIT, limit.to_string(), "is below the memory asked for", mend);
        }
        if let Some(limit) = self.share_limit
            && limit < share
        {
            let mend = format!("raise it to at least {}, or lower {}", share.0, keys::GPU_SHARE);
            wrong(keys::GPU_SHARE_LIMIT, limit.0.to_string(), "is below the share asked for", mend);
        }
        let mut want = DeviceAsk { count, memory, share, ..DeviceAsk::default() };
        let memory_limit = self.memory_limit.map(|bytes| MemoryAsk::Bytes(Bytes(bytes)));
        wishes.limit(&mut want, memory_limit, self.share_limit, mistakes);
        Some(want)
    }
}

/// Keys under our domain that mean nothing, or mean nothing where they stand.
pub(crate) fn refuse_strangers(pod: &PodManifest<'_>, mistakes: &mut Vec<Mistake>) {
    let pod_level = pod.spec("resources").into_iter().flat_map(|resources| {
        ["limits", "requests"]
            .into_iter()
            .filter_map(|list| resources.get(list)?.as_object())
            .flat_map(|list| list.keys())
    });
    for key in pod_level.filter(|key| key.starts_with(keys::DOMAIN)) {
        let field = Field::Spec(format!("spec.resources, {key}"));
        mistakes.push(Mistake::at(DIALECT, field, "devices belong to containers", "move it to the container's limits"));
    }
    for container in pod.containers() {
        for key in container.resource_keys() {
            let field = || Field::resource(&container.name(), key);
            if keys::USER_ANNOTATIONS.contains(&key) && !keys::USER_RESOURCES.contains(&key) {
                mistakes.push(Mistake::at(
                    DIALECT,
                    field(),
                    "is an annotation, not a resource",
                    "move it to the pod's annotations",
                ));
            } else if is_stranger(key) && !keys::USER_RESOURCES.contains(&key) {
                mistakes.push(unknown(field(), key, &keys::USER_RESOURCES));
            }
        }
    }
    for key in pod.annotation_keys() {
        let field = || Field::annotation(key);
        if keys::USER_RESOURCES.contains(&key) && !keys::USER_ANNOTATIONS.contains(&key) {
            mistakes.push(Mistake::at(
                DIALECT,
                field(),
                "is a resource, not an annotation",
                "move it to the container's limits",
            ));
        } else if is_stranger(key) && !keys::USER_ANNOTATIONS.contains(&key) {
            mistakes.push(unknown(field(), key, &keys::USER_ANNOTATIONS));
        }
    }
    for key in pod.label_keys() {
        let field = || Field::label(key);
        if keys::USER_ANNOTATIONS.contains(&key) || keys::USER_RESOURCES.contains(&key) {
            let place =
                if keys::USER_ANNOTATIONS.contains(&key) { "the pod's annotations" } else { "the container's limits" };
            mistakes.push(Mistake::at(DIALECT, field(), "is not read as a label", format!("move it to {place}")));
        } else if is_stranger(key) {
            mistakes.push(unknown(field(), key, &keys::USER_ANNOTATIONS));
        }
    }
}

fn is_stranger(key: &str) -> bool {
    key.starts_with(keys::DOMAIN) && !keys::INTERNAL.contains(&key)
}

fn unknown(field: Field, key: &str, known: &[&'static str]) -> Mistake {
    let everything = keys::USER_RESOURCES.into_iter().chain(keys::USER_ANNOTATIONS);
    let mend = match suggest::nearest(key, known.iter().copied()).or_else(|| suggest::nearest(key, everything)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known here: {}", known.join(", ")),
    };
    Mistake::at(DIALECT, field, "is not a key of Divvy", mend)
}

/// What only Divvy writes. An earlier pass of admission may have been here already: where a key says exactly what we would write, it is
/// ours; anything else was written by a user. Returns the class found beside our own ask.
pub(crate) fn refuse_internal(
    pod: &PodManifest<'_>,
    draft: Option<&Draft>,
    mistakes: &mut Vec<Mistake>,
) -> Option<Class> {
    let mend = "remove it: Divvy writes it";
    let written = pod.annotation(keys::ASK);
    let ours = |text: &str| {
        let found: Option<GpuAsk> = serde_json::from_str(text).ok();
        found.is_some() && found.as_ref() == draft.map(|draft| &draft.ask)
    };
    let been_here = written.as_deref().is_some_and(ours);
    let mut class_now = None;
    for key in pod.annotation_keys().filter(|key| keys::INTERNAL.contains(key)) {
        let value = pod.annotation(key).unwrap_or_default();
        if been_here && key == keys::ASK {
            continue;
        }
        if been_here && key == keys::CLASS_NOW {
            class_now = serde_json::from_value::<Class>(Value::String(value.to_string())).ok();
            if class_now.is_some() {
                continue;
            }
        }
        mistakes.push(Mistake::about(DIALECT, Field::annotation(key), &value, "is not a user's to write", mend));
    }
    let in_gang = been_here && draft.is_some_and(|draft| draft.ask.gang.is_some());
    for key in pod.label_keys().filter(|key| keys::INTERNAL.contains(key)) {
        if in_gang && key == keys::GANG_MEMBER {
            continue;
        }
        mistakes.push(Mistake::at(DIALECT, Field::label(key), "is not a user's to write", mend));
    }
    for container in pod.containers() {
        for key in container.resource_keys().into_iter().filter(|key| keys::INTERNAL.contains(key)) {
            let name = container.name();
            let expected = draft.and_then(|draft| draft.hints.slots.get(&*name)).copied().unwrap_or(0);
            let amount = container.amount(key, "nothing", DIALECT, &mut Vec::new());
            if key == keys::SLOT && amount == Some(u64::from(expected)) {
                continue;
            }
            mistakes.push(Mistake::at(DIALECT, Field::resource(&name, key), "is not a user's to write", mend));
        }
    }
    class_now
}

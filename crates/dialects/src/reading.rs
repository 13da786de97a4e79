//! The one answer: which dialect a pod speaks, what it asks for, or everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::ask::{Class, ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk, Role};
use divvy_core::device::DeviceKind;
use divvy_core::id::ContainerName;
use divvy_core::units::Share;

use crate::config::DialectConfig;
use crate::gpu_manager;
use crate::gpushare;
use crate::guard;
use crate::kubegpu;
use crate::kubeshare;
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::native;
use crate::vgpu;

/// What a manifest says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// It asks for no device. (It may still name our scheduler: [`DialectConfig::is_our_scheduler`].)
    NotOurs,
    /// It asks for this.
    Ask(Box<GpuAsk>, Hints),
    /// It asks for something, and this is everything that is wrong with it. Never empty.
    Refused(Vec<Mistake>),
}

/// What admission should add to the pod so that its user finds what the emulated system would have added. Only additions: nothing here
/// replaces or removes what the user wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Device-plugin slots per container: one per device it asks for.
    pub slots: BTreeMap<ContainerName, u32>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
    /// Resources to add to limits (and requests).
    pub resources: Vec<ResourceHint>,
    /// Environment variables to append; also to containers that ask for nothing, which must see no device whatever their image says.
    pub env: Vec<EnvHint>,
    /// Commands to run right after a container has started.
    pub post_start: Vec<PostStartHint>,
    /// The class an earlier pass of admission wrote, found beside the very ask we would write. The caller knows which class it would
    /// write; if this is another, a user wrote it.
    pub class_now: Option<Class>,
}

/// A resource the emulated system's admission adds to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceHint {
    /// The container.
    pub container: ContainerName,
    /// The resource's name.
    pub resource: String,
    /// How much.
    pub amount: u64,
}

/// An environment variable the emulated system's admission adds to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvHint {
    /// The container.
    pub container: ContainerName,
    /// The variable's name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A command the emulated system's admission has a container run after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostStartHint {
    /// The container.
    pub container: ContainerName,
    /// The command and its arguments.
    pub command: Vec<String>,
}

/// What one dialect made of a pod.
pub(crate) enum Spoken {
    /// The pod has none of this dialect's words, or they ask for nothing.
    Silent,
    /// It asks for this.
    Says(Box<Draft>),
    /// It speaks this dialect, wrongly. Beside the mistakes: who would ask, as far as can be told, for nothing in particular.
    Wrong(Box<GpuAsk>, Vec<Mistake>),
}

/// An ask, and where it was found.
pub(crate) struct Draft {
    pub(crate) ask: GpuAsk,
    pub(crate) hints: Hints,
    /// One place where this dialect speaks.
    pub(crate) voice: Field,
}

impl Draft {
    pub(crate) fn new(ask: GpuAsk, voice: Field) -> Draft {
        Draft { ask, hints: Hints::default(), voice }
    }
}

impl Spoken {
    /// The draft, unless something was wrong.
    pub(crate) fn from(draft: Option<Draft>, dialect: Dialect, mistakes: Vec<Mistake>) -> Spoken {
        match draft {
            draft if !mistakes.is_empty() => Spoken::Wrong(Box::new(askers(draft, dialect, &mistakes)), mistakes),
            Some(draft) if !draft.ask.containers.is_empty() => Spoken::Says(Box::new(draft)),
            _ => Spoken::Silent,
        }
    }
}

/// The containers that were understood, and those whose resources were not.
fn askers(draft: Option<Draft>, dialect: Dialect, mistakes: &[Mistake]) -> GpuAsk {
    let mut containers = draft.map_or_else(Vec::new, |draft| draft.ask.containers);
    for mistake in mistakes {
        if let Field::Resource { container, .. } = &mistake.field
            && !containers.iter().any(|known| known.name.as_str() == container)
        {
            let name = container.as_str().into();
            containers.push(ContainerAsk { name, role: Role::Main, wants: Vec::new() });
        }
    }
    GpuAsk::of(dialect, containers)
}

/// Reads a pod as it is created.
///
/// Total and deterministic: every JSON value has a reading, and the same pod under the same configuration has the same one.
pub fn parse(pod: &PodManifest<'_>, config: &DialectConfig) -> Reading {
    if !pod.is_pod() {
        return Reading::NotOurs;
    }
    let mut mistakes = Vec::new();
    native::refuse_strangers(pod, &mut mistakes);
    let wishes = native::wishes::read(pod, config, &mut mistakes);

    let mut drafts = Vec::new();
    let mut wrong = Vec::new();
    let mut misunderstood = Vec::new();
    let spoken = [
        native::read(pod, &wishes),
        kubeshare::read(pod),
        kubegpu::read(pod, config),
        gpu_manager::read(pod, config),
        gpushare::read(pod),
        vgpu::read(pod, config),
    ];
    for spoken in spoken {
        match spoken {
            Spoken::Silent => {}
            Spoken::Says(draft) => drafts.push(*draft),
            Spoken::Wrong(askers, theirs) => {
                wrong.push((askers.dialect, theirs[0].field.clone()));
                mistakes.extend(theirs);
                misunderstood.push(askers);
            }
        }
    }
    refuse_disagreement(&drafts, &wrong, &mut mistakes);

    let mut drafts = drafts.into_iter();
    let draft = drafts.next().map(|mut draft| {
        native::wishes::overlay(&wishes, &mut draft.ask, &mut mistakes);
        draft.hints.slots = slots(&draft.ask);
        for other in drafts {
            draft.hints.annotations.extend(other.hints.annotations);
        }
        draft.hints.env.extend(guard::blindfolds(pod, &draft.ask));
        mistakes.extend(guard::tricks(pod, &draft.ask, config));
        draft
    });
    // Ways around a grant are told together with the rest, not once the rest is mended.
    for askers in &misunderstood {
        mistakes.extend(guard::tricks(pod, askers, config));
    }
    if draft.is_none() && wrong.is_empty() {
        native::wishes::refuse_without_ask(&wishes, &mut mistakes);
    }
    let class_now = native::refuse_internal(pod, draft.as_ref(), &mut mistakes);

    match draft {
        _ if !mistakes.is_empty() => {
            let mut told = BTreeSet::new();
            mistakes.retain(|mistake| told.insert(mistake.clone()));
            Reading::Refused(mistakes)
        }
        Some(draft) => Reading::Ask(Box::new(draft.ask), Hints { class_now, ..draft.hints }),
        None => Reading::NotOurs,
    }
}

/// One slot per device of each container.
fn slots(ask: &GpuAsk) -> BTreeMap<ContainerName, u32> {
    let count =
        |container: &ContainerAsk| container.wants.iter().fold(0u32, |sum, want| sum.saturating_add(want.count));
    ask.containers.iter().map(|container| (container.name.clone(), count(container))).collect()
}

/// Two dialects may say the same thing; if they do not, the user has to choose.
fn refuse_disagreement(drafts: &[Draft], wrong: &[(Dialect, Field)], mistakes: &mut Vec<Mistake>) {
    let said =
        |draft: &Draft| format!("{} ({}) asks for {}", title(draft.ask.dialect), draft.voice, describe(&draft.ask));
    let same = |a: &GpuAsk, b: &GpuAsk| GpuAsk { dialect: a.dialect, ..b.clone() } == *a;
    let mend = "write the request in one dialect and remove the other's keys";
    if let Some((first, rest)) = drafts.split_first() {
        for other in rest.iter().filter(|other| !same(&first.ask, &other.ask)) {
            let problem = format!("two dialects disagree: {}, but {}", said(first), said(other));
            mistakes.push(Mistake::at(first.ask.dialect, other.voice.clone(), problem, mend));
        }
    }
    let mut speakers: Vec<(Dialect, &Field)> = drafts.iter().map(|draft| (draft.ask.dialect, &draft.voice)).collect();
    speakers.extend(wrong.iter().map(|(dialect, field)| (*dialect, field)));
    if let (false, [(one, there), (other, here), ..]) = (wrong.is_empty(), speakers.as_slice()) {
        let problem = format!("the pod speaks two dialects: {} ({there}) and {} ({here})", title(*one), title(*other));
        mistakes.push(Mistake::at(*one, (*here).clone(), problem, mend));
    }
}

/// A dialect's name as its users know it.
pub(crate) fn title(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Native => "Divvy",
        Dialect::Kubeshare => "KubeShare",
        Dialect::Kubegpu => "KubeGPU",
        Dialect::GpuManager => "gpu-manager",
        Dialect::Gpushare => "Aliyun gpushare",
        Dialect::Vgpu => "4paradigm vGPU",
        Dialect::Hami => "HAMi",
    }
}

/// An ask in a few words.
pub(crate) fn describe(ask: &GpuAsk) -> String {
    let containers: Vec<String> = ask
        .containers
        .iter()
        .map(|container| {
            let wants: Vec<String> = container.wants.iter().map(describe_want).collect();
            format!("{} for container {}", wants.join(" and "), container.name)
        })
        .collect();
    containers.join(", ")
}

fn describe_want(want: &DeviceAsk) -> String {
    let kind = match want.kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::Mlu => "MLU",
        DeviceKind::Nic => "NIC",
    };
    let memory = match want.memory {
        MemoryAsk::Nothing => "no memory booked".to_owned(),
        MemoryAsk::Bytes(bytes) => format!("{bytes} of memory"),
        MemoryAsk::Part(Share::WHOLE) => "all memory".to_owned(),
        MemoryAsk::Part(part) => format!("{part} of the memory"),
        MemoryAsk::NodeUnits(units) => format!("{units} units of memory"),
    };
    let partition = want.partition.as_deref().map(|p| format!(" partition {p}")).unwrap_or_default();
    if want.exclusive {
        return format!("{} whole {kind}{partition} ({memory})", want.count);
    }
    format!("{} {kind}{partition} ({memory}, {} to {} of its time)", want.count, want.share, want.share_limit)
}

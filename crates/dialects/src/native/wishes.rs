//! What a pod's annotations say about its ask as a whole: which devices, how close, in which company, under which policy. They may
//! stand beside an ask written in any dialect.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_core::ask::{
    Class, DeviceAsk, DeviceRule, Dialect, Gang, GpuAsk, MemoryAsk, ModelPattern, ModelRule, PolicyChoice, Topology,
};
use divvy_core::device::{DeviceKind, Isolation, Link};
use divvy_core::id::DeviceId;
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};
use serde_json::Value;

use crate::config::DialectConfig;
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::{quantity, suggest};

const DIALECT: Dialect = Dialect::Native;

/// The policies everybody has.
const POLICIES: [&str; 9] =
    ["frag", "binpack", "spread", "kubeshare", "kubegpu", "gpushare", "gpu-manager", "vgpu", "hami"];

/// How the devices of a container may be asked to lie, closest first.
pub(crate) const TOPOLOGIES: [(&str, Topology); 10] = [
    ("best", Topology::Best),
    ("nvlink", Topology::AtLeast(Link::NvLink)),
    ("same-board", Topology::AtLeast(Link::SameBoard)),
    ("single-switch", Topology::AtLeast(Link::SingleSwitch)),
    ("multi-switch", Topology::AtLeast(Link::MultiSwitch)),
    ("host-bridge", Topology::AtLeast(Link::HostBridge)),
    ("same-cpu", Topology::AtLeast(Link::SameCpu)),
    ("same-numa", Topology::SameNuma),
    ("same-device", Topology::SameDevice),
    ("spread", Topology::Spread),
];

/// As a memory limit: whatever the device has left.
pub(crate) const ALL: &str = "all";

/// The annotations, understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    memory_limit: Option<MemoryAsk>,
    share_limit: Option<Share>,
    models: ModelRule,
    devices: DeviceRule,
    topology: Option<Topology>,
    class: Option<Class>,
    gang: Option<Gang>,
    policy: Option<PolicyChoice>,
    isolation: Vec<Isolation>,
    expected_duration: Option<u64>,
    min_runtime: Option<u64>,
    /// The first key that was written.
    first: Option<&'static str>,
}

/// Reads them all; what cannot be read goes to `mistakes`.
pub(crate) fn read(pod: &PodManifest<'_>, config: &DialectConfig, mistakes: &mut Vec<Mistake>) -> Wishes {
    let mut scribe = Scribe { pod, mistakes };
    let mut wishes = Wishes {
        memory_limit: scribe.read(keys::GPU_MEMORY_LIMIT, memory_limit),
        share_limit: scribe.read(keys::GPU_SHARE_LIMIT, share_limit),
        models: ModelRule {
            only: scribe.read(keys::GPU_MODEL, patterns).unwrap_or_default(),
            avoid: scribe.read(keys::GPU_MODEL_AVOID, patterns).unwrap_or_default(),
        },
        devices: DeviceRule {
            only: scribe.read(keys::GPU_UUID, device_ids).unwrap_or_default(),
            avoid: scribe.read(keys::GPU_UUID_AVOID, device_ids).unwrap_or_default(),
        },
        topology: scribe.read(keys::TOPOLOGY, topology),
        class: scribe.read(keys::CLASS, class),
        gang: None,
        policy: scribe.read(keys::POLICY, |text| policy(text, config)),
        isolation: scribe.read(keys::ISOLATION, isolation).unwrap_or_default(),
        expected_duration: scribe.read(keys::EXPECTED_DURATION, duration),
        min_runtime: scribe.read(keys::MIN_RUNTIME, duration),
        first: keys::USER_ANNOTATIONS.into_iter().find(|key| pod.annotation(key).is_some()),
    };
    wishes.gang = scribe.gang();
    for (key, clash) in [
        (keys::GPU_MODEL_AVOID, wishes.models.only.iter().any(|model| wishes.models.avoid.contains(model))),
        (keys::GPU_UUID_AVOID, wishes.devices.only.iter().any(|id| wishes.devices.avoid.contains(id))),
    ] {
        if clash {
            let problem = "avoids what the pod insists on";
            mistakes.push(Mistake::at(DIALECT, Field::annotation(key), problem, "remove it from one of the two lists"));
        }
    }
    wishes
}

/// Adds the wishes to an ask, of whatever dialect. Where the dialect said something else, the user has to choose.
pub(crate) fn overlay(wishes: &Wishes, ask: &mut GpuAsk, mistakes: &mut Vec<Mistake>) {
    let mut clash = |key: &str, theirs: bool| {
        if theirs {
            let problem = format!("says something else than the pod's {} keys", crate::reading::title(ask.dialect));
            mistakes.push(Mistake::at(DIALECT, Field::annotation(key), problem, "remove one of the two"));
        }
        !theirs
    };
    if let Some(topology) = wishes.topology
        && clash(keys::TOPOLOGY, !matches!(ask.topology, Topology::Best) && ask.topology != topology)
    {
        ask.topology = topology;
    }
    if let Some(class) = wishes.class
        && clash(keys::CLASS, ask.class.is_some_and(|theirs| theirs != class))
    {
        ask.class = Some(class);
    }
    if let Some(gang) = &wishes.gang
        && clash(keys::GANG, ask.gang.as_ref().is_some_and(|theirs| theirs != gang))
    {
        ask.gang = Some(gang.clone());
    }
    if let Some(policy) = &wishes.policy
        && clash(keys::POLICY, ask.policy.as_ref().is_some_and(|theirs| theirs != policy))
    {
        ask.policy = Some(policy.clone());
    }
    if !wishes.isolation.is_empty()
        && clash(keys::ISOLATION, !ask.isolation.is_empty() && ask.isolation != wishes.isolation)
    {
        ask.isolation = wishes.isolation.clone();
    }
    if !wishes.models.only.is_empty()
        && clash(keys::GPU_MODEL, !ask.models.only.is_empty() && ask.models.only != wishes.models.only)
    {
        ask.models.only = wishes.models.only.clone();
    }
    if !wishes.devices.only.is_empty()
        && clash(keys::GPU_UUID, !ask.devices.only.is_empty() && ask.devices.only != wishes.devices.only)
    {
        ask.devices.only = wishes.devices.only.clone();
    }
    // What is to be avoided adds up.
    ask.models
        .avoid
        .extend(wishes.models.avoid.iter().filter(|m| !ask.models.avoid.contains(m)).cloned().collect::<Vec<_>>());
    ask.devices
        .avoid
        .extend(wishes.devices.avoid.iter().filter(|d| !ask.devices.avoid.contains(d)).cloned().collect::<Vec<_>>());
    ask.expected_duration = wishes.expected_duration.or(ask.expected_duration);
    ask.min_runtime = wishes.min_runtime.or(ask.min_runtime);

    refuse_unprotected(ask, mistakes);
    let native = ask.dialect == Dialect::Native;
    let wants = || ask.containers.iter().flat_map(|container| &container.wants);
    for (key, set) in
        [(keys::GPU_MEMORY_LIMIT, wishes.memory_limit.is_some()), (keys::GPU_SHARE_LIMIT, wishes.share_limit.is_some())]
    {
        if set && wants().all(|want| want.exclusive) {
            let problem = "limits what is asked for whole";
            let mend = format!("remove it, or ask for {} or {}", keys::GPU_MEMORY, keys::GPU_SHARE);
            mistakes.push(Mistake::at(DIALECT, Field::annotation(key), problem, mend));
        }
    }
    if ask.topology == Topology::SameDevice && native && wants().any(|want| want.count > 1) {
        let problem = "all containers on one device, but a container asks for several";
        mistakes.push(Mistake::at(
            DIALECT,
            Field::annotation(keys::TOPOLOGY),
            problem,
            "ask for one device per container",
        ));
    }
    if !native {
        for want in ask.containers.iter_mut().flat_map(|container| &mut container.wants).filter(|want| !want.exclusive)
        {
            let (memory_limit, share_limit) = (want.memory_limit, want.share_limit);
            wishes.limit(want, None, None, mistakes);
            want.memory_limit = if wishes.memory_limit.is_some() { want.memory_limit } else { memory_limit };
            want.share_limit = if wishes.share_limit.is_some() { want.share_limit } else { share_limit };
        }
    }
}

/// Annotations about an ask that is not there.
pub(crate) fn refuse_without_ask(wishes: &Wishes, mistakes: &mut Vec<Mistake>) {
    if let Some(key) = wishes.first {
        let mend = format!("ask for {} in a container's limits, or remove the annotation", keys::GPU);
        mistakes.push(Mistake::at(DIALECT, Field::annotation(key), "no container of this pod asks for a device", mend));
    }
}

impl Wishes {
    /// Sets a want's limits: the container's own, else the annotations', else the default.
    pub(crate) fn limit(
        &self,
        want: &mut DeviceAsk,
        memory: Option<MemoryAsk>,
        share: Option<Share>,
        mistakes: &mut Vec<Mistake>,
    ) {
        want.share_limit = share.or(self.share_limit).unwrap_or(Share::WHOLE);
        if share.is_none() && want.share_limit < want.share {
            let problem = format!("is below the share of {} that a container asks for", want.share.0);
            let field = Field::annotation(keys::GPU_SHARE_LIMIT);
            let mend = format!("raise it to at least {}", want.share.0);
            mistakes.push(Mistake::about(DIALECT, field, &want.share_limit.0.to_string(), problem, mend));
        }
        want.memory_limit = match (memory.or(self.memory_limit), want.memory) {
            (None, MemoryAsk::Nothing) => Some(MemoryAsk::Nothing),
            (None, _) => None,
            (Some(MemoryAsk::Bytes(limit)), MemoryAsk::Bytes(booked)) if limit == booked => None,
            (Some(MemoryAsk::Bytes(limit)), MemoryAsk::Bytes(booked)) if limit < booked && memory.is_none() => {
                let problem = format!("is below the {booked} of memory that a container asks for");
                let field = Field::annotation(keys::GPU_MEMORY_LIMIT);
                mistakes.push(Mistake::about(
                    DIALECT,
                    field,
                    &limit.to_string(),
                    problem,
                    format!("raise it to at least {booked}"),
                ));
                None
            }
            (limit, _) => limit,
        };
    }
}

/// Reads one annotation after another and notes what is wrong.
struct Scribe<'a, 'p, 'm> {
    pod: &'a PodManifest<'p>,
    mistakes: &'m mut Vec<Mistake>,
}

/// What is wrong with a value, and the mend.
type Wrong = (String, String);

impl Scribe<'_, '_, '_> {
    fn read<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, Wrong>) -> Option<T> {
        let text = self.pod.annotation(key)?;
        match read(text.trim()) {
            Ok(value) => Some(value),
            Err((problem, mend)) => {
                self.mistakes.push(Mistake::about(DIALECT, Field::annotation(key), &text, problem, mend));
                None
            }
        }
    }

    fn gang(&mut self) -> Option<Gang> {
        let name = self.read(keys::GANG, |text| match text {
            "" => Err(("is empty".into(), "give the gang a name".into())),
            name => Ok(Arc::<str>::from(name)),
        });
        let (size, min) = (self.read(keys::GANG_SIZE, members), self.read(keys::GANG_MIN, members));
        let written = |key| self.pod.annotation(key).is_some();
        if !written(keys::GANG) {
            for key in [keys::GANG_SIZE, keys::GANG_MIN] {
                if written(key) {
                    let mend = format!("add {} with the gang's name", keys::GANG);
                    self.mistakes.push(Mistake::at(DIALECT, Field::annotation(key), "belongs to no gang", mend));
                }
            }
            return None;
        }
        if !written(keys::GANG_SIZE) {
            let mend = "write how many pods the gang has";
            self.mistakes.push(Mistake::at(DIALECT, Field::annotation(keys::GANG_SIZE), "is missing", mend));
        }
        let size = size?;
        let min = if written(keys::GANG_MIN) { min? } else { size };
        if min > size {
            let problem = format!("is more than the gang's {size} members");
            let mend = format!("write 1 to {size}");
            self.mistakes.push(Mistake::about(
                DIALECT,
                Field::annotation(keys::GANG_MIN),
                &min.to_string(),
                problem,
                mend,
            ));
        }
        Some(Gang { name: name?, size, min })
    }
}

fn wrong<T>(problem: impl Into<String>, mend: impl Into<String>) -> Result<T, Wrong> {
    Err((problem.into(), mend.into()))
}

fn members(text: &str) -> Result<u32, Wrong> {
    match text.parse::<u32>() {
        Ok(count) if count > 0 => Ok(count),
        _ => wrong("is not a number of pods", "write 1 or more"),
    }
}

fn memory_limit(text: &str) -> Result<MemoryAsk, Wrong> {
    match (text, quantity::whole(text)) {
        (ALL, _) => Ok(MemoryAsk::Nothing),
        (_, Ok(bytes)) if bytes >= 1 << 20 => Ok(MemoryAsk::Bytes(Bytes(bytes))),
        _ => wrong("is not an amount of memory", format!("write bytes such as 16Gi, or {ALL:?} for whatever is left")),
    }
}

fn share_limit(text: &str) -> Result<Share, Wrong> {
    match quantity::whole(text) {
        Ok(share @ 1..=1000) => Ok(Share(share as u32)),
        _ => wrong("is not a share", "write 1 to 1000 thousandths of a device's time"),
    }
}

/// The entries of a comma-separated list.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn list<T>(text: &str, what: &str, entry: impl Fn(&str) -> T) -> Result<Vec<T>, Wrong> {
    let found: Vec<T> = entries(text).map(entry).collect();
    if found.is_empty() { wrong("names nothing", format!("write {what}, separated by commas")) } else { Ok(found) }
}

fn patterns(text: &str) -> Result<Vec<ModelPattern>, Wrong> {
    list(text, "models such as H200,A100", |_| ()).and_then(|_| models(text))
}

/// The models of a list, each once: no more of them, and none longer, than a pod may name.
pub(crate) fn models(text: &str) -> Result<Vec<ModelPattern>, Wrong> {
    let mut seen = BTreeSet::new();
    let found: Vec<&str> = entries(text).filter(|entry| seen.insert(*entry)).collect();
    let mut problems = Vec::new();
    if found.len() > ModelRule::MOST {
        problems.push(format!("names {} models, of at most {}", found.len(), ModelRule::MOST));
    }
    if let Some(long) = found.iter().map(|entry| entry.len()).max().filter(|long| *long > ModelRule::LONGEST) {
        problems.push(format!("has a name of {long} bytes where no card's has more than {}", ModelRule::LONGEST));
    }
    match problems.is_empty() {
        true => Ok(found.into_iter().map(|entry| ModelPattern::Part(entry.into())).collect()),
        false => wrong(
            problems.join(" and "),
            "write what the names have in common: A100 stands for every model with A100 in its name",
        ),
    }
}

fn device_ids(text: &str) -> Result<Vec<DeviceId>, Wrong> {
    list(text, "device UUIDs", |entry| DeviceId::from(entry))
}

/// One of a few words, or the nearest of them.
/// Without isolation nothing holds a container to its part of a card, so that only whole cards can be had so.
fn refuse_unprotected(ask: &GpuAsk, mistakes: &mut Vec<Mistake>) {
    if ask.isolation.is_empty() || ask.isolation.iter().any(|way| *way != Isolation::None) {
        return;
    }
    let shares = |want: &DeviceAsk| want.kind != DeviceKind::Nic && !want.is_alone();
    if let Some(container) = ask.containers.iter().find(|container| container.wants.iter().any(shares)) {
        let problem =
            format!("nothing would hold container {} to its part of a device that others may use", container.name);
        let mend = format!("ask for whole devices ({}: 1 without memory and share), or write intercept", keys::GPU);
        mistakes.push(Mistake::about(DIALECT, Field::annotation(keys::ISOLATION), "none", problem, mend));
    }
}

fn one_of<T: Copy>(text: &str, words: &[(&'static str, T)]) -> Result<T, Wrong> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    match suggest::nearest(text, all.iter().copied()) {
        Some(near) => wrong("is not known", format!("did you mean {near}? known: {}", all.join(", "))),
        None => wrong("is not known", format!("write one of {}", all.join(", "))),
    }
}

fn topology(text: &str) -> Result<Topology, Wrong> {
    one_of(text, &TOPOLOGIES)
}

fn class(text: &str) -> Result<Class, Wrong> {
    one_of(text, &[("guarantee", Class::Guarantee), ("opportunistic", Class::Opportunistic)])
}

fn isolation(text: &str) -> Result<Vec<Isolation>, Wrong> {
    const WAYS: [(&str, Isolation); 4] = [
        ("mig", Isolation::Mig),
        ("driver", Isolation::Driver),
        ("intercept", Isolation::Intercept),
        ("none", Isolation::None),
    ];
    entries(text).map(|entry| one_of(entry, &WAYS)).collect::<Result<Vec<_>, _>>().and_then(|ways| {
        match ways.as_slice() {
            [] => wrong("names nothing", "write ways of isolation, best first: mig,driver,intercept,none"),
            _ => Ok(ways),
        }
    })
}

/// `hami`, or with settings `hami;gpu=spread;node=binpack`.
fn policy(text: &str, config: &DialectConfig) -> Result<PolicyChoice, Wrong> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let known: Vec<(&str, ())> = POLICIES.iter().map(|name| (*name, ())).collect();
    if !config.policies.iter().any(|policy| policy == name) {
        one_of(name, &known)?;
    }
    let mut choice = PolicyChoice { name: Some(name.into()), settings: Default::default() };
    for setting in parts.filter(|part| !part.is_empty()) {
        match setting.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                choice.settings.insert(key.trim().to_owned(), value.trim().to_owned());
            }
            _ => {
                return wrong("has a setting without a value", "write settings as name=value, separated by semicolons");
            }
        }
    }
    Ok(choice)
}

/// Seconds: `90`, `90s`, `1h30m`, `2d`.
fn duration(text: &str) -> Result<u64, Wrong> {
    let bad = || ("is not a duration".to_owned(), "write seconds, or a duration such as 90s, 1h30m or 2d".to_owned());
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| bad());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let count: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit = rest[digits..].chars().next().ok_or_else(bad)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        total = count.checked_mul(seconds).and_then(|s| total.checked_add(s)).ok_or_else(bad)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    Ok(total)
}

/// How the annotation `key` would be written for this value of an enum that serde writes as a word.
pub(crate) fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

//! KubeShare 2.0: labels of the pod, `sharedgpu/*`; every container of the pod sees the same devices.
//!
//! Its number grammar refused `10` and `0` by accident; ours reads every plain decimal. What its scheduler only logged (a malformed
//! group) is refused, so that its user learns of it. KubeShare 1.0's annotations are read in `kubeshare/sharepod.rs`.

mod decimal;
mod sharepod;

use std::sync::Arc;

use divvy_core::ask::{Class, ContainerAsk, DeviceAsk, Dialect, Gang, GpuAsk, MemoryAsk, ModelPattern, Role, Topology};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};
use crate::suggest;
use decimal::Decimal;

const DIALECT: Dialect = Dialect::Kubeshare;

const LABELS: [&str; 10] = [
    keys::KUBESHARE_REQUEST,
    keys::KUBESHARE_LIMIT,
    keys::KUBESHARE_MEMORY,
    keys::KUBESHARE_MODEL,
    keys::KUBESHARE_PRIORITY,
    keys::KUBESHARE_GROUP,
    keys::KUBESHARE_POD_GROUP,
    keys::KUBESHARE_HEADCOUNT,
    keys::KUBESHARE_THRESHOLD,
    keys::KUBESHARE_MIN_AVAILABLE,
];

/// What KubeShare wrote itself, as annotations. Where people copied it into labels it means nothing.
const SHOWN: [&str; 3] = [keys::KUBESHARE_CELL_ID, keys::KUBESHARE_UUID, keys::KUBESHARE_PORT];

/// What follows KubeShare's domain; a key of another domain stays as it is.
fn word(key: &str) -> &str {
    key.strip_prefix(keys::KUBESHARE_DOMAIN).unwrap_or(key)
}

/// Reads the labels, or the annotations of a SharePod.
pub(crate) fn read(pod: &PodManifest<'_>) -> Spoken {
    if !pod.label_keys().any(|key| key.starts_with(keys::KUBESHARE_DOMAIN)) {
        return sharepod::read(pod);
    }
    let mut mistakes = Vec::new();
    let mut labels = Labels { pod, mistakes: &mut mistakes };
    labels.refuse_slips();
    let priority = labels.priority();
    let gang = labels.gang();
    let want = labels.want();
    let draft = want.map(|want| {
        let mut ask = GpuAsk::of(DIALECT, spread_over_containers(pod, &want));
        if ask.containers.len() > 1 {
            ask.topology = Topology::SameDevice;
        }
        ask.priority = priority;
        ask.class = Some(if priority > 0 { Class::Guarantee } else { Class::Opportunistic });
        ask.gang = gang;
        let model = pod.label(keys::KUBESHARE_MODEL).unwrap_or_default();
        if !model.trim().is_empty() {
            ask.models.only = vec![ModelPattern::Exact(model.trim().into())];
        }
        Draft::new(ask, Field::label(keys::KUBESHARE_LIMIT))
    });
    match Spoken::from(draft, DIALECT, mistakes) {
        // A label that asks for nothing does not silence annotations that ask for something.
        Spoken::Silent => sharepod::read(pod),
        spoken => spoken,
    }
}

/// Labels speak for the pod: its first container holds what is booked, the others look on at the same devices under the same limits.
/// Whole GPUs are the pod's alone, whichever of its containers use them. Init containers were given nothing.
fn spread_over_containers(pod: &PodManifest<'_>, want: &DeviceAsk) -> Vec<ContainerAsk> {
    let onlooker = DeviceAsk {
        memory: MemoryAsk::Nothing,
        memory_limit: Some(want.memory_limit.unwrap_or(want.memory)),
        share: Share::ZERO,
        ..want.clone()
    };
    let main: Vec<_> = pod.containers().into_iter().filter(|container| container.role == Role::Main).collect();
    main.iter()
        .enumerate()
        .map(|(n, container)| ContainerAsk {
            name: (*container.name()).into(),
            role: Role::Main,
            wants: vec![if n == 0 { want.clone() } else { onlooker.clone() }],
        })
        .collect()
}

struct Labels<'a, 'p> {
    pod: &'a PodManifest<'p>,
    mistakes: &'a mut Vec<Mistake>,
}

impl Labels<'_, '_> {
    fn wrong(&mut self, key: &str, value: &str, problem: impl Into<String>, mend: impl Into<String>) {
        self.mistakes.push(Mistake::about(DIALECT, Field::label(key), value, problem, mend));
    }

    /// A label that is nearly one of ours. KubeShare passed over labels it did not know, so others are left alone.
    fn refuse_slips(&mut self) {
        let strangers =
            self.pod.label_keys().filter(|key| !LABELS.contains(key) && !SHOWN.contains(key) && word(key) != *key);
        for key in strangers {
            // What all of them begin with says nothing about a slip.
            if let Some(near) = suggest::nearest(word(key), LABELS.map(word)) {
                let field = Field::label(key);
                self.mistakes.push(Mistake::at(
                    DIALECT,
                    field,
                    "is not a label of KubeShare",
                    format!("did you mean {}{near}?", keys::KUBESHARE_DOMAIN),
                ));
            }
        }
    }

    fn decimal(&mut self, key: &str) -> Option<Decimal> {
        let text = self.pod.label(key)?;
        let number = Decimal::read(&text);
        match &number {
            None => self.wrong(
                key,
                &text,
                "is not a number of GPUs",
                "write a decimal from 0.001 to 1.0, or a whole number of GPUs",
            ),
            Some(number) if number.is_above_one() && number.whole().is_none() => {
                let mend = "above 1 only whole GPUs can be asked for: write a whole number";
                self.wrong(key, &text, "is more than one GPU but not a whole number of them", mend);
                return None;
            }
            Some(_) => {}
        }
        number
    }

    fn want(&mut self) -> Option<DeviceAsk> {
        let spoken = |key| self.pod.label(key).is_some();
        let (has_limit, has_request) = (spoken(keys::KUBESHARE_LIMIT), spoken(keys::KUBESHARE_REQUEST));
        if !has_limit && !has_request && !spoken(keys::KUBESHARE_MEMORY) {
            return None;
        }
        let limit = self.decimal(keys::KUBESHARE_LIMIT);
        let request = self.decimal(keys::KUBESHARE_REQUEST);
        let memory = self.memory();
        if !has_limit {
            let field = Field::label(keys::KUBESHARE_LIMIT);
            let mend = "add it: the most of a GPU the pod may use, at least its gpu_request";
            self.mistakes.push(Mistake::at(DIALECT, field, "is missing", mend));
        }
        let (limit, request) = (limit?, if has_request { request? } else { Decimal::zero() });
        if request > limit {
            let mend = format!("lower it, or raise {}", keys::KUBESHARE_LIMIT);
            self.wrong(keys::KUBESHARE_REQUEST, &request.to_string(), format!("is above the limit of {limit}"), mend);
        } else if limit.is_above_one() && has_request && request != limit {
            let problem = format!(
                "is above 1, but {} is {request}: whole GPUs are asked for by equal values",
                keys::KUBESHARE_REQUEST
            );
            self.wrong(keys::KUBESHARE_LIMIT, &limit.to_string(), problem, "make both equal, or the limit at most 1.0");
        }
        if limit == Decimal::zero() && request == Decimal::zero() {
            return None; // an ordinary pod, as KubeShare has it
        }
        if request.is_above_one() {
            return Some(DeviceAsk::whole(request.whole()?));
        }
        let share = request.request();
        let memory = match memory? {
            0 if share == Share::ZERO => MemoryAsk::Nothing,
            0 => MemoryAsk::Part(share),
            bytes => MemoryAsk::Bytes(Bytes(bytes)),
        };
        let memory_limit = (memory == MemoryAsk::Nothing).then_some(MemoryAsk::Nothing);
        Some(DeviceAsk { memory, memory_limit, share, share_limit: limit.limit().max(share), ..DeviceAsk::default() })
    }

    /// Bytes; 0 where nothing is said.
    fn memory(&mut self) -> Option<u64> {
        let Some(text) = self.pod.label(keys::KUBESHARE_MEMORY) else { return Some(0) };
        match text.parse::<u64>() {
            Ok(bytes) if i64::try_from(bytes).is_ok() && text.bytes().all(|b| b.is_ascii_digit()) => Some(bytes),
            _ => {
                self.wrong(
                    keys::KUBESHARE_MEMORY,
                    &text,
                    "is not a number of bytes",
                    "write bytes without a suffix: 1Gi is 1073741824",
                );
                None
            }
        }
    }

    fn priority(&mut self) -> i32 {
        let text = self.pod.label(keys::KUBESHARE_PRIORITY).unwrap_or_default();
        match text.parse::<i32>() {
            _ if text.is_empty() => 0,
            Ok(priority @ -1..=100) => priority,
            _ => {
                self.wrong(keys::KUBESHARE_PRIORITY, &text, "is not a priority", "write 0 (opportunistic) to 100");
                0
            }
        }
    }

    fn gang(&mut self) -> Option<Gang> {
        let filled = |key| self.pod.label(key).filter(|text| !text.trim().is_empty());
        let (name, other) = (filled(keys::KUBESHARE_GROUP), filled(keys::KUBESHARE_POD_GROUP));
        if let (Some(name), Some(other)) = (&name, &other)
            && name != other
        {
            let problem = format!("names another group than {}", keys::KUBESHARE_GROUP);
            self.wrong(keys::KUBESHARE_POD_GROUP, other, problem, "name one group, by either label");
        }
        let name = name.or(other)?;

        let headcount = filled(keys::KUBESHARE_HEADCOUNT).map(|text| {
            let count = text.parse::<u32>().ok().filter(|count| *count > 0);
            if count.is_none() {
                self.wrong(keys::KUBESHARE_HEADCOUNT, &text, "is not a number of pods", "write 1 or more");
            }
            count
        });
        let threshold = filled(keys::KUBESHARE_THRESHOLD).map(|text| {
            let part = Decimal::read_float(&text).filter(|part| *part > Decimal::zero());
            if part.is_none() {
                self.wrong(
                    keys::KUBESHARE_THRESHOLD,
                    &text,
                    "is not a proportion of pods",
                    "write a decimal above 0, such as 0.5",
                );
            }
            part
        });
        let explicit = filled(keys::KUBESHARE_MIN_AVAILABLE).map(|text| {
            let count = text.parse::<u32>().ok();
            if count.is_none() {
                self.wrong(keys::KUBESHARE_MIN_AVAILABLE, &text, "is not a number of pods", "write 0 or more");
            }
            count
        });
        let (headcount, threshold, explicit) = (lift(headcount)?, lift(threshold)?, lift(explicit)?);

        let computed = match (headcount, &threshold) {
            (Some(headcount), Some(threshold)) => {
                let Some(least) = threshold.of_rounded(headcount) else {
                    self.wrong(
                        keys::KUBESHARE_THRESHOLD,
                        &threshold.to_string(),
                        "asks for too many pods",
                        "write at most 1.0",
                    );
                    return None;
                };
                Some(least)
            }
            _ => None, // not a group for gating; the name still says which pods belong together
        };
        if let (Some(explicit), Some(computed)) = (explicit, computed)
            && explicit != computed
        {
            let problem = format!("contradicts group_headcount and group_threshold, which make {computed}");
            self.wrong(keys::KUBESHARE_MIN_AVAILABLE, &explicit.to_string(), problem, "remove it, or the threshold");
        } else if let (Some(explicit), Some(headcount)) = (explicit, headcount)
            && explicit > headcount
        {
            let problem = format!("is more than the group's {headcount} pods");
            self.wrong(
                keys::KUBESHARE_MIN_AVAILABLE,
                &explicit.to_string(),
                problem,
                format!("write at most {headcount}"),
            );
        }
        let min = explicit.or(computed).unwrap_or(0);
        // A threshold above 1 waits for more pods than the headcount says: the gang is as large as what it waits for.
        Some(Gang { name: Arc::from(name.trim()), size: headcount.unwrap_or(1).max(min), min })
    }
}

/// Absent is fine, unreadable is not.
fn lift<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(Some(value)) => Some(Some(value)),
    }
}

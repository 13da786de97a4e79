//! What of a pod its answers depend on; and the simple pods, which are rated without asking around.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;

use super::seat::{Seat, Slot};
use crate::ledger::worth::{Rating, Worth};
use crate::model::ask::{Class, GpuAsk, MemoryAsk, ModelRule, Role, Topology};
use crate::model::device::DeviceKind;
use crate::model::id::Model;
use crate::model::pod::{Pod, PodSpec};
use crate::model::policy::Policy;

/// Everything of a pod that a node's answer depends on, for pods whose fate depends on single nodes.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    spec: Arc<PodSpec>,
    ask: Option<Arc<GpuAsk>>,
    class: Class,
}

impl Shape {
    pub(super) fn of(pod: &Pod, policy: &Policy) -> Shape {
        Shape { spec: pod.spec.clone(), ask: pod.ask.clone(), class: policy.class_of(pod) }
    }
}

/// All of a pod's spec that counts.
fn of_spec(spec: &PodSpec) -> impl Eq + Hash + Serialize + '_ {
    (&spec.requests, &spec.node_selector, &spec.node_affinity, &spec.node_preference, &spec.tolerations, &spec.features)
}

/// All of an ask that counts.
fn of_ask(ask: &GpuAsk) -> impl Eq + Hash + Serialize + '_ {
    (ask.dialect, &ask.containers, &ask.models, &ask.devices, ask.topology, &ask.policy, &ask.isolation)
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        let asks = match (&self.ask, &other.ask) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || of_ask(a) == of_ask(b),
            (None, None) => true,
            _ => false,
        };
        let specs = || Arc::ptr_eq(&self.spec, &other.spec) || of_spec(&self.spec) == of_spec(&other.spec);
        self.class == other.class && asks && specs()
    }
}

impl Eq for Shape {}

/// What is compared, all of it: pods that differ anywhere must not all lie in one place of the map.
impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.class.hash(state);
        of_spec(&self.spec).hash(state);
        if let Some(ask) = &self.ask {
            of_ask(ask).hash(state);
        }
    }
}

impl Shape {
    /// Is it longer than so many bytes of JSON?
    pub(super) fn is_longer_than(&self, most: usize) -> bool {
        let mut room = Room(most);
        let all = (of_spec(&self.spec), self.ask.as_deref().map(of_ask));
        serde_json::to_writer(&mut room, &all).is_err()
    }
}

/// Takes so many bytes and forgets them.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A pod that asks for CPU and memory and for a part of one GPU or for whole ones, with at most a wish for models.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    cpu: u64,
    memory: u64,
    memory_mib: u64,
    max_tasks: u32,
    gpu: Option<Gpu>,
    /// Place in the pod's order of preference for each model known so far; absent for one it does not take.
    preferences: Vec<Option<u8>>,
    rule: ModelRule,
}

#[derive(Clone, Copy, Debug)]
struct Gpu {
    count: usize,
    share: u32,
    memory: Part,
    exclusive: bool,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Bytes(u64),
    Thousandths(u64),
}

impl Simple {
    pub(super) fn of(pod: &Pod, policy: &Policy) -> Option<Simple> {
        let spec = &pod.spec;
        let bare = spec.node_selector.is_empty()
            && spec.node_affinity.is_none()
            && spec.node_preference.is_empty()
            && spec.features.is_empty()
            && spec.requests.storage.0 == 0
            && spec.requests.other.is_empty();
        if !bare {
            return None;
        }
        let (gpu, rule) = match &pod.ask {
            None => (None, ModelRule::default()),
            Some(ask) => (Some(gpu(ask)?), ask.models.clone()),
        };
        Some(Simple {
            cpu: spec.requests.cpu,
            memory: spec.requests.memory.0,
            memory_mib: spec.requests.memory.0.div_ceil(1 << 20),
            max_tasks: policy.max_tasks.unwrap_or(u32::MAX),
            gpu,
            preferences: Vec::new(),
            rule,
        })
    }

    /// Learns of models that came since.
    pub(super) fn meet(&mut self, models: &[Model]) {
        for model in models.iter().skip(self.preferences.len()) {
            self.preferences.push(self.rule.preference(model.as_str()).map(|place| place.min(255) as u8));
        }
    }

    /// What a plain node is rated: absent where the pod does not fit.
    pub(super) fn rate(&self, seat: &Seat, worth: &Worth) -> Option<Rating> {
        let rest = &seat.rest;
        let short = (self.cpu > 0 && self.cpu > rest.cpu) || (self.memory > 0 && self.memory > seat.memory_left);
        if short || seat.pods_left == 0 {
            return None;
        }
        let Some(gpu) = &self.gpu else { return Some(worth.rate(rest, self.cpu, self.memory_mib, &[], 0)) };
        let room = match gpu.memory {
            _ if gpu.exclusive => seat.idle >= gpu.count,
            Part::Bytes(bytes) => bytes <= seat.most_memory,
            Part::Thousandths(_) => true,
        };
        if !room || gpu.share > seat.most_share || seat.devices.len() < gpu.count {
            return None;
        }
        let preference = usize::from((*self.preferences.get(usize::from(seat.model))?)?);
        if gpu.count == 1 {
            return self.best(gpu, seat, worth, preference).map(|(rating, _)| rating);
        }
        let mut taken = [(0usize, 0u16); 64];
        let mut count = 0;
        for (device, slot) in seat.devices.iter().enumerate() {
            if count < gpu.count
                && let Some(after) = self.after(gpu, slot)
            {
                taken[count] = (device, after);
                count += 1;
            }
        }
        (count == gpu.count).then(|| worth.rate(rest, self.cpu, self.memory_mib, &taken[..count], preference))
    }

    /// The device of a plain node on which a pod that wants one goes.
    pub(super) fn device(&self, seat: &Seat, worth: &Worth) -> Option<usize> {
        let gpu = self.gpu.as_ref().filter(|gpu| gpu.count == 1)?;
        self.best(gpu, seat, worth, 0).map(|(_, device)| device)
    }

    /// The best of its devices, the first of equally good ones.
    fn best(&self, gpu: &Gpu, seat: &Seat, worth: &Worth, preference: usize) -> Option<(Rating, usize)> {
        let mut best: Option<(Rating, usize)> = None;
        for (device, slot) in seat.devices.iter().enumerate() {
            // The like of the one before is rated like it.
            if device > 0 && seat.devices[device - 1] == *slot {
                continue;
            }
            if let Some(after) = self.after(gpu, slot) {
                let rating = worth.rate(&seat.rest, self.cpu, self.memory_mib, &[(device, after)], preference);
                if best.is_none_or(|(top, _)| rating > top) {
                    best = Some((rating, device));
                }
            }
        }
        best
    }

    /// What would be left of a device, in thousandths; absent where the pod does not fit.
    fn after(&self, gpu: &Gpu, slot: &Slot) -> Option<u16> {
        let memory = match gpu.memory {
            Part::Bytes(bytes) => bytes,
            Part::Thousandths(part) => slot.bookable * part / 1000,
        };
        let fits = gpu.share <= slot.share
            && slot.open
            && (slot.idle || !gpu.exclusive)
            && memory <= slot.memory
            && slot.tasks_left > 0
            && slot.tasks < self.max_tasks;
        if !fits {
            return None;
        }
        if gpu.exclusive {
            return Some(0);
        }
        let part = |left: u64, total: u64| (left * 1000).checked_div(total).unwrap_or(0).min(1000);
        let share = match slot.share_total {
            // Of all time there is, thousandths are what is counted.
            1000 => u64::from(slot.share - gpu.share),
            total => part(u64::from(slot.share - gpu.share), u64::from(total)),
        };
        let left =
            if slot.memory_total == 0 { share } else { share.min(part(slot.memory - memory, slot.memory_total)) };
        Some(left as u16)
    }
}

fn gpu(ask: &GpuAsk) -> Option<Gpu> {
    let [container] = &ask.containers[..] else { return None };
    let [want] = &container.wants[..] else { return None };
    let simple = container.role == Role::Main
        && want.kind == DeviceKind::Gpu
        && want.partition.is_none()
        && want.groups.is_none()
        && ask.devices.only.is_empty()
        && ask.devices.avoid.is_empty()
        && ask.isolation.is_empty()
        && ask.topology == Topology::Best
        && (want.count == 1 || (want.exclusive && (2..=64).contains(&want.count)));
    let memory = match want.memory {
        MemoryAsk::Nothing => Part::Bytes(0),
        MemoryAsk::Bytes(bytes) => Part::Bytes(bytes.0),
        MemoryAsk::Part(part) => Part::Thousandths(u64::from(part.0)),
        MemoryAsk::NodeUnits(_) => return None,
    };
    simple.then_some(Gpu { count: want.count as usize, share: want.share.0, memory, exclusive: want.exclusive })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::hash::FixedMap;
    use crate::model::ask::{DeviceAsk, ModelPattern, PolicyChoice};
    use crate::model::device::Isolation;
    use crate::model::units::{Bytes, Share};
    use crate::testing;

    /// Pods that differ in one thing each, in all of which nodes may tell them apart.
    fn different() -> Vec<Pod> {
        let plain = || testing::ask(testing::share(Share(300)));
        let of = |spec: PodSpec, ask: GpuAsk| {
            let mut pod = Pod::new("default", "a");
            (pod.spec, pod.ask) = (Arc::new(spec), Some(Arc::new(ask)));
            pod
        };
        let asks = |change: &dyn Fn(&mut GpuAsk)| {
            let mut ask = plain();
            change(&mut ask);
            of(PodSpec::default(), ask)
        };
        let specs = |json: &str| of(serde_json::from_str(json).unwrap(), plain());
        let wants = |want: DeviceAsk| of(PodSpec::default(), testing::ask(want));
        let text = |text: &str| Arc::<str>::from(text);
        vec![
            specs("{}"),
            specs(r#"{"requests":{"cpu":1}}"#),
            specs(r#"{"requests":{"other":{"x":1}}}"#),
            specs(r#"{"nodeSelector":{"zone":"a"}}"#),
            specs(r#"{"nodeSelector":{"zone":"b"}}"#),
            specs(r#"{"nodeAffinity":[]}"#),
            specs(r#"{"nodePreference":[{"weight":1,"what":{}}]}"#),
            specs(r#"{"tolerations":[{"key":"a"}]}"#),
            specs(r#"{"tolerations":[{"key":"b"}]}"#),
            specs(r#"{"features":["x"]}"#),
            asks(&|ask| ask.dialect = crate::model::ask::Dialect::Hami),
            asks(&|ask| ask.containers[0].role = Role::Init),
            asks(&|ask| ask.models.only = vec![ModelPattern::Part(text("T4"))]),
            asks(&|ask| ask.models.avoid = vec![ModelPattern::Part(text("T4"))]),
            asks(&|ask| ask.devices.only = vec!["GPU-1".into()]),
            asks(&|ask| ask.devices.avoid = vec!["GPU-1".into()]),
            asks(&|ask| ask.topology = Topology::Spread),
            asks(&|ask| ask.policy = Some(PolicyChoice { name: Some(text("hami")), settings: Default::default() })),
            asks(&|ask| ask.isolation = vec![Isolation::Mig]),
            asks(&|ask| ask.class = Some(Class::Opportunistic)),
            wants(DeviceAsk { share: Share(300), partition: Some(text("1g.5gb")), ..DeviceAsk::default() }),
            wants(DeviceAsk { share: Share(300), share_limit: Share(500), ..DeviceAsk::default() }),
            wants(DeviceAsk { share: Share(300), memory: MemoryAsk::Bytes(Bytes(1)), ..DeviceAsk::default() }),
        ]
    }

    #[test]
    fn pods_that_differ_anywhere_do_not_lie_in_one_place_of_the_map() {
        let hash = |pod: &Pod| {
            let map = FixedMap::<(), ()>::default();
            map.hasher().hash_one(Shape::of(pod, &Policy::default()))
        };
        let pods = different();
        let hashes: BTreeSet<u64> = pods.iter().map(hash).collect();
        assert_eq!(hashes.len(), pods.len());
        let shapes: Vec<Shape> = pods.iter().map(|pod| Shape::of(pod, &Policy::default())).collect();
        for (i, a) in shapes.iter().enumerate() {
            assert!(shapes.iter().enumerate().all(|(j, b)| (a == b) == (i == j)), "{i}");
        }
    }
}

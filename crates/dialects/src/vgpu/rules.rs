//! The annotations of a vGPU pod: which cards, how close, under which of HAMi's policies, in which mode.

use divvy_core::ask::{DeviceAsk, Dialect, GpuAsk, ModelPattern, PolicyChoice, Topology};
use divvy_core::device::{DeviceKind, Isolation};
use divvy_core::id::DeviceId;
use divvy_core::keys;

use crate::config::{DialectConfig, NvidiaFlavour};
use crate::guard::go_bool;
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::native::wishes::{entries, models};
use crate::suggest;

const CARD_POLICIES: [&str; 5] = ["spread", "binpack", "topology-aware", "mutex", "numa"];

/// Reads them into `ask`.
pub(super) fn read(pod: &PodManifest<'_>, config: &DialectConfig, ask: &mut GpuAsk, mistakes: &mut Vec<Mistake>) {
    let mut rules = Rules { pod, dialect: ask.dialect, hami: config.nvidia != NvidiaFlavour::Vgpu, mistakes };
    rules.models(ask);
    rules.devices(ask);
    rules.numa(ask);
    rules.policy(ask);
    rules.mode(ask);
}

struct Rules<'a, 'p> {
    pod: &'a PodManifest<'p>,
    dialect: Dialect,
    hami: bool,
    mistakes: &'a mut Vec<Mistake>,
}

impl Rules<'_, '_> {
    fn wrong(&mut self, key: &str, value: &str, problem: &str, mend: String) {
        self.mistakes.push(Mistake::about(self.dialect, Field::annotation(key), value, problem, mend));
    }

    fn list<T>(&self, key: &str, entry: impl Fn(&str) -> T) -> Vec<T> {
        let text = self.pod.annotation(key).unwrap_or_default();
        entries(&text).map(entry).collect()
    }

    fn patterns(&mut self, key: &str) -> Vec<ModelPattern> {
        let text = self.pod.annotation(key).unwrap_or_default();
        models(&text).unwrap_or_else(|(problem, mend)| {
            self.wrong(key, &text, &problem, mend);
            Vec::new()
        })
    }

    /// Types to use and to avoid, per vendor. One rule serves the whole ask, so a pod that asks for cards of two vendors cannot
    /// constrain only one of them.
    fn models(&mut self, ask: &mut GpuAsk) {
        let asks = |kind| wants(ask).any(|want| want.kind == kind);
        let (gpu, mlu) = (asks(DeviceKind::Gpu), asks(DeviceKind::Mlu));
        let read = |rules: &mut Self, asked: bool, use_key: &str, no_use_key: &str| {
            let only = if asked { rules.patterns(use_key) } else { Vec::new() };
            let heeded = asked && (rules.hami || only.is_empty()); // 4paradigm looks at one of the two
            let avoid = if heeded { rules.patterns(no_use_key) } else { Vec::new() };
            (only, avoid)
        };
        let (gpu_only, gpu_avoid) = read(self, gpu, keys::VGPU_USE_TYPE, keys::VGPU_NO_USE_TYPE);
        let (mlu_only, mlu_avoid) = read(self, mlu, keys::MLU_USE_TYPE, keys::MLU_NO_USE_TYPE);
        if gpu && mlu {
            let keys = [keys::VGPU_USE_TYPE, keys::MLU_USE_TYPE];
            self.refuse_half(
                keys,
                [gpu_only.is_empty(), mlu_only.is_empty()],
                "chooses the type",
                "name the types of both",
            );
        }
        ask.models.only = [gpu_only, mlu_only].concat();
        ask.models.avoid = [gpu_avoid, mlu_avoid].concat();
    }

    /// Cards to use and to avoid by their ids, per vendor as well.
    fn devices(&mut self, ask: &mut GpuAsk) {
        let id = |entry: &str| DeviceId::from(entry);
        let asks = |kind| wants(ask).any(|want| want.kind == kind);
        let (gpu, mlu) = (asks(DeviceKind::Gpu), asks(DeviceKind::Mlu));
        let read = |rules: &Self, asked: bool, key: &str| if asked { rules.list(key, id) } else { Vec::new() };
        let gpu_only = read(self, gpu, keys::VGPU_USE_UUID);
        let mlu_only = read(self, mlu, keys::HAMI_MLU_USE_UUID);
        if gpu && mlu {
            let keys = [keys::VGPU_USE_UUID, keys::HAMI_MLU_USE_UUID];
            self.refuse_half(
                keys,
                [gpu_only.is_empty(), mlu_only.is_empty()],
                "chooses the cards",
                "name the cards of both",
            );
        }
        ask.devices.only = [gpu_only, mlu_only].concat();
        let (gpu_avoid, mlu_avoid) =
            (read(self, gpu, keys::VGPU_NO_USE_UUID), read(self, mlu, keys::HAMI_MLU_NO_USE_UUID));
        ask.devices.avoid = [gpu_avoid, mlu_avoid].concat();
    }

    /// Refuses a list for one of two vendors where the other's, which would then match nothing, is empty.
    fn refuse_half(&mut self, keys: [&str; 2], empty: [bool; 2], chooses: &str, mend: &str) {
        let key = match empty {
            [true, false] => keys[1],
            [false, true] => keys[0],
            _ => return,
        };
        let text = self.pod.annotation(key).unwrap_or_default();
        let problem = format!("{chooses} of one vendor in a pod that asks for two");
        self.wrong(key, &text, &problem, mend.into());
    }

    fn numa(&mut self, ask: &mut GpuAsk) {
        let Some(text) = self.pod.annotation(keys::VGPU_NUMA_BIND) else { return };
        match go_bool(text.trim()) {
            Some(true) => ask.topology = Topology::SameNuma,
            Some(false) => {}
            None => self.wrong(keys::VGPU_NUMA_BIND, &text, "is not a boolean", "write true or false".into()),
        }
    }

    fn one_of(&mut self, key: &str, text: &str, problem: &str, words: &[&'static str]) {
        if words.contains(&text) {
            return;
        }
        let all = words.join(", ");
        let mend = match suggest::nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean {near}? known: {all}"),
            None => format!("write one of {all}"),
        };
        self.wrong(key, text, problem, mend);
    }

    fn policy(&mut self, ask: &mut GpuAsk) {
        let mut settings = std::collections::BTreeMap::new();
        let filled = |key| self.pod.annotation(key).filter(|text| !text.trim().is_empty());
        let (node, gpu, weights) =
            (filled(keys::HAMI_NODE_POLICY), filled(keys::HAMI_GPU_POLICY), filled(keys::HAMI_WEIGHTS));
        if let Some(text) = node {
            self.one_of(keys::HAMI_NODE_POLICY, text.trim(), "is not a policy", &["binpack", "spread"]);
            settings.insert("node".to_owned(), text.trim().to_owned());
        }
        if let Some(text) = gpu {
            let chain: Vec<&str> = entries(&text).collect();
            for word in &chain {
                self.one_of(keys::HAMI_GPU_POLICY, word, "is not a policy", &CARD_POLICIES);
            }
            settings.insert("gpu".to_owned(), chain.join(","));
        }
        if let Some(text) = weights {
            match weights_of(&text) {
                Some(weights) => {
                    settings.insert("weights".to_owned(), weights);
                }
                None => {
                    let mend = "write slot=1,core=1,memory=3: all three, whole numbers, one of them above 0".to_owned();
                    self.wrong(keys::HAMI_WEIGHTS, &text, "is not a set of weights", mend);
                }
            }
        }
        if !settings.is_empty() {
            ask.policy = Some(PolicyChoice { name: Some("hami".into()), settings });
        }
    }

    /// Ways of sharing the pod accepts. HAMi looks whether a card's mode occurs in the text, and so passes over a slip.
    fn mode(&mut self, ask: &mut GpuAsk) {
        let Some(text) = self.pod.annotation(keys::VGPU_MODE).filter(|text| !text.trim().is_empty()) else { return };
        let mut accepted = Vec::new();
        for word in entries(&text) {
            match word {
                "mig" => accepted.push(Isolation::Mig),
                "hami-core" => accepted.extend([Isolation::Driver, Isolation::Intercept, Isolation::None]),
                "mps" => {}
                slip => self.one_of(keys::VGPU_MODE, slip, "is not a mode", &["hami-core", "mig"]),
            }
        }
        if accepted.is_empty() && entries(&text).all(|word| word == "mps") {
            let mend = "write hami-core, mig, or both separated by a comma";
            self.wrong(keys::VGPU_MODE, &text, "MPS is not offered by Divvy", mend.into());
        }
        let partitions = wants(ask).any(|want| want.partition.is_some());
        if partitions && !accepted.is_empty() && !accepted.contains(&Isolation::Mig) {
            self.wrong(
                keys::VGPU_MODE,
                &text,
                "contradicts the MIG partitions that the pod asks for",
                "add mig, or remove it".into(),
            );
        }
        ask.isolation = accepted;
    }
}

fn wants(ask: &GpuAsk) -> impl Iterator<Item = &DeviceAsk> {
    ask.containers.iter().flat_map(|container| &container.wants)
}

/// All three weights in a fixed order, if they are there and make sense.
fn weights_of(text: &str) -> Option<String> {
    let mut found = std::collections::BTreeMap::new();
    for entry in text.split(',') {
        let (name, value) = entry.split_once('=')?;
        let name = name.trim();
        if !["slot", "core", "memory"].contains(&name)
            || found.insert(name, value.trim().parse::<u32>().ok()?).is_some()
        {
            return None;
        }
    }
    let weight = |name| found.get(name).copied();
    let (slot, core, memory) = (weight("slot")?, weight("core")?, weight("memory")?);
    (slot | core | memory > 0).then(|| format!("slot={slot},core={core},memory={memory}"))
}

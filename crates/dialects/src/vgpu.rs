//! 4paradigm's vGPU scheduler and HAMi, which grew out of it: cards, memory and cores in each container's limits, under names the
//! administrator may change. One reader for both; [`NvidiaFlavour`] says whose rules hold where they differ.

mod memory;
mod mlu;
mod quota;
mod rules;

pub use quota::QuotaKeys;

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use crate::config::{CorePolicy, DialectConfig, NvidiaFlavour};
use crate::kubegpu;
use crate::manifest::{Container, PodManifest};
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, EnvHint, ResourceHint, Spoken};

const MOST_CARDS: u64 = 1024;
const CORE_POLICY: &str = "GPU_CORE_UTILIZATION_POLICY";

fn dialect(config: &DialectConfig) -> Dialect {
    match config.nvidia {
        NvidiaFlavour::Hami | NvidiaFlavour::Kubegpu => Dialect::Hami,
        NvidiaFlavour::Vgpu => Dialect::Vgpu,
    }
}

/// Reads each container's limits and the pod's annotations.
pub(crate) fn read(pod: &PodManifest<'_>, config: &DialectConfig) -> Spoken {
    let dialect = dialect(config);
    let ignored = |key| pod.is_labelled_here_or_on_namespace(key, "ignore");
    if ignored(keys::VGPU_WEBHOOK) || ignored(keys::HAMI_WEBHOOK) {
        return Spoken::Silent;
    }
    let mut reader = Reader {
        config,
        dialect,
        count_is_ours: !kubegpu::owns_count(pod, config),
        mistakes: Vec::new(),
        hints: Default::default(),
        priority: None,
    };
    let mut containers = Vec::new();
    let mut voice = None;
    for container in pod.containers() {
        if container.is_privileged() && config.nvidia == NvidiaFlavour::Vgpu {
            continue; // 4paradigm's webhook passes by privileged containers
        }
        let level = reader.priority(&container);
        let Some(key) = reader.first_word(&container) else { continue };
        reader.priority = reader.priority.max(level);
        voice.get_or_insert_with(|| Field::resource(&container.name(), &key));
        let mut wants = Vec::new();
        wants.extend(reader.cards(&container));
        wants.extend(reader.partitions(&container));
        let mlus = mlu::read(&container, config, dialect, &mut reader.mistakes);
        if let Some(want) = &mlus {
            mlu::hook(&container, want, config, dialect, &mut reader.hints, &mut reader.mistakes);
        }
        wants.extend(mlus);
        reader.refuse_hygon(&container);
        if !wants.is_empty() {
            containers.push(ContainerAsk { name: (*container.name()).into(), role: container.role, wants });
        }
    }
    let Some(voice) = voice else { return Spoken::Silent };
    let mut ask = GpuAsk::of(dialect, containers);
    ask.priority = reader.priority.unwrap_or(0);
    rules::read(pod, config, &mut ask, &mut reader.mistakes);
    let draft = Draft { ask, hints: reader.hints, voice };
    Spoken::from(Some(draft), dialect, reader.mistakes)
}

struct Reader<'c> {
    config: &'c DialectConfig,
    dialect: Dialect,
    count_is_ours: bool,
    mistakes: Vec<Mistake>,
    hints: crate::reading::Hints,
    /// The highest priority of any container, ours way up.
    priority: Option<i32>,
}

impl Reader<'_> {
    /// The first of this container's resources that is one of ours.
    fn first_word(&self, container: &Container<'_>) -> Option<String> {
        let names = &self.config.vgpu.names;
        let more = [&names.resource_mem, &names.resource_mem_percentage, &names.resource_cores];
        let mlu = [
            names.mlu_resource_name.as_str(),
            &names.mlu_resource_mem,
            keys::HAMI_MLU_COUNT,
            keys::HAMI_MLU_MEMORY,
            keys::HAMI_MLU_CORES,
        ];
        let keys = container.resource_keys();
        let ours = |key: &&str| {
            (self.count_is_ours && *key == names.resource_name)
                || more.iter().any(|name| *name == key)
                || mlu.contains(key)
                || key.starts_with(keys::VGPU_MIG)
                || key.starts_with(keys::HYGON_DOMAIN)
        };
        keys.iter().find(|key| ours(key)).map(|key| (*key).to_owned())
    }

    fn wrong(
        &mut self,
        container: &Container<'_>,
        key: &str,
        value: u64,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let field = Field::resource(&container.name(), key);
        self.mistakes.push(Mistake::about(self.dialect, field, &value.to_string(), problem, mend));
    }

    fn amount(&mut self, container: &Container<'_>, key: &str, unit: &str) -> Option<u64> {
        container.amount(key, unit, self.dialect, &mut self.mistakes)
    }

    /// The MiB that one of the amounts of memory stands for.
    fn memory_factor(&self) -> u64 {
        match self.config.nvidia {
            NvidiaFlavour::Hami | NvidiaFlavour::Kubegpu => u64::from(self.config.vgpu.memory_factor.max(1)),
            NvidiaFlavour::Vgpu => 1,
        }
    }

    /// NVIDIA cards, whole or in parts.
    fn cards(&mut self, container: &Container<'_>) -> Option<DeviceAsk> {
        let config = &self.config.vgpu;
        let names = &config.names;
        let hami = self.dialect == Dialect::Hami;
        let before = self.mistakes.len();
        let count = self.amount(container, &names.resource_name, "a whole number of cards");
        let memory =
            memory::mib(container, &names.resource_mem, self.memory_factor(), self.dialect, &mut self.mistakes);
        let percentage = self.amount(container, &names.resource_mem_percentage, "percent, 0 to 100");
        let cores = self.amount(container, &names.resource_cores, "percent, 0 to 100");
        let parts = [&names.resource_mem, &names.resource_mem_percentage, &names.resource_cores];
        if count.is_none() && !parts.iter().any(|key| container.names(key)) {
            return None;
        }

        let nothing = [memory, percentage, cores].iter().all(|amount| amount.unwrap_or(0) == 0);
        let count = match count {
            Some(0) if nothing && self.mistakes.len() == before => return None,
            Some(0) => {
                self.wrong(container, &names.resource_name, 0, "asks for parts of no card", "write 1 or more");
                0
            }
            Some(count) if count > MOST_CARDS => {
                self.wrong(
                    container,
                    &names.resource_name,
                    count,
                    "is more cards than any node has",
                    "ask per pod, not per job",
                );
                count
            }
            Some(count) => count,
            None if container.names(&names.resource_name) => 0, // and what is wrong with it is said already
            None if hami && config.default_gpu_num > 0 => {
                self.add(container, &names.resource_name, u64::from(config.default_gpu_num));
                u64::from(config.default_gpu_num)
            }
            None => {
                let field = Field::resource(&container.name(), &names.resource_name);
                let mend = "add it: how many cards the rest is asked of";
                self.mistakes.push(Mistake::at(self.dialect, field, "is missing", mend));
                0
            }
        };
        // HAMi goes by what is written, not by the memory that comes of it with the administrator's default; 0 is as good as nothing.
        let unsaid = |amount: Option<u64>| amount.unwrap_or(0) == 0;
        let whole = percentage == Some(100) || (unsaid(percentage) && unsaid(memory));
        let memory = self.memory(container, memory, percentage);
        let cores = match cores {
            Some(cores @ 0..=100) => cores,
            Some(_) if hami => 100,
            Some(cores) => {
                self.wrong(
                    container,
                    &names.resource_cores,
                    cores,
                    "is more than a card has",
                    "write percent of one card, 0 to 100",
                );
                100
            }
            None if hami && whole => {
                self.add(container, &names.resource_cores, 100);
                100
            }
            None => u64::from(config.default_cores.min(100)),
        };
        if self.mistakes.len() > before {
            return None;
        }
        let share = Share(cores as u32 * 10);
        let share_limit = match (cores, self.core_policy(container)) {
            (1..=99, CorePolicy::Force) => share,
            _ => Share::WHOLE,
        };
        Some(DeviceAsk {
            count: count as u32,
            memory,
            share,
            share_limit,
            exclusive: cores == 100,
            ..DeviceAsk::default()
        })
    }

    /// Memory per card: the amount in MiB, else the percentage, else the administrator's default, else all of it. HAMi looks at the
    /// percentage also where there is an amount; 4paradigm does not.
    fn memory(&mut self, container: &Container<'_>, memory: Option<u64>, percentage: Option<u64>) -> MemoryAsk {
        let config = &self.config.vgpu;
        let hami = self.dialect == Dialect::Hami;
        if let Some(percent) = percentage.filter(|percent| *percent > 100)
            && (hami || memory.unwrap_or(0) == 0)
        {
            let (problem, mend) = ("is more than a card has", "write percent of one card, 1 to 100");
            self.wrong(container, &config.names.resource_mem_percentage, percent, problem, mend);
            return MemoryAsk::Nothing;
        }
        if let Some(mib) = memory.filter(|mib| *mib > 0) {
            return MemoryAsk::Bytes(Bytes::mib(mib));
        }
        match percentage {
            Some(100) => MemoryAsk::Part(Share::WHOLE),
            Some(percent @ 1..=99) => MemoryAsk::Part(Share(percent as u32 * 10)),
            Some(0) if !hami => {
                let problem = "books no memory and would have set no limit";
                self.wrong(
                    container,
                    &config.names.resource_mem_percentage,
                    0,
                    problem,
                    "write 1 to 100, or remove it",
                );
                MemoryAsk::Nothing
            }
            _ if config.default_mem > 0 => {
                MemoryAsk::Bytes(Bytes::mib(u64::from(config.default_mem).saturating_mul(self.memory_factor())))
            }
            _ => MemoryAsk::Part(Share::WHOLE),
        }
    }

    /// Priority on the card: 0 is high, more is lower, and nothing said is 1. Ours grows upwards: high is 1, the usual 0. Every
    /// container that says one learns it, also one without a card of its own.
    fn priority(&mut self, container: &Container<'_>) -> Option<i32> {
        let key = &self.config.vgpu.names.resource_priority;
        let level = self.amount(container, key, "0 for high or 1 for low")?;
        let most = if self.config.nvidia == NvidiaFlavour::Vgpu { 1 } else { i32::MAX as u64 - 1 };
        if level > most {
            self.wrong(container, key, level, "is not a priority", "write 0 for high or 1 for low");
            return None;
        }
        self.hints.env.push(EnvHint {
            container: (*container.name()).into(),
            name: "CUDA_TASK_PRIORITY".into(),
            value: level.to_string(),
        });
        Some(1 - level as i32)
    }

    fn core_policy(&self, container: &Container<'_>) -> CorePolicy {
        match container.env(CORE_POLICY).as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("force") => CorePolicy::Force,
            Some("default") => CorePolicy::Default,
            Some("disable") => CorePolicy::Disable,
            _ => self.config.vgpu.core_policy,
        }
    }

    /// What the emulated webhook writes into the limits.
    fn add(&mut self, container: &Container<'_>, resource: &str, amount: u64) {
        self.hints.resources.push(ResourceHint {
            container: (*container.name()).into(),
            resource: resource.into(),
            amount,
        });
    }

    /// Hardware partitions by profile (`mig-1g.5gb`).
    fn partitions(&mut self, container: &Container<'_>) -> Vec<DeviceAsk> {
        let mut wants = Vec::new();
        for key in container.resource_keys() {
            let Some(profile) = key.strip_prefix(keys::VGPU_MIG) else { continue };
            let Some(count) = self.amount(container, key, "a whole number of partitions") else { continue };
            if !is_profile(profile) {
                self.wrong(
                    container,
                    key,
                    count,
                    "is not a MIG profile",
                    "write one such as mig-1g.5gb or mig-3g.40gb",
                );
            } else if count > MOST_CARDS {
                self.wrong(container, key, count, "is more partitions than any node has", "ask per pod, not per job");
            } else if count > 0 {
                wants.push(DeviceAsk {
                    count: count as u32,
                    partition: Some(profile.into()),
                    memory: MemoryAsk::Nothing,
                    memory_limit: Some(MemoryAsk::Nothing),
                    ..DeviceAsk::default()
                });
            }
        }
        wants
    }

    fn refuse_hygon(&mut self, container: &Container<'_>) {
        for key in container.resource_keys().into_iter().filter(|key| key.starts_with(keys::HYGON_DOMAIN)) {
            let field = Field::resource(&container.name(), key);
            let mend = format!("to leave the pod to Hygon's own plugin label it {}=ignore", keys::HAMI_WEBHOOK);
            self.mistakes.push(Mistake::at(self.dialect, field, "Hygon DCUs are not placed by Divvy", mend));
        }
    }
}

/// `1g.5gb`, `3g.40gb`, `1g.10gb.me`, `1g.5gb+me`, `1c.3g.20gb`.
fn is_profile(text: &str) -> bool {
    let core = text.split_once('+').map_or(text, |(core, _)| core);
    let mut parts = core.split('.').peekable();
    let sized = |part: &str, unit: &str| {
        part.strip_suffix(unit)
            .is_some_and(|digits| !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    if parts.peek().is_some_and(|part| sized(part, "c")) {
        parts.next();
    }
    parts.next().is_some_and(|part| sized(part, "g"))
        && parts.next().is_some_and(|part| sized(part, "gb"))
        && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()))
}

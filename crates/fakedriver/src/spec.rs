//! What the simulated machine looks like, read from a line of text.
//!
//! ```text
//! 2xH200                                   two cards, everything else by default
//! 8xH200 driver=580.159.04 seed=node-1     machine-wide settings may follow
//! H200 numa=0; H200 numa=1 memory=80GiB    cards one by one, ";" or a new line between them
//! A100 mig=3g.40gb+3g.40gb                 a card in MIG mode with two instances
//! ```
//!
//! `#` begins a comment. Whatever is wrong with a text is told at once, each mistake with what would be right.

use std::fmt;

mod models;
#[cfg(test)]
mod tests;

pub use models::{MODELS, MigProfile, Model};

/// The most cards a machine has.
pub const MAX_CARDS: usize = 16;
/// The most MIG instances a card has.
pub const MAX_INSTANCES: usize = 7;

/// The simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The cards, in NVML's order.
    pub cards: Vec<Card>,
    /// The driver's version as nvidia-smi shows it.
    pub driver: String,
    /// The CUDA version the driver speaks, as `cuDriverGetVersion` says it (13000 for 13.0).
    pub cuda: i32,
    /// What a context takes of a card, in bytes.
    pub context: u64,
    /// How long a kernel of one wave runs whose name says nothing, in nanoseconds.
    pub kernel: u64,
    /// The time slice between processes, in nanoseconds.
    pub slice: u64,
    /// What a switch between processes costs, in nanoseconds.
    pub switch: u64,
    /// How much device memory of a process is really backed by host memory, in bytes; writes beyond are dropped.
    pub backing: u64,
    /// Which cards are joined by NVLink.
    pub nvlink: NvLink,
}

/// The NVLink topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvLink {
    /// Every card with every other, through switches: what SXM boards have.
    All,
    /// Cards 0 and 1, 2 and 3, and so on: bridges on PCIe cards.
    Pairs,
    /// No links.
    None,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// What kind of card.
    pub model: &'static Model,
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`
    pub uuid: String,
    /// Memory as NVML counts it, in bytes.
    pub memory: u64,
    /// Multiprocessors.
    pub sms: u32,
    /// NUMA node.
    pub numa: u32,
    /// PCI domain, bus, device.
    pub pci: (u32, u32, u32),
    /// PCIe switch: cards with the same number hang on the same one.
    pub switch: Option<u32>,
    /// Serial number.
    pub serial: String,
    /// MIG instances; `Some` (even when empty) means that MIG mode is on.
    pub mig: Option<Vec<Instance>>,
    /// Compute mode: 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: i32,
}

/// One MIG instance, of one GPU instance and one compute instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its profile.
    pub profile: &'static MigProfile,
    /// `MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`
    pub uuid: String,
}

/// All that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.join("; "))
    }
}

impl std::error::Error for Mistakes {}

impl Card {
    /// The PCI bus id in NVML's long form.
    #[must_use]
    pub fn bus_id(&self) -> String {
        let (domain, bus, device) = self.pci;
        format!("{domain:08X}:{bus:02X}:{device:02X}.0")
    }
}

impl Spec {
    /// Reads a machine from text.
    pub fn parse(text: &str) -> Result<Self, Mistakes> {
        let mut wrong = Vec::new();
        let mut spec = Self {
            cards: Vec::new(),
            driver: "580.159.04".into(),
            cuda: 13000,
            context: 518 << 20,
            kernel: 5_000,
            slice: 2_000_000,
            switch: 0,
            backing: 256 << 20,
            nvlink: NvLink::All,
        };
        let mut seed = String::from("divvy");
        let mut asked: Vec<(&'static Model, Vec<(String, String)>)> = Vec::new();
        for item in text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split(';')) {
            let mut words = item.split_whitespace().peekable();
            let mut many: Vec<usize> = Vec::new();
            if let Some(first) = words.next_if(|w| !w.contains('=')) {
                let (count, name) = match first.split_once(['x', '*']) {
                    Some((n, name)) if n.chars().all(|c| c.is_ascii_digit()) && !n.is_empty() => {
                        (n.parse().unwrap_or(0), name)
                    }
                    _ => (1, first),
                };
                match Model::named(name) {
                    None => wrong.push(format!("no card is called \"{name}\": use one of {}", Model::names())),
                    Some(_) if count == 0 || asked.len() + count > MAX_CARDS => {
                        wrong.push(format!("\"{first}\": a machine has 1 to {MAX_CARDS} cards"));
                    }
                    Some(model) => {
                        many = (asked.len()..asked.len() + count).collect();
                        asked.extend(std::iter::repeat_n((model, Vec::new()), count));
                    }
                }
            }
            for word in words {
                let Some((key, value)) = word.split_once('=') else {
                    wrong.push(format!("\"{word}\" is no key=value"));
                    continue;
                };
                let outcome = match key {
                    "driver" => keep(&mut spec.driver, Ok(value.to_owned())),
                    "seed" => keep(&mut seed, Ok(value.to_owned())),
                    "cuda" => keep(&mut spec.cuda, cuda_version(value)),
                    "context" => keep(&mut spec.context, bytes(value)),
                    "backing" => keep(&mut spec.backing, bytes(value)),
                    "kernel" => keep(&mut spec.kernel, duration(value)),
                    "slice" => keep(&mut spec.slice, duration(value)),
                    "switch-cost" => keep(&mut spec.switch, duration(value)),
                    "nvlink" => keep(&mut spec.nvlink, nvlink(value)),
                    "uuid" | "memory" | "sms" | "numa" | "pci" | "switch" | "serial" | "mig" | "compute-mode" => {
                        if many.is_empty() {
                            Err(format!("\"{word}\" must follow a card"))
                        } else {
                            many.iter().for_each(|&i| asked[i].1.push((key.to_owned(), value.to_owned())));
                            Ok(())
                        }
                    }
                    _ => Err(format!(
                        "unknown setting \"{key}\": a machine has driver, cuda, seed, context, kernel, slice, switch-cost, backing, nvlink; \
                         a card has uuid, memory, sms, numa, pci, switch, serial, mig, compute-mode"
                    )),
                };
                wrong.extend(outcome.err());
            }
        }
        if asked.is_empty() && wrong.is_empty() {
            wrong.push(format!("no cards: name at least one, as in \"2xH200\" (models: {})", Model::names()));
        }
        let total = asked.len();
        for (index, (model, settings)) in asked.into_iter().enumerate() {
            spec.cards.push(card(index, total, model, &settings, &seed, &mut wrong));
        }
        if spec.slice == 0 {
            wrong.push("slice=0: a time slice takes time".into());
        }
        if wrong.is_empty() { Ok(spec) } else { Err(Mistakes(wrong)) }
    }

    /// What joins two cards, in NVML's steps: 0 the same board, 10 a single switch, 40 the same NUMA node, 50 the system.
    #[must_use]
    pub fn common_ancestor(&self, a: usize, b: usize) -> u32 {
        let (a, b) = (&self.cards[a], &self.cards[b]);
        if a.pci == b.pci {
            0
        } else if a.switch.is_some() && a.switch == b.switch {
            10
        } else if a.numa == b.numa {
            40
        } else {
            50
        }
    }

    /// How many NVLinks join two cards.
    #[must_use]
    pub fn links_between(&self, a: usize, b: usize) -> u32 {
        let joined = a != b
            && match self.nvlink {
                NvLink::All => true,
                NvLink::Pairs => a / 2 == b / 2,
                NvLink::None => false,
            };
        if joined { self.cards[a].model.nvlinks.min(self.cards[b].model.nvlinks) } else { 0 }
    }
}

fn keep<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn card(
    index: usize,
    total: usize,
    model: &'static Model,
    settings: &[(String, String)],
    seed: &str,
    wrong: &mut Vec<String>,
) -> Card {
    let number = u32::try_from(index).unwrap_or(0);
    let mut card = Card {
        model,
        uuid: uuid("GPU", &format!("{seed}/{index}")),
        memory: model.memory << 20,
        sms: model.sms,
        numa: if index * 2 < total.max(2) { 0 } else { 1 },
        pci: (0, 0x18 + 0x10 * number, 0),
        switch: None,
        serial: format!("{:013}", hash(&format!("{seed}/{index}/serial")) % 10_000_000_000_000),
        mig: None,
        compute_mode: 0,
    };
    for (key, value) in settings {
        let outcome = match key.as_str() {
            "uuid" => keep(&mut card.uuid, given_uuid(value)),
            "memory" => keep(&mut card.memory, bytes(value)),
            "sms" => keep(&mut card.sms, count(value)),
            "numa" => keep(&mut card.numa, count(value)),
            "switch" => keep(&mut card.switch, count(value).map(Some)),
            "serial" => keep(&mut card.serial, Ok(value.clone())),
            "pci" => keep(&mut card.pci, pci(value)),
            "mig" => keep(&mut card.mig, instances(model, value, &format!("{seed}/{index}")).map(Some)),
            "compute-mode" => keep(&mut card.compute_mode, compute_mode(value)),
            _ => unreachable!("only card settings are collected"),
        };
        wrong.extend(outcome.err());
    }
    card
}

fn count(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("\"{value}\" is no count"))
}

/// `80GiB`, `512MiB`, or plain bytes.
fn bytes(value: &str) -> Result<u64, String> {
    let (digits, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
    let shift = match unit {
        "GiB" | "Gi" | "G" => 30,
        "MiB" | "Mi" | "M" => 20,
        "" => 0,
        _ => return Err(format!("\"{value}\" is no size: write 80GiB, 512MiB or bytes")),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    number.ok_or_else(|| format!("\"{value}\" is no size: write 80GiB, 512MiB or bytes"))
}

/// `5us`, `2ms`, `100ns`.
pub(crate) fn duration(value: &str) -> Result<u64, String> {
    let (digits, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("\"{value}\" is no time: write 500ns, 5us, 2ms or 1s")),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
    number.ok_or_else(|| format!("\"{value}\" is no time: write 500ns, 5us, 2ms or 1s"))
}

fn cuda_version(value: &str) -> Result<i32, String> {
    let parsed = value
        .split_once('.')
        .and_then(|(major, minor)| Some(major.parse::<i32>().ok()? * 1000 + minor.parse::<i32>().ok()? * 10));
    parsed.ok_or_else(|| format!("\"{value}\" is no CUDA version: write 13.0"))
}

fn nvlink(value: &str) -> Result<NvLink, String> {
    match value {
        "all" => Ok(NvLink::All),
        "pairs" => Ok(NvLink::Pairs),
        "none" => Ok(NvLink::None),
        _ => Err(format!("nvlink={value}: write all, pairs or none")),
    }
}

fn compute_mode(value: &str) -> Result<i32, String> {
    match value {
        "default" => Ok(0),
        "prohibited" => Ok(2),
        "exclusive" => Ok(3),
        _ => Err(format!("compute-mode={value}: write default, prohibited or exclusive")),
    }
}

/// `0000:18:00.0` or `18:00.0`.
fn pci(value: &str) -> Result<(u32, u32, u32), String> {
    let hex = |s: &str| u32::from_str_radix(s, 16).ok();
    let parts: Vec<&str> = value.trim_end_matches(".0").split(':').collect();
    let parsed = match parts.as_slice() {
        [bus, device] => hex(bus).zip(hex(device)).map(|(b, d)| (0, b, d)),
        [domain, bus, device] => hex(domain).zip(hex(bus).zip(hex(device))).map(|(m, (b, d))| (m, b, d)),
        _ => None,
    };
    parsed.ok_or_else(|| format!("\"{value}\" is no PCI address: write 0000:18:00.0"))
}

fn given_uuid(value: &str) -> Result<String, String> {
    let hex = value.strip_prefix("GPU-").unwrap_or("").replace('-', "");
    if value.len() == 40 && hex.len() == 32 && hex.chars().all(|c| c.is_ascii_hexdigit()) {
        Ok(value.to_ascii_lowercase().replacen("gpu-", "GPU-", 1))
    } else {
        Err(format!("\"{value}\" is no UUID: write GPU-01234567-89ab-cdef-0123-456789abcdef"))
    }
}

fn instances(model: &Model, value: &str, seed: &str) -> Result<Vec<Instance>, String> {
    let known = || model.mig.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
    if model.mig.is_empty() {
        return Err(format!("mig={value}: the {} has no MIG", model.short));
    }
    let mut found = Vec::new();
    for word in value.split(['+', ',']).filter(|w| !w.is_empty() && *w != "on") {
        let (times, name) = match word.split_once('*') {
            Some((n, name)) => (count(n)?, name),
            None => (1, word),
        };
        let Some(profile) = model.mig.iter().find(|p| p.name == name) else {
            return Err(format!("mig={value}: the {} has no profile {name}, it has {}", model.short, known()));
        };
        for _ in 0..times {
            let uuid = uuid("MIG", &format!("{seed}/mig/{}", found.len()));
            found.push(Instance { profile, uuid });
        }
    }
    let slices: u32 = found.iter().map(|i| i.profile.slices).sum();
    let memory: u32 = found.iter().map(|i| i.profile.memory_slices).sum();
    if slices > 7 || memory > 8 || found.len() > MAX_INSTANCES {
        return Err(format!("mig={value}: {slices} compute and {memory} memory slices asked, a card has 7 and 8"));
    }
    Ok(found)
}

/// FNV-1a, so that the same text always gives the same names.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn uuid(kind: &str, seed: &str) -> String {
    let (high, low) = (hash(&format!("{seed}/high")), hash(&format!("{seed}/low")));
    format!(
        "{kind}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

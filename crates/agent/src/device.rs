//! Devices of a node, one file per vendor. A vendor answers four questions: what is here, what happened to it, what does a
//! container need to use a part of it, and who uses it now.
//!
//! Adding one is a file in this folder and a line in [`PROVIDERS`] (`docs/design/adding-a-device.md`); out of tree it is a program
//! that answers the same four questions over a Unix socket ([`remote`]).

use std::path::PathBuf;

use divvy_core::device::Device;
use divvy_core::grant::Slice;
use divvy_core::id::DeviceId;
use divvy_core::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::edits::ContainerEdits;

pub mod cambricon;
pub mod file;
pub mod links;
pub mod nvidia;
pub mod rdma;
pub mod remote;

/// One vendor's half of the agent. The calls may block; the agent makes them on threads that may.
pub trait Provider: Send + Sync {
    /// The vendor's name, for messages.
    fn name(&self) -> &str;

    /// The devices that are here now.
    fn discover(&self) -> Result<Found, Trouble>;

    /// What happened to the devices since the last call, and whether each still answers.
    fn signs(&self) -> Result<Vec<Sign>, Trouble>;

    /// What a container needs to use these parts, which all belong to this provider.
    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble>;

    /// Who uses the devices now, and how much.
    fn usage(&self) -> Result<Vec<Usage>, Trouble>;
}

/// What [`Provider::discover`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// The devices, by index.
    pub devices: Vec<Device>,
    /// The driver's version, where there is one.
    #[serde(default)]
    pub driver: String,
}

/// A slice together with the device it is a part of.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Part<'a> {
    /// The device.
    pub device: &'a Device,
    /// What of it.
    pub slice: &'a Slice,
}

/// Something seen on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sign {
    /// The device.
    pub device: DeviceId,
    /// What was seen.
    pub seen: Seen,
}

/// What was seen on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// It answered a probe: it may be fit again.
    Answer,
    /// It reported an error by number (an XID on NVIDIA's cards).
    Error(u32),
    /// It does not answer, and why.
    Silence(String),
}

/// What is used of a device, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The device.
    pub device: DeviceId,
    /// Memory in use, by anybody.
    pub memory: Bytes,
    /// How busy it was over the vendor's last sampling period, in thousandths.
    #[serde(default)]
    pub busy: u32,
    /// How busy it was over its sampling periods of the last seconds, where somebody holds memory on it and the vendor says so, oldest
    /// first. A period begins where the one before it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<Period>,
    /// Who holds memory on it.
    #[serde(default)]
    pub processes: Vec<Process>,
}

/// One of a device's sampling periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Period {
    /// When it ended, in microseconds since the epoch.
    pub end: u64,
    /// How busy the device was, in thousandths.
    pub busy: u32,
}

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Its pid on the host.
    pub pid: u32,
    /// The memory it holds.
    pub memory: Bytes,
}

/// Why a vendor's code could not answer.
#[derive(Debug, thiserror::Error)]
#[error("{provider}: {what}")]
pub struct Trouble {
    /// The vendor.
    pub provider: String,
    /// What went wrong, and what would mend it.
    pub what: String,
}

impl Trouble {
    /// Trouble of `provider`.
    pub fn new(provider: &str, what: impl Into<String>) -> Trouble {
        Trouble { provider: provider.into(), what: what.into() }
    }
}

/// What the agent was told about the node's devices.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// NVIDIA's management library; by default the loader looks for libnvidia-ml.so.1
    #[arg(long, env = "DIVVY_NVML")]
    pub nvml: Option<PathBuf>,
    /// Where this process sees the host's root
    #[arg(long, env = "DIVVY_HOST_ROOT", default_value = "/")]
    pub host_root: PathBuf,
    /// Where the NVIDIA driver's files are on the host
    #[arg(long, env = "DIVVY_DRIVER_ROOT", default_value = "/")]
    pub driver_root: PathBuf,
    /// Folder with a fake libcuda.so.1 and libnvidia-ml.so.1 that containers get in place of a card
    #[arg(long, env = "DIVVY_FAKE_DRIVER")]
    pub fake_driver: Option<PathBuf>,
    /// The fake driver's state: the simulated cards that all its processes share (the variable is the fake driver's own)
    #[arg(long, env = "FAKE_GPU_STATE")]
    pub fake_state: Option<PathBuf>,
    /// Pretend to have the GPUs listed in this file (for demos)
    #[arg(long, env = "DIVVY_GPUS", value_name = "FILE.yaml")]
    pub gpus: Option<PathBuf>,
    /// Cambricon's command-line tool
    #[arg(long, env = "DIVVY_CNMON", default_value = "/usr/bin/cnmon")]
    pub cnmon: PathBuf,
    /// Where Cambricon's device nodes are
    #[arg(long, env = "DIVVY_CAMBRICON_DEV", default_value = "/dev")]
    pub cambricon_dev: PathBuf,
    /// Where the kernel shows RDMA devices
    #[arg(long, env = "DIVVY_RDMA_SYSFS", default_value = "/sys/class/infiniband")]
    pub rdma: PathBuf,
    /// Sockets of device providers that are programs of their own
    #[arg(long, env = "DIVVY_PROVIDERS", value_name = "SOCKET", value_delimiter = ',')]
    pub providers: Vec<PathBuf>,
}

impl Settings {
    /// Where this process finds a path of the host.
    pub fn on_host(&self, path: &std::path::Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Makes a provider if its devices can be on this node; `None` says they cannot, which is no trouble.
pub type Open = fn(&Settings) -> Result<Option<Box<dyn Provider>>, Trouble>;

/// Every vendor this build knows.
pub const PROVIDERS: &[(&str, Open)] =
    &[("nvidia", nvidia::open), ("file", file::open), ("cambricon", cambricon::open), ("rdma", rdma::open)];

const NOTHING: &str = "none on this node: no libnvidia-ml.so.1 where the loader looks (--nvml names it), no cnmon, no InfiniBand; \
                       --gpus FILE makes some up";

/// All providers for this node, and what stood in the way of the others.
pub fn open(settings: &Settings) -> (Vec<Box<dyn Provider>>, Vec<Trouble>) {
    open_of(PROVIDERS, settings)
}

fn open_of(known: &[(&str, Open)], settings: &Settings) -> (Vec<Box<dyn Provider>>, Vec<Trouble>) {
    let mut open = Vec::new();
    let mut troubles = Vec::new();
    for (_, make) in known {
        match make(settings) {
            Ok(provider) => open.extend(provider),
            Err(trouble) => troubles.push(trouble),
        }
    }
    for socket in &settings.providers {
        open.push(Box::new(remote::Remote::new(socket.clone())) as Box<dyn Provider>);
    }
    if open.is_empty() && troubles.is_empty() {
        troubles.push(Trouble::new("devices", NOTHING));
    }
    (open, troubles)
}

/// `divvy-agent discover`: what is here, for people.
pub fn print(settings: &Settings) -> anyhow::Result<()> {
    let (providers, troubles) = open(settings);
    let mut found = std::collections::BTreeMap::new();
    for provider in &providers {
        match provider.discover() {
            Ok(devices) => drop(found.insert(provider.name().to_owned(), devices)),
            Err(trouble) => eprintln!("{trouble}"),
        }
    }
    for trouble in troubles {
        eprintln!("{trouble}");
    }
    println!("{}", serde_json::to_string_pretty(&found)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Told {
        #[command(flatten)]
        settings: Settings,
    }

    fn told(known: &[(&str, Open)], more: &[&str]) -> Vec<String> {
        let told = <Told as clap::Parser>::parse_from(["agent"].iter().chain(more));
        let (providers, troubles) = open_of(known, &told.settings);
        assert!(providers.is_empty());
        troubles.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_management_library_that_is_not_there_is_one_clear_sentence() {
        let said = told(&[("nvidia", nvidia::open)], &["--nvml", "/nowhere/libnvidia-ml.so.1"]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("nvidia: cannot use /nowhere/libnvidia-ml.so.1: "), "{said:?}");
        assert!(said[0].contains("--nvml"), "{said:?}");
    }

    #[test]
    fn a_node_without_any_device_is_told_what_was_looked_for() {
        let nowhere = ["--rdma", "/nowhere", "--cnmon", "/nowhere/cnmon"];
        let said = told(&[("cambricon", cambricon::open), ("rdma", rdma::open)], &nowhere);
        assert_eq!(said.len(), 1, "{said:?}");
        for word in ["libnvidia-ml.so.1", "--nvml", "cnmon", "InfiniBand", "--gpus"] {
            assert!(said[0].contains(word), "{word}: {said:?}");
        }
    }
}

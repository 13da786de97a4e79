//! What a node has: its devices as the agent advertises them, in one versioned annotation (`divvy.dev/inventory`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::id::{DeviceId, Model};
use crate::model::units::{Bytes, Share};

/// A kind of device. GPUs are one among several; a kind brings its own placing (in the core) and its own node half (in the agent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU, shared by memory and time.
    #[default]
    Gpu,
    /// A Cambricon MLU, shared by memory.
    Mlu,
    /// An RDMA NIC: counted, with a place in the topology.
    Nic,
}

/// How two devices of a node are connected, worst first, so that the best set of devices is the one whose worst link is greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Across CPU sockets.
    CrossCpu,
    /// Within one socket, across host bridges.
    SameCpu,
    /// Through one host bridge.
    HostBridge,
    /// Through several PCIe switches.
    MultiSwitch,
    /// Through one PCIe switch.
    SingleSwitch,
    /// On one board.
    SameBoard,
    /// Directly by NVLink, or through NVSwitch.
    NvLink,
}

/// Whether a device may be given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// Fit for work.
    #[default]
    Healthy,
    /// Not fit, and why (an XID, off the bus, ...).
    Unhealthy {
        /// What the agent saw.
        reason: String,
    },
}

/// The attribute by which a card says the number in the name of its device file, which the driver may count otherwise than its cards.
pub const MINOR: &str = "minor";

/// One device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Its identity.
    pub id: DeviceId,
    /// Its kind.
    #[serde(default)]
    pub kind: DeviceKind,
    /// Its place in the vendor's enumeration, for people and for systems that name cards by number.
    pub index: u32,
    /// Its model, spaces turned into dashes.
    pub model: Model,
    /// Its memory.
    pub memory: Bytes,
    /// How much memory may be promised in all (over-subscription scales it); absent means `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bookable_memory: Option<Bytes>,
    /// How much time may be promised in all; absent means the whole of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bookable_share: Option<Share>,
    /// Most containers that may share it; absent means no cap of its own (the policy may set one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Its NUMA node, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// Its address on the PCI bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Its links to other devices of the node (of any kind); a pair that is not listed is [`Link::Unknown`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<DeviceId, Link>,
    /// How it lies to other devices on the PCIe bus, where the link is another: cards that NVLink joins may be far apart there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pcie: BTreeMap<DeviceId, Link>,
    /// Fit for work or not.
    #[serde(default)]
    pub health: Health,
    /// Taken out of service by a person: running containers stay, new ones do not come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// How containers on this device can be held to their grants, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolation: Vec<Isolation>,
    /// What the kind wants to say besides (MIG profiles and placements, KubeGPU's enum resources, ...), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

impl Device {
    /// A healthy GPU with nothing special about it. Tests and fixtures start here.
    pub fn gpu(id: impl Into<DeviceId>, index: u32, model: impl Into<Model>, memory: Bytes) -> Device {
        Device {
            id: id.into(),
            kind: DeviceKind::Gpu,
            index,
            model: model.into(),
            memory,
            bookable_memory: None,
            bookable_share: None,
            max_tasks: None,
            numa: None,
            pci: None,
            links: BTreeMap::new(),
            pcie: BTreeMap::new(),
            health: Health::Healthy,
            cordoned: false,
            isolation: Vec::new(),
            attributes: BTreeMap::new(),
        }
    }

    /// How much memory may be promised in all.
    pub fn bookable_memory(&self) -> Bytes {
        self.bookable_memory.unwrap_or(self.memory)
    }

    /// How much time may be promised in all.
    pub fn bookable_share(&self) -> Share {
        self.bookable_share.unwrap_or(Share::WHOLE)
    }

    /// Its model with the vendor's name before it, as the vGPU systems register cards.
    pub fn registered_type(&self) -> String {
        let model = self.model.as_str();
        match self.kind {
            DeviceKind::Mlu => format!("MLU-{model}"),
            _ if model.starts_with("NVIDIA") => model.to_owned(),
            _ => format!("NVIDIA-{model}"),
        }
    }

    /// May new work be placed here?
    pub fn is_open(&self) -> bool {
        self.health == Health::Healthy && !self.cordoned
    }
}

/// What holds a container to its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A hardware partition.
    Mig,
    /// Memory limits kept by the driver itself, time by interception.
    Driver,
    /// libdivvy.so: a contract with cooperative tenants, audited.
    Intercept,
    /// Nothing: the container is alone on the device, or the platform team chose not to enforce.
    None,
}

/// All devices of a node and what the agent says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Layout version; [`Inventory::VERSION`] is the newest we write.
    pub v: u32,
    /// Grows with each change, so that a late write is seen to be late.
    pub generation: u64,
    /// The devices, by index.
    pub devices: Vec<Device>,
    /// The unit in which this node counts memory for dialects that leave it to the node (Aliyun gpushare).
    #[serde(default)]
    pub memory_unit: MemoryUnit,
    /// The agent's version.
    #[serde(default)]
    pub agent: String,
    /// The driver's version, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Grants the node refused, by pod uid, with the reason: void in every fold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
    /// Pods that the node wants evicted, by uid, with the reason: a device of theirs failed. They hold what they hold until they are gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evict: BTreeMap<String, String>,
    /// Memory held on a device by processes that have no grant; it is not offered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<DeviceId, Bytes>,
}

impl Inventory {
    /// The layout this code writes.
    pub const VERSION: u32 = 1;
}

/// A node without devices.
impl Default for Inventory {
    fn default() -> Inventory {
        Inventory {
            v: Inventory::VERSION,
            generation: 0,
            devices: Vec::new(),
            memory_unit: MemoryUnit::default(),
            agent: String::new(),
            driver: String::new(),
            refused: BTreeMap::new(),
            evict: BTreeMap::new(),
            foreign: BTreeMap::new(),
        }
    }
}

/// The unit of `aliyun.com/gpu-mem` on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryUnit {
    /// 2^30 bytes.
    #[default]
    GiB,
    /// 2^20 bytes.
    MiB,
}

impl MemoryUnit {
    /// `n` of this unit.
    pub const fn of(self, n: u64) -> Bytes {
        match self {
            MemoryUnit::GiB => Bytes::gib(n),
            MemoryUnit::MiB => Bytes::mib(n),
        }
    }
}

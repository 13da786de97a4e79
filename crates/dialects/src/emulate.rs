//! What the emulated systems promised their users about a pod once it is bound: annotations on it, variables, mounts and files in its
//! containers. Images and scripts that read them keep working; the mechanisms behind them are not ours.
//!
//! The annotations travel in the Binding beside the grant. What a container is given here never decides which devices it can use:
//! that is the grant's business.

mod gpu_manager;
mod gpushare;
mod kubegpu;
mod kubeshare;
mod mlu;
mod vgpu;

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::ask::{ContainerAsk, Dialect, GpuAsk};
use divvy_core::device::{Device, DeviceKind, Inventory};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::id::ContainerName;

use crate::manifest::PodManifest;

pub use gpu_manager::{VcudaConfig, vcuda_config};
pub use kubegpu::kubegpu_result;

/// Where a pod was placed.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Its devices.
    pub inventory: &'a Inventory,
    /// Ports that other KubeShare pods of the node already carry.
    pub ports_taken: &'a BTreeSet<u16>,
}

impl<'a> Place<'a> {
    fn device(&self, slice: &Slice) -> Option<&'a Device> {
        self.inventory.devices.iter().find(|device| device.id == slice.device)
    }
}

/// What users of the pod's dialect find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emulation {
    /// Annotations for the Binding.
    pub annotations: BTreeMap<String, String>,
    /// Those that read differently once the pod's containers have their devices.
    pub started: BTreeMap<String, String>,
    /// What its containers find; containers that find nothing are left out.
    pub containers: BTreeMap<ContainerName, Promised>,
}

/// What one container finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Files and folders from outside.
    pub mounts: Vec<PromisedMount>,
    /// Files with a content of their own.
    pub files: Vec<PromisedFile>,
}

/// A path in the container and what is to be seen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromisedMount {
    /// Where in the container.
    pub path: String,
    /// What is there.
    pub source: Source,
    /// May the container not write it?
    pub read_only: bool,
}

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The interception library, under the name the emulated system gave its own.
    Library,
    /// The driver's libraries as the host has them.
    Driver,
    /// A folder of this container's own that lives as long as it does.
    Own,
    /// The same path of the host.
    Host,
}

/// A file and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromisedFile {
    /// Where in the container.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// What the users of the ask's dialect are to find on `pod`, given `grant` on the node of `place`.
pub fn emulate(pod: &PodManifest<'_>, ask: &GpuAsk, grant: &Grant, place: &Place<'_>) -> Emulation {
    let bound = Bound { pod, ask, grant, place };
    let mut emulation = match ask.dialect {
        Dialect::Native => Emulation::default(),
        Dialect::Kubeshare => kubeshare::emulate(&bound),
        Dialect::Kubegpu => kubegpu::emulate(&bound),
        Dialect::GpuManager => gpu_manager::emulate(&bound),
        Dialect::Gpushare => gpushare::emulate(&bound),
        Dialect::Vgpu | Dialect::Hami => vgpu::emulate(&bound),
    };
    emulation.containers.retain(|_, promised| *promised != Promised::default());
    emulation
}

/// A pod with all that is known of it.
struct Bound<'a> {
    pod: &'a PodManifest<'a>,
    ask: &'a GpuAsk,
    grant: &'a Grant,
    place: &'a Place<'a>,
}

/// A container's ask and what it was granted.
struct Granted<'a> {
    ask: &'a ContainerAsk,
    grant: &'a ContainerGrant,
}

impl<'a> Bound<'a> {
    /// Each container that was granted something.
    fn containers(&self) -> impl Iterator<Item = Granted<'a>> + use<'a> {
        let asks = &self.ask.containers;
        self.grant.containers.iter().filter_map(move |grant| {
            let ask = asks.iter().find(|ask| ask.name == grant.name)?;
            Some(Granted { ask, grant })
        })
    }

    /// What the container called `name` was granted of this kind.
    fn slices(&self, name: &str, kind: DeviceKind) -> Vec<&'a Slice> {
        let grant = self.grant.containers.iter().find(|grant| grant.name.as_str() == name);
        grant.into_iter().flat_map(|grant| &grant.slices).filter(|slice| slice.kind == kind).collect()
    }

    fn device(&self, slice: &Slice) -> Option<&'a Device> {
        self.place.device(slice)
    }

    fn seconds(&self) -> String {
        (self.grant.at / 1000).to_string()
    }

    fn nanoseconds(&self) -> String {
        (u128::from(self.grant.at) * 1_000_000).to_string()
    }
}

impl<'a> Granted<'a> {
    fn gpus(&self) -> Vec<&'a Slice> {
        self.grant.slices.iter().filter(|slice| slice.kind == DeviceKind::Gpu).collect()
    }

    /// Whole devices, nobody else on them.
    fn is_whole(&self) -> bool {
        self.ask.wants.iter().any(|want| want.exclusive)
    }
}

/// The ids of some slices' devices, separated by commas.
fn ids(slices: &[&Slice]) -> String {
    slices.iter().map(|slice| slice.device.as_str()).collect::<Vec<_>>().join(",")
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What NVIDIA's container runtime reads.
const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

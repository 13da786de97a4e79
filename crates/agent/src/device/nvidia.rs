//! NVIDIA's cards, through NVML, which is loaded at run time: a node without it is a node without these cards.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use divvy_core::device::{Device, DeviceKind, Health, Isolation, Link, MINOR};
use divvy_core::id::{DeviceId, Model};
use divvy_core::mig;
use divvy_core::units::Bytes;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, Sampling, TopologyLevel};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::Sample;

use super::{Found, Part, Period, Process, Provider, Seen, Settings, Sign, Trouble, Usage};
use crate::edits::ContainerEdits;

mod errors;
pub(crate) mod files;

use files::Files;

const NAME: &str = "nvidia";

/// The node's cards.
pub struct Nvidia {
    nvml: &'static Nvml,
    files: Files,
    errors: errors::Listener,
    /// Minor numbers (`/dev/nvidia3`) by uuid, as last discovered: a container must get its node even while NVML is busy.
    minors: Mutex<HashMap<String, u32>>,
    /// Cards by index, as last seen well: one that is lost cannot even say its name.
    known: Mutex<BTreeMap<u32, Device>>,
}

/// There while NVIDIA's kernel driver is.
const DRIVER: &str = "/proc/driver/nvidia/version";

/// A provider, if NVML can be loaded.
pub fn open(settings: &Settings) -> Result<Option<Box<dyn Provider>>, Trouble> {
    let fake = settings.fake_driver.as_ref().map(|dir| dir.join("libnvidia-ml.so.1"));
    let path = settings.nvml.as_ref().or(fake.as_ref());
    let mut builder = Nvml::builder();
    if let Some(path) = path {
        builder.lib_path(path.as_os_str());
    }
    let nvml = match builder.init() {
        Ok(nvml) => nvml,
        // Nobody said there would be cards, and there are none.
        Err(NvmlError::LibloadingError(_)) if path.is_none() && !settings.on_host(Path::new(DRIVER)).exists() => {
            return Ok(None);
        }
        Err(e) => {
            let what = path.map_or("libnvidia-ml.so.1".to_owned(), |p| p.display().to_string());
            return Err(Trouble::new(
                NAME,
                format!(
                    "cannot use {what}: {e}; is the driver loaded, does it match, and is the library where --nvml says?"
                ),
            ));
        }
    };
    let driver = nvml.sys_driver_version().unwrap_or_default();
    // One per process, for its whole life: NVML's event sets borrow it from a thread of their own.
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    Ok(Some(Box::new(Nvidia {
        nvml,
        files: Files::find(settings, &driver),
        errors: errors::Listener::start(nvml),
        minors: Mutex::new(HashMap::new()),
        known: Mutex::default(),
    })))
}

type Card = nvml_wrapper::Device<'static>;

impl Nvidia {
    /// The cards NVML can open, and what it said about the others.
    fn cards(&self) -> Result<Vec<Result<Card, NvmlError>>, Trouble> {
        let count = self.nvml.device_count().map_err(|e| Trouble::new(NAME, format!("cannot count cards: {e}")))?;
        Ok((0..count).map(|index| self.nvml.device_by_index(index)).collect())
    }

    fn describe(&self, index: u32, card: &Card) -> Result<Device, NvmlError> {
        let uuid = card.uuid()?;
        let pci = card.pci_info().ok();
        if let (Ok(minor), Ok(mut minors)) = (card.minor_number(), self.minors.lock()) {
            minors.insert(uuid.clone(), minor);
        }
        let mut attributes = BTreeMap::new();
        if let Ok(minor) = card.minor_number() {
            attributes.insert(MINOR.to_owned(), minor.to_string());
        }
        if let Ok(cuda) = self.nvml.sys_cuda_driver_version() {
            attributes.insert("cuda".to_owned(), format!("{}.{}", cuda / 1000, cuda % 1000 / 10));
        }
        if let Ok(capability) = card.cuda_compute_capability() {
            attributes.insert("computeCapability".to_owned(), format!("{}.{}", capability.major, capability.minor));
        }
        if let Ok(shape) = card.attributes() {
            attributes.insert("multiprocessors".to_owned(), shape.multiprocessor_count.to_string());
        }
        let cut_up = card.mig_mode().is_ok_and(|mode| mode.current == 1);
        if cut_up {
            attributes.insert("mig".to_owned(), "enabled".to_owned());
        }
        Ok(Device {
            kind: DeviceKind::Gpu,
            numa: card.numa_node_id().ok().or_else(|| pci.as_ref().and_then(|p| numa_of(&p.bus_id))),
            pci: pci.map(|p| p.bus_id),
            health: Health::Healthy,
            isolation: if cut_up { vec![Isolation::Mig] } else { vec![Isolation::Intercept, Isolation::None] },
            attributes,
            ..Device::gpu(uuid, index, model(&card.name()?), Bytes(card.memory_info()?.total))
        })
    }

    /// The hardware partitions of a card in MIG mode, each a device of its own.
    fn partitions(&self, card: &Card, parent: &Device) -> Vec<Device> {
        let most = card.mig_device_count().unwrap_or(0);
        let open = |i| card.mig_device_by_index(i).ok();
        let mut found = Vec::new();
        for part in (0..most).filter_map(open) {
            let (Ok(uuid), Ok(memory)) = (part.uuid(), part.memory_info()) else { continue };
            let mut device = instance(parent, uuid, Bytes(memory.total), &part.name().unwrap_or_default());
            if let Ok(shape) = part.attributes() {
                let sizes = [
                    ("multiprocessors", shape.multiprocessor_count),
                    ("gpuInstanceSlices", shape.gpu_instance_slice_count),
                ];
                device.attributes.extend(sizes.map(|(key, size)| (key.to_owned(), size.to_string())));
            }
            found.push(device);
        }
        found
    }

    fn has_nvlink(a: &Card, b: &Card) -> bool {
        matches!(a.p2p_status(b, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok))
    }

    /// How two cards lie on the bus. NVML takes the other card by value, so it is opened once more by its index.
    fn on_the_bus(&self, a: &Card, index_of_b: u32) -> Link {
        match self.nvml.device_by_index(index_of_b).and_then(|b| a.topology_common_ancestor(b)) {
            Ok(TopologyLevel::Internal) => Link::SameBoard,
            Ok(TopologyLevel::Single) => Link::SingleSwitch,
            Ok(TopologyLevel::Multiple) => Link::MultiSwitch,
            Ok(TopologyLevel::HostBridge) => Link::HostBridge,
            Ok(TopologyLevel::Node) => Link::SameCpu,
            Ok(TopologyLevel::System) => Link::CrossCpu,
            Err(_) => Link::Unknown,
        }
    }
}

impl Provider for Nvidia {
    fn name(&self) -> &str {
        NAME
    }

    fn discover(&self) -> Result<Found, Trouble> {
        let cards = self.cards()?;
        let mut whole: Vec<(Device, &Card)> = Vec::new();
        let mut lost = Vec::new();
        let mut known = self.known.lock().map_err(|_| Trouble::new(NAME, "an earlier call panicked"))?;
        for (index, card) in (0u32..).zip(&cards) {
            let described = card.as_ref().ok().and_then(|card| Some((self.describe(index, card).ok()?, card)));
            match described {
                Some(described) => whole.push(described),
                None => lost.extend(known.get(&index).cloned()),
            }
        }
        let wires: Vec<Vec<Wire>> = whole
            .iter()
            .map(|(device, card)| {
                let others = whole.iter().filter(|(other, _)| other.id != device.id);
                let wire = |(other, theirs): &(Device, &Card)| Wire {
                    to: other.id.clone(),
                    nvlink: Nvidia::has_nvlink(card, theirs),
                    bus: self.on_the_bus(card, other.index),
                };
                others.map(wire).collect()
            })
            .collect();
        let mut devices = Vec::new();
        for ((mut device, card), wires) in whole.into_iter().zip(wires) {
            connect(&mut device, wires);
            let partitions = self.partitions(card, &device);
            if device.attributes.contains_key("mig") {
                devices.extend(partitions);
            } else {
                devices.push(device);
            }
        }
        // MIG partitions come and go with their card; only whole cards are remembered.
        for device in devices.iter().filter(|d| !d.attributes.contains_key(mig::PARENT)) {
            known.insert(device.index, device.clone());
        }
        known.retain(|index, _| (*index as usize) < cards.len());
        devices.extend(lost);
        devices.sort_by_key(|d| d.index);
        Ok(Found { devices, driver: self.nvml.sys_driver_version().unwrap_or_default() })
    }

    fn signs(&self) -> Result<Vec<Sign>, Trouble> {
        let mut signs = self.errors.take();
        let known = self.known.lock().map_err(|_| Trouble::new(NAME, "an earlier call panicked"))?;
        for (index, card) in (0u32..).zip(self.cards()?) {
            match card {
                Ok(card) => {
                    let Ok(uuid) = card.uuid() else { continue };
                    // Memory is asked of the card itself, unlike its name: a card off the bus cannot answer.
                    let seen = match card.memory_info() {
                        Ok(_) => Seen::Answer,
                        Err(e) => Seen::Silence(format!("NVML says: {e}")),
                    };
                    let parts = (0..card.mig_device_count().unwrap_or(0)).filter_map(|i| {
                        let uuid = card.mig_device_by_index(i).ok()?.uuid().ok()?;
                        Some(Sign { device: uuid.into(), seen: seen.clone() })
                    });
                    signs.extend(parts);
                    signs.push(Sign { device: uuid.into(), seen });
                }
                Err(e) => {
                    let silence = |device: &Device| Sign {
                        device: device.id.clone(),
                        seen: Seen::Silence(format!("NVML says: {e}")),
                    };
                    signs.extend(known.get(&index).map(silence));
                }
            }
        }
        Ok(signs)
    }

    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble> {
        let minors = self.minors.lock().map_err(|_| Trouble::new(NAME, "an earlier call panicked"))?;
        self.files.edits(parts, &minors).map_err(|what| Trouble::new(NAME, what))
    }

    fn usage(&self) -> Result<Vec<Usage>, Trouble> {
        let mut all = Vec::new();
        for card in self.cards()?.into_iter().flatten() {
            let (Ok(uuid), Ok(memory)) = (card.uuid(), card.memory_info()) else { continue };
            let mut processes: BTreeMap<u32, u64> = BTreeMap::new();
            let compute = card.running_compute_processes().unwrap_or_default();
            let graphics = card.running_graphics_processes().unwrap_or_default();
            for process in compute.into_iter().chain(graphics) {
                let used = match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => bytes,
                    UsedGpuMemory::Unavailable => 0,
                };
                // A process that draws and computes stands in both lists with the same figure.
                let entry = processes.entry(process.pid).or_default();
                *entry = (*entry).max(used);
            }
            all.push(Usage {
                device: uuid.into(),
                memory: Bytes(memory.used),
                busy: card.utilization_rates().map_or(0, |u| u.gpu.min(100) * 10),
                periods: if processes.is_empty() { Vec::new() } else { periods(&card) },
                processes: processes.into_iter().map(|(pid, memory)| Process { pid, memory: Bytes(memory) }).collect(),
            });
        }
        Ok(all)
    }
}

/// How busy a card was lately. NVML keeps some seconds of it, and says nothing of cards in MIG mode.
fn periods(card: &Card) -> Vec<Period> {
    const LATELY: Duration = Duration::from_secs(3);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = u64::try_from(now.saturating_sub(LATELY).as_micros()).unwrap_or(0);
    let samples = card.samples(Sampling::GpuUtilization, since).unwrap_or_default();
    let period = |sample: Sample| match sample.value {
        SampleValue::U32(percent) => Some(Period { end: sample.timestamp, busy: percent.min(100) * 10 }),
        _ => None,
    };
    samples.into_iter().filter_map(period).collect()
}

/// How a card is connected to another one.
struct Wire {
    to: DeviceId,
    nvlink: bool,
    bus: Link,
}

/// Writes down how a card is connected: by the best there is, and where that is NVLink, also how the two lie on the bus.
fn connect(device: &mut Device, wires: Vec<Wire>) {
    for Wire { to, nvlink, bus } in wires {
        if nvlink && bus != Link::Unknown {
            device.pcie.insert(to.clone(), bus);
        }
        let best = if nvlink { Link::NvLink } else { bus };
        if best != Link::Unknown {
            device.links.insert(to, best);
        }
    }
}

/// A part that somebody cut off a card, as a device of its own: it is given as it stands, to one container.
fn instance(parent: &Device, uuid: String, memory: Bytes, name: &str) -> Device {
    let mut attributes = parent.attributes.clone();
    attributes.insert(mig::PARENT.to_owned(), parent.id.to_string());
    attributes.extend(profile(name).map(|profile| (mig::PROFILE.to_owned(), profile)));
    Device {
        id: uuid.into(),
        memory,
        isolation: vec![Isolation::Mig],
        max_tasks: Some(1),
        attributes,
        ..parent.clone()
    }
}

/// The profile at the end of an instance's name (`NVIDIA A100-SXM4-40GB MIG 1g.5gb`). What stands behind a plus (`1g.10gb+me`) stands behind
/// a point in the resources by which people ask for it, for their names may have no plus.
fn profile(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    Some(profile.trim().replace('+', ".")).filter(|profile| !profile.is_empty())
}

/// `NVIDIA H200` is written `NVIDIA-H200`, as labels and KubeShare's users do.
fn model(name: &str) -> Model {
    name.trim().replace(' ', "-").into()
}

/// The kernel's answer where NVML has none. It says -1 where it does not know.
fn numa_of(bus_id: &str) -> Option<u32> {
    // NVML writes eight digits of domain, the kernel four.
    let short = bus_id.to_ascii_lowercase();
    let short = if short.len() > 12 { &short[short.len() - 12..] } else { &short };
    std::fs::read_to_string(format!("/sys/bus/pci/devices/{short}/numa_node")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use divvy_core::ask::{DeviceAsk, MemoryAsk};
    use divvy_core::device::Inventory;
    use divvy_core::grant::Slice;
    use divvy_core::kind::{DeviceScheduler, Gpu, Want};

    use super::*;
    use crate::edits::VISIBLE_DEVICES;

    const MIG: &str = "MIG-6ea1f1d2-0000-4000-8000-00000000beef";

    fn part() -> Device {
        let mut card = Device::gpu("GPU-0", 0, "NVIDIA-A100-SXM4-40GB", Bytes::mib(40_536));
        card.attributes.insert("mig".into(), "enabled".into());
        instance(&card, MIG.into(), Bytes::mib(4864), "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    }

    fn placed(ask: &DeviceAsk) -> Option<Slice> {
        let want = Want { ask, isolation: &[Isolation::Mig] };
        Gpu.slice(&part(), &Inventory::default(), &want, 0).ok()
    }

    #[test]
    fn an_instance_is_placed_on_by_its_profile_and_by_its_memory() {
        let named = |profile: &str| DeviceAsk { partition: Some(profile.into()), ..DeviceAsk::default() };
        assert_eq!(placed(&named("1g.5gb")).unwrap().partition.as_deref(), Some("1g.5gb"));
        assert_eq!(placed(&named("2g.10gb")), None);
        let memory = |mib| DeviceAsk { memory: MemoryAsk::Bytes(Bytes::mib(mib)), ..DeviceAsk::default() };
        assert_eq!(placed(&memory(3000)).unwrap().device.as_str(), MIG);
        assert_eq!(placed(&memory(4865)), None);
    }

    #[test]
    fn cards_that_nvlink_joins_also_say_how_they_lie_on_the_bus() {
        let mut card = Device::gpu("GPU-0", 0, "H100", Bytes::gib(80));
        let wire = |to: &str, nvlink, bus| Wire { to: to.into(), nvlink, bus };
        let unknown = Link::Unknown;
        connect(
            &mut card,
            vec![
                wire("1", true, Link::SingleSwitch),
                wire("2", false, Link::CrossCpu),
                wire("3", true, unknown),
                wire("4", false, unknown),
            ],
        );
        let links = [("1", Link::NvLink), ("2", Link::CrossCpu), ("3", Link::NvLink)];
        assert_eq!(card.links, links.map(|(id, link)| (id.into(), link)).into());
        assert_eq!(card.pcie, [("1".into(), Link::SingleSwitch)].into());
    }

    #[test]
    fn the_profile_is_what_stands_at_the_end_of_an_instances_name() {
        let names = ["MIG 1g.5gb", "NVIDIA A100 MIG 1c.3g.20gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me"];
        assert_eq!(names.map(|name| profile(name).unwrap()), ["1g.5gb", "1c.3g.20gb", "1g.10gb.me"]);
        assert_eq!(["", "NVIDIA H200", "NVIDIA H200 MIG "].map(profile), [None, None, None]);
    }

    #[test]
    fn a_container_with_an_instance_sees_the_instance_through_its_cards_node() {
        let device = part();
        let slice = placed(&DeviceAsk::default()).unwrap();
        let files = Files::Real { mounts: Vec::new(), shared: Vec::new() };
        let minors = HashMap::from([("GPU-0".to_owned(), 3)]);
        let edits = files.edits(&[Part { device: &device, slice: &slice }], &minors).unwrap();
        assert_eq!(edits.env[VISIBLE_DEVICES], MIG);
        assert_eq!(edits.devices[0].host.to_str(), Some("/dev/nvidia3"));
    }
}

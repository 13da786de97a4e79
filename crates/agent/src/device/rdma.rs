//! RDMA NICs, from the kernel's own tables: whole devices, counted, with a place in the topology.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use divvy_core::device::{Device, DeviceKind, Isolation};
use divvy_core::id::{DeviceId, Model};
use divvy_core::units::Bytes;

use super::{Found, Part, Provider, Seen, Settings, Sign, Trouble, Usage};
use crate::edits::{ContainerEdits, DeviceNode};

const NAME: &str = "rdma";

/// The NICs under one sysfs folder.
pub struct Rdma {
    class: PathBuf,
}

/// A provider, if the kernel shows any RDMA device.
pub fn open(settings: &Settings) -> Result<Option<Box<dyn Provider>>, Trouble> {
    if !settings.rdma.is_dir() {
        return Ok(None);
    }
    Ok(Some(Box::new(Rdma { class: settings.rdma.clone() })))
}

impl Rdma {
    /// The kernel's names (`mlx5_0`), in order.
    fn names(&self) -> Result<Vec<String>, Trouble> {
        let entries = std::fs::read_dir(&self.class)
            .map_err(|e| Trouble::new(NAME, format!("cannot list {}: {e}", self.class.display())))?;
        let mut names: Vec<String> =
            entries.filter_map(|e| e.ok().map(|e| e.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str, file: &str) -> Option<String> {
        std::fs::read_to_string(self.class.join(name).join(file)).ok().map(|s| s.trim().to_owned())
    }

    /// By the port's own identity, which survives renumbering; a NIC that has none is known by its name.
    fn id(&self, name: &str) -> DeviceId {
        match self.read(name, "node_guid") {
            Some(guid) if guid.chars().any(|c| c != '0' && c != ':') => format!("NIC-{}", guid.replace(':', "")).into(),
            _ => format!("NIC-{name}").into(),
        }
    }

    /// `4: ACTIVE` means a cable with somebody at its other end.
    fn has_active_port(&self, name: &str) -> bool {
        let Ok(ports) = std::fs::read_dir(self.class.join(name).join("ports")) else { return false };
        ports.flatten().any(|port| {
            std::fs::read_to_string(port.path().join("state")).is_ok_and(|state| state.trim_start().starts_with('4'))
        })
    }

    fn device(&self, index: u32, name: &str) -> Device {
        let model = self.read(name, "hca_type").filter(|m| !m.is_empty()).unwrap_or_else(|| name.to_owned());
        let pci = std::fs::canonicalize(self.class.join(name).join("device"))
            .ok()
            .and_then(|path| path.file_name().map(|f| f.to_string_lossy().into_owned()));
        Device {
            kind: DeviceKind::Nic,
            numa: self.read(name, "device/numa_node").and_then(|n| n.parse().ok()),
            pci,
            isolation: vec![Isolation::None],
            max_tasks: Some(1),
            attributes: BTreeMap::from([("name".to_owned(), name.to_owned())]),
            ..Device::gpu(self.id(name), index, Model::from(model.replace(' ', "-")), Bytes::ZERO)
        }
    }
}

impl Provider for Rdma {
    fn name(&self) -> &str {
        NAME
    }

    fn discover(&self) -> Result<Found, Trouble> {
        let devices = self.names()?.iter().zip(0..).map(|(name, index)| self.device(index, name)).collect();
        Ok(Found { devices, driver: String::new() })
    }

    fn signs(&self) -> Result<Vec<Sign>, Trouble> {
        let sign = |name: &String| Sign {
            device: self.id(name),
            seen: if self.has_active_port(name) {
                Seen::Answer
            } else {
                Seen::Silence(format!("no port of {name} is active"))
            },
        };
        Ok(self.names()?.iter().map(sign).collect())
    }

    /// The verbs device of each NIC, and the connection manager all share.
    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble> {
        let mut edits = ContainerEdits::default();
        for part in parts {
            let name = part.device.attributes.get("name").map(String::as_str).unwrap_or_default();
            let verbs = verbs_node(&self.class, name).ok_or_else(|| {
                Trouble::new(NAME, format!("{name} has no uverbs device: is the ib_uverbs module loaded?"))
            })?;
            edits.devices.push(DeviceNode::same(format!("/dev/infiniband/{verbs}")));
        }
        if !parts.is_empty() {
            edits.devices.push(DeviceNode::same("/dev/infiniband/rdma_cm"));
        }
        Ok(edits)
    }

    fn usage(&self) -> Result<Vec<Usage>, Trouble> {
        Ok(Vec::new())
    }
}

fn verbs_node(class: &Path, name: &str) -> Option<String> {
    let entries = std::fs::read_dir(class.join(name).join("device/infiniband_verbs")).ok()?;
    entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A sysfs with one active and one unplugged NIC, as the kernel lays it out.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, guid, state) in
            [("mlx5_0", "b8ce:f603:0077:1234", "4: ACTIVE"), ("mlx5_1", "b8ce:f603:0077:1235", "1: DOWN")]
        {
            let nic = dir.path().join(name);
            fs::create_dir_all(nic.join("ports/1")).unwrap();
            fs::create_dir_all(nic.join("device/infiniband_verbs").join(format!("uverbs{}", &name[5..]))).unwrap();
            fs::write(nic.join("node_guid"), format!("{guid}\n")).unwrap();
            fs::write(nic.join("hca_type"), "MT4129\n").unwrap();
            fs::write(nic.join("device/numa_node"), "1\n").unwrap();
            fs::write(nic.join("ports/1/state"), format!("{state}\n")).unwrap();
        }
        dir
    }

    #[test]
    fn nics_are_found_with_their_place_and_their_health() {
        let dir = sysfs();
        let rdma = Rdma { class: dir.path().to_owned() };
        let found = rdma.discover().unwrap().devices;
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].id.as_str(), "NIC-b8cef60300771234");
        assert_eq!((found[0].kind, found[0].numa, found[0].model.as_str()), (DeviceKind::Nic, Some(1), "MT4129"));
        let signs = rdma.signs().unwrap();
        assert_eq!(signs[0].seen, Seen::Answer);
        assert!(matches!(&signs[1].seen, Seen::Silence(why) if why.contains("mlx5_1")));
    }

    #[test]
    fn a_container_gets_the_verbs_device_of_its_nic_and_no_other() {
        let dir = sysfs();
        let rdma = Rdma { class: dir.path().to_owned() };
        let device = rdma.discover().unwrap().devices.remove(1);
        let slice = crate::testing::slice(&device.id, Bytes::ZERO, 0);
        let edits = rdma.edits(&[Part { device: &device, slice: &slice }]).unwrap();
        let nodes: Vec<_> = edits.devices.iter().map(|d| d.container.display().to_string()).collect();
        assert_eq!(nodes, ["/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"]);
    }
}

//! GPUs that are only written down: `--gpus file.yaml`, for demos and tests of everything that needs no driver.
//!
//! ```yaml
//! gpus:
//!   - model: NVIDIA-H200      # count, memory and nvlink may be left out
//!     count: 8
//!     memory: 141GiB
//!     nvlink: true
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use divvy_core::device::{Device, Isolation, Link};
use divvy_core::id::DeviceId;
use divvy_core::units::Bytes;
use serde::Deserialize;

use super::{Found, Part, Provider, Seen, Settings, Sign, Trouble, Usage};
use crate::edits::{ContainerEdits, VISIBLE_DEVICES};

const NAME: &str = "file";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    gpus: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    model: String,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "usual_memory")]
    memory: String,
    #[serde(default)]
    nvlink: bool,
}

fn one() -> u32 {
    1
}

fn usual_memory() -> String {
    "80GiB".into()
}

/// Written-down GPUs.
pub struct Listed {
    devices: Vec<Device>,
}

/// A provider, if a file was named.
pub fn open(settings: &Settings) -> Result<Option<Box<dyn Provider>>, Trouble> {
    let Some(path) = &settings.gpus else { return Ok(None) };
    Ok(Some(Box::new(Listed { devices: read(path)? })))
}

fn read(path: &Path) -> Result<Vec<Device>, Trouble> {
    let trouble = |what: String| Trouble::new(NAME, format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| trouble(e.to_string()))?;
    let listing: Listing = serde_saphyr::from_str(&text).map_err(|e| trouble(e.to_string()))?;
    let mut devices = Vec::new();
    for entry in &listing.gpus {
        let memory = parse_memory(&entry.memory)
            .ok_or_else(|| trouble(format!("memory {:?} is not an amount such as 80GiB or 16384MiB", entry.memory)))?;
        let first = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let ids: Vec<DeviceId> = (first..first.saturating_add(entry.count)).map(id).collect();
        for (index, id) in (first..).zip(&ids) {
            let mut device = Device::gpu(id.clone(), index, entry.model.replace(' ', "-"), memory);
            device.isolation = vec![Isolation::Intercept, Isolation::None];
            if entry.nvlink {
                let others = ids.iter().filter(|other| *other != id);
                device.links = others.map(|other| (other.clone(), Link::NvLink)).collect::<BTreeMap<_, _>>();
            }
            devices.push(device);
        }
    }
    Ok(devices)
}

/// The same on every start, so that grants outlive one.
fn id(index: u32) -> DeviceId {
    format!("GPU-00000000-0000-4000-8000-{index:012x}").into()
}

pub(crate) fn parse_memory(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.trim().parse().ok()?;
    match &text[digits.len()..] {
        "GiB" | "Gi" => Some(Bytes::gib(number)),
        "MiB" | "Mi" => Some(Bytes::mib(number)),
        _ => None,
    }
}

impl Provider for Listed {
    fn name(&self) -> &str {
        NAME
    }

    fn discover(&self) -> Result<Found, Trouble> {
        Ok(Found { devices: self.devices.clone(), driver: String::new() })
    }

    fn signs(&self) -> Result<Vec<Sign>, Trouble> {
        Ok(self.devices.iter().map(|d| Sign { device: d.id.clone(), seen: Seen::Answer }).collect())
    }

    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble> {
        let mut edits = ContainerEdits::default();
        let ids: Vec<&str> = parts.iter().map(|p| p.device.id.as_str()).collect();
        edits.env.insert(VISIBLE_DEVICES.into(), ids.join(","));
        Ok(edits)
    }

    fn usage(&self) -> Result<Vec<Usage>, Trouble> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Result<Vec<Device>, Trouble> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn cards_are_counted_through_and_linked_within_their_line() {
        let devices = listed(
            "gpus: [{model: NVIDIA H200, count: 2, memory: 141GiB, nvlink: true}, {model: T4, memory: 16384MiB}]",
        )
        .unwrap();
        assert_eq!(devices.len(), 3);
        assert_eq!((devices[2].index, devices[2].memory), (2, Bytes::gib(16)));
        assert_eq!(devices[0].model.as_str(), "NVIDIA-H200");
        assert_eq!(devices[0].links.get(&devices[1].id), Some(&Link::NvLink));
        assert!(devices[2].links.is_empty());
    }

    #[test]
    fn a_mistake_is_named_with_the_file() {
        let error = listed("gpus: [{model: T4, memory: lots}]").unwrap_err().to_string();
        assert!(error.contains("lots") && error.contains("80GiB"), "{error}");
        assert!(listed("gpus: [{modle: T4}]").unwrap_err().to_string().contains("modle"));
    }
}

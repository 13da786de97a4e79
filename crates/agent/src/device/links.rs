//! Links between devices of different vendors, by their addresses on the PCI bus: a NIC "on the GPU's switch".

use std::path::{Path, PathBuf};

use divvy_core::device::{Device, Link};

/// How two PCI devices are connected, judged by how much of their path through the bus they share in sysfs
/// (`/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/...`), and by their NUMA nodes.
pub fn between(a: &Path, b: &Path, numa: (Option<u32>, Option<u32>)) -> Link {
    let (a, b): (Vec<_>, Vec<_>) = (bridges(a), bridges(b));
    let shared = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    if shared == 0 {
        return match numa {
            (Some(x), Some(y)) if x == y => Link::SameCpu,
            (Some(_), Some(_)) => Link::CrossCpu,
            _ => Link::Unknown,
        };
    }
    // What is left below the last shared bridge: the device itself, and a port of the switch for each switch in between.
    match (a.len() - shared).max(b.len() - shared) {
        _ if shared == 1 => Link::HostBridge,
        0..=2 => Link::SingleSwitch,
        _ => Link::MultiSwitch,
    }
}

/// The path from the host bridge down to the device.
fn bridges(path: &Path) -> Vec<String> {
    path.components()
        .map(|c| c.as_os_str().to_string_lossy().into_owned())
        .skip_while(|c| !c.starts_with("pci"))
        .collect()
}

/// Adds the links that only the bus can tell: between devices of different providers.
pub fn complete(devices: &mut [Device], sys: &Path) {
    let paths: Vec<Option<PathBuf>> = devices.iter().map(|d| d.pci.as_ref().and_then(|pci| locate(sys, pci))).collect();
    for i in 0..devices.len() {
        for j in 0..devices.len() {
            let (Some(a), Some(b)) = (&paths[i], &paths[j]) else { continue };
            if i == j || devices[i].kind == devices[j].kind {
                continue;
            }
            let link = between(a, b, (devices[i].numa, devices[j].numa));
            let other = devices[j].id.clone();
            if link != Link::Unknown {
                devices[i].links.entry(other).or_insert(link);
            }
        }
    }
}

/// Where sysfs keeps the device with this address. NVML writes eight digits of domain, the kernel four.
fn locate(sys: &Path, pci: &str) -> Option<PathBuf> {
    let short = pci.to_ascii_lowercase();
    let short = short.strip_prefix("0000").filter(|s| s.matches(':').count() == 2 && s.len() >= 12).unwrap_or(&short);
    std::fs::canonicalize(sys.join("bus/pci/devices").join(short)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_on_the_gpus_switch_is_closer_than_one_on_another_host_bridge() {
        let gpu = Path::new("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
        let beside = Path::new("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0");
        let under_other_port = Path::new("/sys/devices/pci0000:15/0000:15:03.0/0000:26:00.0");
        let other_bridge = Path::new("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0");
        assert_eq!(between(gpu, beside, (Some(0), Some(0))), Link::SingleSwitch);
        assert_eq!(between(gpu, under_other_port, (Some(0), Some(0))), Link::HostBridge);
        assert_eq!(between(gpu, other_bridge, (Some(0), Some(0))), Link::SameCpu);
        assert_eq!(between(gpu, other_bridge, (Some(0), Some(1))), Link::CrossCpu);
        assert_eq!(between(gpu, other_bridge, (None, Some(1))), Link::Unknown);
    }
}

//! gpu-manager: the indexes of cards on the pod, and the folder and variables of its driver replacement.

use divvy_core::ask::Role;
use divvy_core::device::{Device, MINOR};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use super::{Bound, Emulation, Granted, Promised, PromisedFile, PromisedMount, Source, VISIBLE_DEVICES, ids, pairs};

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let mut emulation = Emulation {
        annotations: pairs([
            (keys::VCUDA_NODE, bound.place.node.to_owned()),
            (keys::VCUDA_ASSIGNED, "false".into()),
            (keys::VCUDA_TIME, bound.nanoseconds()),
        ]),
        started: pairs([(keys::VCUDA_ASSIGNED, "true".into())]),
        ..Emulation::default()
    };
    for granted in bound.containers() {
        let Some(container) =
            bound.pod.containers().into_iter().find(|container| *container.name() == *granted.grant.name.as_str())
        else {
            continue;
        };
        if container.role == Role::Main {
            let key = format!("{}{}", keys::VCUDA_GPU_INDEX, container.index);
            emulation.annotations.insert(key, minors(bound, &granted).join(","));
        }
        let config = config(bound, &granted);
        let old = container.env("compat32").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let libraries = if old { "/usr/local/nvidia/lib" } else { "/usr/local/nvidia/lib64" };
        let promised = Promised {
            env: pairs([("LD_LIBRARY_PATH", libraries.into()), (VISIBLE_DEVICES, ids(&granted.gpus()))]),
            mounts: vec![
                PromisedMount { path: "/usr/local/nvidia".into(), source: Source::Driver, read_only: true },
                PromisedMount { path: "/etc/vcuda".into(), source: Source::Own, read_only: true },
            ],
            files: vec![PromisedFile { path: "/etc/vcuda/vcuda.config".into(), content: vcuda_config(&config) }],
        };
        emulation.containers.insert(granted.grant.name.clone(), promised);
    }
    emulation
}

/// The numbers in the names of the cards' device files. The driver may count them otherwise than it counts its cards; where the node
/// does not say, they are taken for the same.
fn minors(bound: &Bound<'_>, granted: &Granted<'_>) -> Vec<String> {
    let minor = |device: &Device| device.attributes.get(MINOR).cloned().unwrap_or_else(|| device.index.to_string());
    granted.gpus().iter().filter_map(|slice| bound.device(slice)).map(minor).collect()
}

/// Hundredths of cards, as they were asked for.
fn cores(granted: &Granted<'_>) -> u32 {
    granted.ask.wants.iter().map(|want| want.count.saturating_mul(want.share.0 / 10)).sum()
}

fn config(bound: &Bound<'_>, granted: &Granted<'_>) -> VcudaConfig {
    let slices = granted.gpus();
    let first = slices.first();
    let device = first.and_then(|slice| bound.device(slice));
    let mut version = bound.place.inventory.driver.split('.').map(|part| part.parse().unwrap_or(0));
    let limit = first.map_or(Share::ZERO, |slice| slice.share_limit);
    VcudaConfig {
        pod_uid: bound.pod.identity("uid").to_owned(),
        container: granted.grant.name.to_string(),
        bus_id: device.and_then(|device| device.pci.as_deref()).map(short_bus_id).unwrap_or_default(),
        memory: first.map_or(Bytes::ZERO, |slice| slice.memory_limit),
        utilization: cores(granted),
        limit: limit.0 / 10,
        // That there is an annotation, not what it says, made gpu-manager's limit a soft one.
        hard: bound.pod.annotation(keys::VCUDA_CORE_LIMIT).is_none(),
        driver: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        enabled: !granted.is_whole(),
    }
}

/// An address on the PCI bus with four digits of its domain, where four are enough: the driver writes eight, which leaves the file no
/// room for the zero at the end.
fn short_bus_id(long: &str) -> String {
    let Some((domain, rest)) = long.split_once(':') else { return long.to_owned() };
    let spare = domain.len().saturating_sub(4);
    let zeros = domain.bytes().take(spare).take_while(|digit| *digit == b'0').count();
    format!("{}:{rest}", &domain[zeros..])
}

/// What gpu-manager told its library about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcudaConfig {
    /// The pod's uid.
    pub pod_uid: String,
    /// The container's name.
    pub container: String,
    /// The first card's address on the PCI bus.
    pub bus_id: String,
    /// The memory limit.
    pub memory: Bytes,
    /// Hundredths of a card asked for.
    pub utilization: u32,
    /// Up to how many hundredths the container may go.
    pub limit: u32,
    /// Whether no other limit than what it asked for was named.
    pub hard: bool,
    /// Major and minor version of the driver.
    pub driver: (i32, i32),
    /// Whether there is anything to limit.
    pub enabled: bool,
}

/// The same as the file that was found at `/etc/vcuda/vcuda.config`: 8240 bytes, little-endian.
pub fn vcuda_config(config: &VcudaConfig) -> Vec<u8> {
    let mut bytes = vec![0u8; 8240];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let text = |text: &str, room: usize| text.as_bytes()[..text.len().min(room - 1)].to_vec(); // one zero stays at the end
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX).to_le_bytes();
    put(0, &text(&config.pod_uid, 48));
    put(48, &number(config.limit));
    put(4096, &text(&config.container, 4096));
    put(8192, &text(&config.bus_id, 16));
    put(8208, &config.memory.0.to_le_bytes());
    put(8216, &number(config.utilization));
    put(8220, &number(u32::from(config.hard)));
    put(8224, &config.driver.0.to_le_bytes());
    put(8228, &config.driver.1.to_le_bytes());
    put(8232, &number(u32::from(config.enabled)));
    bytes
}

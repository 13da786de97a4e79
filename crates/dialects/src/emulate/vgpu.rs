//! 4paradigm's vGPU scheduler and HAMi: the devices of all containers in one string on the pod, limits as variables in each.

use divvy_core::ask::{Dialect, Role};
use divvy_core::device::DeviceKind;
use divvy_core::grant::Slice;
use divvy_core::keys;

use super::{Bound, Emulation, Granted, Promised, PromisedMount, Source, VISIBLE_DEVICES, ids, mlu, pairs};

const FOLDER: &str = "/usr/local/vgpu";
const MIB: u64 = 1 << 20;

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let mut emulation = Emulation::default();
    match bound.ask.dialect {
        Dialect::Vgpu => annotate_vgpu(bound, &mut emulation),
        _ => annotate_hami(bound, &mut emulation),
    }
    for granted in bound.containers() {
        let mut promised = Promised::default();
        limits(bound, &granted, &mut promised);
        mlu::promise(bound, &granted, &mut promised);
        emulation.containers.insert(granted.grant.name.clone(), promised);
    }
    emulation
}

/// `UUID,TYPE,MiB,cores:` for each device.
fn encode(bound: &Bound<'_>, container: &str, kinds: &[DeviceKind]) -> String {
    let slices = kinds.iter().flat_map(|kind| bound.slices(container, *kind));
    slices
        .map(|slice| {
            let kind = match slice.kind {
                DeviceKind::Gpu => "NVIDIA",
                DeviceKind::Mlu => "MLU",
                DeviceKind::Nic => "NIC",
            };
            format!("{},{kind},{},{}:", slice.device, slice.memory.0 / MIB, slice.share.0 / 10)
        })
        .collect()
}

/// Containers joined by `;`; a container without devices is empty. Init containers were not known.
fn annotate_vgpu(bound: &Bound<'_>, emulation: &mut Emulation) {
    let main: Vec<String> = bound
        .pod
        .containers()
        .iter()
        .filter(|container| container.role == Role::Main)
        .map(|container| encode(bound, &container.name(), &[DeviceKind::Gpu, DeviceKind::Mlu]))
        .collect();
    let text = main.join(";");
    emulation.annotations = pairs([
        (keys::VGPU_NODE, bound.place.node.to_owned()),
        (keys::VGPU_TIME, bound.seconds()),
        (keys::VGPU_IDS, text.clone()),
        (keys::VGPU_TO_ALLOCATE, text),
        (keys::VGPU_BIND_TIME, bound.seconds()),
        (keys::VGPU_BIND_PHASE, "allocating".into()),
    ]);
    emulation.started = pairs([
        (keys::VGPU_BIND_PHASE, "success".into()),
        (keys::VGPU_TO_ALLOCATE, ";".repeat(main.len().saturating_sub(1))),
    ]);
}

/// Each container ended by `;`, init containers first, one pair of annotations per vendor.
fn annotate_hami(bound: &Bound<'_>, emulation: &mut Emulation) {
    emulation.annotations = pairs([
        (keys::HAMI_NODE, bound.place.node.to_owned()),
        (keys::HAMI_TIME, bound.seconds()),
        (keys::HAMI_BIND_TIME, bound.seconds()),
        (keys::HAMI_BIND_PHASE, "allocating".into()),
    ]);
    emulation.started = pairs([(keys::HAMI_BIND_PHASE, "success".into())]);
    for (kind, to_allocate, allocated) in [
        (DeviceKind::Gpu, keys::HAMI_TO_ALLOCATE, keys::HAMI_ALLOCATED),
        (DeviceKind::Mlu, keys::HAMI_MLU_TO_ALLOCATE, keys::HAMI_MLU_ALLOCATED),
    ] {
        let containers = bound.pod.containers();
        let text: String = containers.iter().map(|container| encode(bound, &container.name(), &[kind]) + ";").collect();
        if text.trim_matches(';').is_empty() {
            continue;
        }
        emulation.annotations.insert(allocated.into(), text.clone());
        emulation.annotations.insert(to_allocate.into(), text);
        emulation.started.insert(to_allocate.into(), ";".repeat(containers.len()));
    }
    mlu::annotate(bound, emulation);
}

/// The variables that the preloaded library of these systems read, and the folder it stood in.
fn limits(bound: &Bound<'_>, granted: &Granted<'_>, promised: &mut Promised) {
    let slices = granted.gpus();
    let Some(first) = slices.first() else { return };
    promised.env = pairs([
        (VISIBLE_DEVICES, ids(&slices)),
        ("CUDA_DEVICE_SM_LIMIT", (first.share.0 / 10).to_string()),
        ("CUDA_DEVICE_MEMORY_SHARED_CACHE", format!("{FOLDER}/{}.cache", bound.pod.identity("uid"))),
    ]);
    for (number, slice) in slices.iter().enumerate() {
        promised.env.insert(format!("CUDA_DEVICE_MEMORY_LIMIT_{number}"), format!("{}m", slice.memory_limit.0 / MIB));
    }
    let scaled = |slice: &&Slice| bound.device(slice).is_some_and(|device| device.bookable_memory() > device.memory);
    if slices.iter().any(scaled) {
        promised.env.insert("CUDA_OVERSUBSCRIBE".into(), "true".into());
    }
    promised.mounts = vec![
        PromisedMount { path: FOLDER.into(), source: Source::Own, read_only: false },
        PromisedMount { path: format!("{FOLDER}/libvgpu.so"), source: Source::Library, read_only: true },
        PromisedMount { path: "/tmp/vgpulock".into(), source: Source::Own, read_only: false },
    ];
}

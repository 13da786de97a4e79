//! Cambricon MLUs: 4paradigm split them by variables, HAMi by an annotation that the vendor's plugin reads.

use divvy_core::ask::{Dialect, MemoryAsk};
use divvy_core::device::DeviceKind;
use divvy_core::keys;

use super::{Bound, Emulation, Granted, Promised, PromisedMount, Source, pairs};

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 256 << 20;

/// The variables of a container with parts of MLUs. A container with whole ones needs none.
pub(super) fn promise(bound: &Bound<'_>, granted: &Granted<'_>, promised: &mut Promised) {
    let split =
        |want: &divvy_core::ask::DeviceAsk| want.kind == DeviceKind::Mlu && matches!(want.memory, MemoryAsk::Bytes(_));
    let slices = bound.slices(granted.grant.name.as_str(), DeviceKind::Mlu);
    let (Some(first), true) = (slices.first(), granted.ask.wants.iter().any(split)) else { return };
    if bound.ask.dialect != Dialect::Vgpu {
        return; // HAMi leaves it to the vendor's plugin
    }
    let visible: Vec<String> = slices.iter().filter_map(|slice| Some(bound.device(slice)?.index.to_string())).collect();
    promised.env.extend(pairs([
        ("CAMBRICON_SPLIT_ENABLE", "1".into()),
        ("CAMBRICON_SPLIT_VISIBLE_DEVICES", visible.join(",")),
        ("CAMBRICON_SPLIT_MEMS", (first.memory.0 / GIB).to_string()),
    ]));
    promised.mounts.extend(
        ["/dev/cambricon", "/usr/bin/cnmon", "/usr/bin/smlu-containerd"].map(|path| PromisedMount {
            path: path.into(),
            source: Source::Host,
            read_only: path != "/dev/cambricon",
        }),
    );
}

/// `index_cores_blocks` of the first part of an MLU in the pod.
pub(super) fn annotate(bound: &Bound<'_>, emulation: &mut Emulation) {
    let profile = bound.containers().find_map(|granted| {
        let slice = *bound.slices(granted.grant.name.as_str(), DeviceKind::Mlu).first()?;
        let shared = granted.ask.wants.iter().any(|want| want.kind == DeviceKind::Mlu && !want.exclusive);
        shared.then_some(())?;
        Some(format!("{}_{}_{}", bound.device(slice)?.index, slice.share.0 / 10, slice.memory.0 / BLOCK))
    });
    if let Some(profile) = profile {
        emulation.annotations.insert(keys::HAMI_MLU_PROFILE.into(), profile);
        emulation.annotations.insert(keys::HAMI_MLU_ASSIGNED.into(), "false".into());
        emulation.started.insert(keys::HAMI_MLU_ASSIGNED.into(), "true".into());
    }
}

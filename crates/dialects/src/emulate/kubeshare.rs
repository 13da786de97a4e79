//! KubeShare: annotations of the cells and devices, and the variables of Gemini's hook.

use divvy_core::ask::Role;
use divvy_core::cells;
use divvy_core::keys;
use divvy_core::units::Bytes;

use super::{Bound, Emulation, Promised, PromisedMount, Source, VISIBLE_DEVICES, ids, pairs};

/// Ports of Gemini's pod managers: 512 slots on each node, the first of them kept back.
const PORTS: std::ops::RangeInclusive<u16> = 50051..=50561;

/// Where its library stood.
const LIBRARY: &str = "/kubeshare/library/libgemhook.so.1";

pub(super) fn emulate(bound: &Bound<'_>) -> Emulation {
    let mut emulation = Emulation::default();
    // All containers see the devices of the first.
    let Some(first) = bound.containers().next() else { return emulation };
    let slices = first.gpus();
    let whole = first.is_whole() || slices.len() > 1;
    let end = if whole { "," } else { "" };
    let each = |text: &dyn Fn(&divvy_core::device::Device) -> String| -> String {
        let texts: Vec<String> = slices.iter().filter_map(|slice| bound.device(slice)).map(text).collect();
        texts.join(",") + end
    };
    let cell = |device: &divvy_core::device::Device| match device.attributes.get(cells::ATTRIBUTE) {
        Some(cell) => cell.clone(),
        None => format!("{}/{}", bound.place.node, device.index + 1),
    };
    let memory: Bytes = slices.iter().map(|slice| slice.memory).sum();
    emulation.annotations = pairs([
        (keys::KUBESHARE_CELL_ID, each(&cell)),
        (keys::KUBESHARE_MODEL, each(&|device| device.model.to_string())),
        (keys::KUBESHARE_UUID, each(&|device| device.id.to_string())),
        (keys::KUBESHARE_MEMORY, memory.0.to_string()),
    ]);
    let port = if whole { None } else { port(bound) };
    if let Some(port) = port {
        emulation.annotations.insert(keys::KUBESHARE_PORT.into(), port.to_string());
    }

    for container in bound.pod.containers().into_iter().filter(|container| container.role == Role::Main) {
        let mut promised = Promised {
            env: pairs([
                // A comma at the end, as KubeShare wrote it, names an empty device to today's runtimes.
                (VISIBLE_DEVICES, ids(&slices)),
                ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility".into()),
            ]),
            ..Promised::default()
        };
        if let Some(port) = port {
            promised.env.extend(pairs([
                ("LD_PRELOAD", LIBRARY.into()),
                ("POD_MANAGER_PORT", port.to_string()),
                ("POD_NAME", format!("{}/{}", bound.pod.identity("namespace"), bound.pod.identity("name"))),
            ]));
            promised.mounts.push(PromisedMount { path: LIBRARY.into(), source: Source::Library, read_only: true });
        }
        emulation.containers.insert((*container.name()).into(), promised);
    }
    emulation
}

/// The port the pod already has, or the lowest that no other pod of the node has. Nobody listens there: limits are kept without it.
/// What a pod carries before it is bound was copied from another one, and is that one's.
fn port(bound: &Bound<'_>) -> Option<u16> {
    let written = bound.pod.node_name().and_then(|_| bound.pod.annotation(keys::KUBESHARE_PORT));
    let written = written.and_then(|text| text.parse().ok()).filter(|port| PORTS.contains(port));
    written.or_else(|| PORTS.into_iter().find(|port| !bound.place.ports_taken.contains(port)))
}

//! What `kubectl inspect gpushare` printed, for people and scripts that know it.

use divvy_core::ask::{ContainerAsk, DeviceAsk, MemoryAsk, Role};
use divvy_core::device::{Device, DeviceKind, MemoryUnit};
use divvy_core::pod::Pod;
use divvy_core::snapshot::NodeState;
use divvy_dialects::inspect::{NodeView, PodView, details, summary};

use crate::cluster::View;
use crate::ending::NotFound;
use crate::output;

pub(super) fn print(view: &View, only: Option<&str>, detailed: bool) -> anyhow::Result<()> {
    // Nodes with GPUs, or the one that is named, whatever it has.
    let wanted = |state: &&NodeState| match only {
        Some(only) => state.node().name.as_str() == only,
        None => state.has(DeviceKind::Gpu),
    };
    let states: Vec<&NodeState> = view.snapshot.nodes().map(|(_, state)| state).filter(wanted).collect();
    if let Some(only) = only.filter(|_| states.is_empty()) {
        return Err(NotFound(format!("there is no node {only}")).into());
    }
    // One unit for the whole table: the finer one where nodes differ.
    let fine = states.iter().any(|state| state.node().inventory.memory_unit == MemoryUnit::MiB);
    let unit = if fine { MemoryUnit::MiB } else { MemoryUnit::GiB };
    let nodes: Vec<NodeView> = states.into_iter().map(|state| node(view, state, unit)).collect();
    output::show(&if detailed { details(&nodes) } else { summary(&nodes, unit) })
}

fn node(view: &View, state: &NodeState, unit: MemoryUnit) -> NodeView {
    let inventory = &state.node().inventory;
    let size = unit.of(1).0;
    let cards = cards(&inventory.devices);
    let pod = |pod: &divvy_core::snapshot::PodState| {
        let charges = pod.charges();
        let on =
            |card: &usize| charges.iter().filter(|(d, _)| *d as usize == *card).map(|(_, c)| c.memory.0 / size).sum();
        let held: Vec<u64> = cards.iter().map(on).collect();
        let lacks_grant = pod.pod().bound().is_some_and(|bound| bound.grant.is_none());
        let pending = if lacks_grant { asked(pod.pod(), inventory.memory_unit) / size } else { 0 };
        PodView { namespace: pod.pod().key.namespace.to_string(), name: pod.pod().key.name.to_string(), held, pending }
    };
    let pods = state.pods().iter().filter_map(|ix| view.snapshot.pod_at(*ix)).map(pod);
    NodeView {
        name: state.node().name.to_string(),
        address: view.notes.get(&state.node().name).and_then(|note| note.address.clone()),
        cards: cards.iter().map(|i| state.books()[*i].memory.0 / size).collect(),
        pods: pods.filter(|pod| pod.pending > 0 || pod.held.iter().any(|held| *held > 0)).collect(),
    }
}

/// The places of the GPUs among a node's devices, in the order of their numbers: the columns are named by them.
fn cards(devices: &[Device]) -> Vec<usize> {
    let mut cards: Vec<usize> = (0..devices.len()).filter(|i| devices[*i].kind == DeviceKind::Gpu).collect();
    cards.sort_by_key(|i| devices[*i].index);
    cards
}

/// The bytes a pod asks for, as far as it says so in bytes or in the node's units. Init containers run one after another and before the
/// others, so the pod needs the larger of what the greatest of them and what all others want.
fn asked(pod: &Pod, unit: MemoryUnit) -> u64 {
    let of_want = |want: &DeviceAsk| match want.memory {
        MemoryAsk::NodeUnits(n) => unit.of(n).0 * u64::from(want.count),
        MemoryAsk::Bytes(bytes) => bytes.0 * u64::from(want.count),
        MemoryAsk::Nothing | MemoryAsk::Part(_) => 0,
    };
    let of = |container: &ContainerAsk| container.wants.iter().map(of_want).sum::<u64>();
    let (init, others): (Vec<&ContainerAsk>, Vec<&ContainerAsk>) =
        pod.ask.iter().flat_map(|ask| &ask.containers).partition(|container| container.role == Role::Init);
    let starting = init.into_iter().map(of).max().unwrap_or(0);
    starting.max(others.into_iter().map(of).sum())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use divvy_core::ask::{Dialect, GpuAsk};
    use divvy_core::units::Bytes;

    use super::*;

    #[test]
    fn a_pod_without_a_card_needs_what_it_holds_at_most_at_one_time() {
        let container = |name: &str, role: Role, units: u64| ContainerAsk {
            name: name.into(),
            role,
            wants: vec![DeviceAsk { memory: MemoryAsk::NodeUnits(units), ..DeviceAsk::default() }],
        };
        let of = |first: u64, second: u64| {
            let containers = vec![
                container("i", Role::Init, first),
                container("j", Role::Init, second),
                container("a", Role::Main, 2),
                container("b", Role::Sidecar, 3),
            ];
            let mut pod = Pod::new("default", "p");
            pod.ask = Some(Arc::new(GpuAsk::of(Dialect::Gpushare, containers)));
            asked(&pod, MemoryUnit::GiB) >> 30
        };
        assert_eq!(of(4, 1), 5);
        assert_eq!(of(4, 8), 8);
    }

    #[test]
    fn the_columns_go_by_the_cards_numbers() {
        let mut nic = Device::gpu("N", 0, "X", Bytes::gib(1));
        nic.kind = DeviceKind::Nic;
        let card = |id: &str, index: u32| Device::gpu(id, index, "T4", Bytes::gib(15));
        assert_eq!(cards(&[card("a", 2), nic, card("b", 0), card("c", 1)]), [2, 3, 0]);
    }
}

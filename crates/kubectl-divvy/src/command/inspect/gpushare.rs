//! What `kubectl inspect gpushare` printed, for people and scripts that know it.

use divvy_core::ask::MemoryAsk;
use divvy_core::device::{DeviceKind, MemoryUnit};
use divvy_core::pod::Pod;
use divvy_core::snapshot::NodeState;
use divvy_dialects::inspect::{NodeView, PodView, details, summary};

use crate::cluster::View;
use crate::ending::NotFound;
use crate::output;

pub(super) fn print(view: &View, only: Option<&str>, detailed: bool) -> anyhow::Result<()> {
    let with_cards = view.snapshot.nodes().map(|(_, state)| state).filter(|state| state.has(DeviceKind::Gpu));
    let states: Vec<&NodeState> =
        with_cards.filter(|state| only.is_none_or(|only| state.node().name.as_str() == only)).collect();
    if let Some(only) = only.filter(|_| states.is_empty()) {
        return Err(NotFound(format!("there is no node {only} with GPUs")).into());
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
    let cards: Vec<usize> =
        (0..inventory.devices.len()).filter(|i| inventory.devices[*i].kind == DeviceKind::Gpu).collect();
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

/// The bytes a pod asks for, as far as it says so in bytes or in the node's units.
fn asked(pod: &Pod, unit: MemoryUnit) -> u64 {
    let wants = pod.ask.iter().flat_map(|ask| &ask.containers).flat_map(|c| &c.wants);
    let bytes = wants.map(|want| match want.memory {
        MemoryAsk::NodeUnits(n) => unit.of(n).0 * u64::from(want.count),
        MemoryAsk::Bytes(bytes) => bytes.0 * u64::from(want.count),
        MemoryAsk::Nothing | MemoryAsk::Part(_) => 0,
    });
    bytes.sum()
}

//! Rows as the core sees them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use divvy_core::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk, ModelPattern, Role};
use divvy_core::device::Device;
use divvy_core::node::Node;
use divvy_core::pod::{Pod, PodSpec};
use divvy_core::resources::Resources;
use divvy_core::units::{Bytes, Share};
use divvy_core::{Snapshot, grant::Grant};

use crate::rows::{NodeRow, Request};

/// The memory of every simulated GPU. The trace asks for parts of GPUs, so any amount will do.
const MEMORY: Bytes = Bytes::gib(16);

/// A node.
pub fn node(row: &NodeRow) -> Node {
    let mut node = Node::new(&*row.name, Resources::of(row.cpu, Bytes::mib(row.memory)));
    // The trace knows no such limit.
    node.max_pods = u32::MAX;
    let device = |i: u32| Device::gpu(format!("{}/{i}", row.name), i, &*row.model, MEMORY);
    node.inventory.devices = (0..row.gpus).map(device).collect();
    node
}

/// An empty cluster of these nodes.
pub fn snapshot(rows: &[NodeRow]) -> Snapshot {
    let mut snapshot = Snapshot::new();
    rows.iter().for_each(|row| snapshot.put_node(node(row)));
    snapshot
}

/// Makes pods; those that ask for the same share what they ask with.
#[derive(Debug, Default)]
pub struct Pods {
    models: BTreeSet<Arc<str>>,
    made: HashMap<Request, (Arc<PodSpec>, Option<Arc<GpuAsk>>)>,
}

impl Pods {
    /// For a cluster of these nodes.
    pub fn on(nodes: &[NodeRow]) -> Pods {
        Pods { models: nodes.iter().filter(|n| n.gpus > 0).map(|n| n.model.clone()).collect(), made: HashMap::new() }
    }

    /// A waiting pod.
    pub fn pod(&mut self, name: &str, request: &Request) -> Pod {
        let mut pod = Pod::new("trace", name);
        if !self.made.contains_key(request) {
            let made = (Arc::new(spec(request)), ask(request, &self.models).map(Arc::new));
            self.made.insert(request.clone(), made);
        }
        if let Some((spec, ask)) = self.made.get(request) {
            (pod.spec, pod.ask) = (spec.clone(), ask.clone());
        }
        pod
    }
}

fn spec(request: &Request) -> PodSpec {
    PodSpec { requests: Resources::of(request.cpu, Bytes::mib(request.memory)), ..PodSpec::default() }
}

fn ask(request: &Request, models: &BTreeSet<Arc<str>>) -> Option<GpuAsk> {
    let want = match (request.gpus, request.milli) {
        (0, _) => return None,
        (count, 1000) => DeviceAsk::whole(count),
        (count, milli) => {
            let part = Share(milli);
            DeviceAsk { count, memory: MemoryAsk::Part(part), share: part, ..DeviceAsk::default() }
        }
    };
    let container = ContainerAsk { name: "main".into(), role: Role::Main, wants: vec![want] };
    let mut ask = GpuAsk::of(Dialect::Native, vec![container]);
    if !request.models.is_empty() {
        // The trace's models are a set. A list of wanted ones has an order; a list of unwanted ones has none.
        let unwanted = models.iter().filter(|model| !request.models.contains(model));
        ask.models.avoid = unwanted.map(|model| ModelPattern::Exact(model.clone())).collect();
    }
    Some(ask)
}

/// The numbers of the GPUs a grant names, lowest first.
pub fn gpus(node: &Node, grant: Option<&Grant>) -> Vec<u32> {
    let slices = grant.into_iter().flat_map(|g| &g.containers).flat_map(|c| &c.slices);
    let index = |id| node.inventory.devices.iter().find(|d| d.id == id).map(|d| d.index);
    let mut gpus: Vec<u32> = slices.filter_map(|slice| index(slice.device.clone())).collect();
    gpus.sort_unstable();
    gpus
}

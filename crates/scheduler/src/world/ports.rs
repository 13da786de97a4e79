//! Ports that users of KubeShare find on their pods: one per pod, none twice on a node.

use std::collections::{BTreeSet, HashMap};

use divvy_core::id::{NodeName, PodUid};

/// Ports in use, by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports {
    by_node: HashMap<NodeName, BTreeSet<u16>>,
    by_pod: HashMap<PodUid, (NodeName, u16)>,
    none: BTreeSet<u16>,
}

impl Ports {
    /// A pod on a node carries this port, or none.
    pub(super) fn note(&mut self, node: &NodeName, uid: &PodUid, port: Option<u16>) {
        let Some(port) = port else { return };
        self.forget(uid);
        self.by_node.entry(node.clone()).or_default().insert(port);
        self.by_pod.insert(uid.clone(), (node.clone(), port));
    }

    /// A pod is gone.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        let Some((node, port)) = self.by_pod.remove(uid) else { return };
        if let Some(ports) = self.by_node.get_mut(&node) {
            ports.remove(&port);
            if ports.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The ports in use on a node.
    pub(super) fn taken(&self, node: &NodeName) -> &BTreeSet<u16> {
        self.by_node.get(node).unwrap_or(&self.none)
    }
}

//! A snapshot as a file: what was told, from which everything else follows. Dump a live cluster, replay it on a laptop.

use serde::{Deserialize, Serialize};

use super::{Snapshot, Surroundings};
use crate::kind::Kinds;
use crate::node::Node;
use crate::pod::Pod;
use crate::worth::Mix;

/// Everything a snapshot was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Layout version.
    pub v: u32,
    /// The nodes, in the order that breaks ties.
    pub nodes: Vec<Node>,
    /// The pods.
    pub pods: Vec<Pod>,
    /// The rest.
    #[serde(default)]
    pub surroundings: Surroundings,
    /// The mix of requests it had learnt, or was told.
    #[serde(default)]
    pub mix: Mix,
}

impl Record {
    /// The layout this code writes.
    pub const VERSION: u32 = 1;

    /// The snapshot that was told all this.
    pub fn restore(self) -> Snapshot {
        let mut snapshot = Snapshot::with_kinds(Kinds::default());
        *snapshot.surroundings_mut() = self.surroundings;
        for node in self.nodes {
            snapshot.put_node(node);
        }
        for pod in self.pods {
            snapshot.put_pod(pod);
        }
        // A record that was put together by hand says nothing about the mix: then it is that of its pods.
        if self.mix != Mix::default() {
            snapshot.expect(self.mix);
        }
        snapshot
    }
}

impl Snapshot {
    /// Everything this snapshot was told.
    pub fn record(&self) -> Record {
        Record {
            v: Record::VERSION,
            nodes: self.nodes().map(|(_, state)| state.node().clone()).collect(),
            pods: self.pods().map(|(_, state)| state.pod().clone()).collect(),
            surroundings: self.surroundings.clone(),
            mix: self.mix.clone(),
        }
    }
}

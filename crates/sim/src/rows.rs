//! Nodes and pods as the trace and its CSV files give them.

use std::sync::Arc;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: Arc<str>,
    /// CPU in thousandths of a core.
    pub cpu: u64,
    /// Memory in MiB.
    pub memory: u64,
    /// GPUs.
    pub gpus: u32,
    /// Their model; empty without any.
    pub model: Arc<str>,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// CPU in thousandths of a core.
    pub cpu: u64,
    /// Memory in MiB.
    pub memory: u64,
    /// GPUs.
    pub gpus: u32,
    /// Thousandths of each.
    pub milli: u32,
    /// Accepted models; empty accepts all.
    pub models: Vec<Arc<str>>,
}

impl Request {
    /// Thousandths of GPUs in all.
    pub fn gpu(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.milli)
    }
}

/// A pod that comes, or one that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRow {
    /// Its name.
    pub name: Arc<str>,
    /// What it asks for.
    pub request: Request,
    /// It goes.
    pub leaves: bool,
}

/// Thousandths of GPUs these nodes have.
pub fn capacity(nodes: &[NodeRow]) -> u64 {
    nodes.iter().map(|node| u64::from(node.gpus) * 1000).sum()
}

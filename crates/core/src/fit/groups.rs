//! KubeGPU's view of devices: quantities under hierarchical names, and two levels of groups on a node.
//!
//! Reading a request, placing it and writing its result back all speak of the same names; this is where they are made.

mod choice;
mod names;
mod packing;
mod tree;

pub(crate) use choice::{choose, is_auto, scarce, spelled_out};
pub(crate) use packing::Packing;

pub use names::{DEVICE, Name, without_prefix};
pub use tree::{Groups, Lifted, groups, lift, node_name};

//! A real Kubernetes for tests, on a machine with nothing but Go, a C compiler and Debian's packages.
//!
//! [`Cluster::start`] gives an API server in under three seconds, with a real kubelet and containerd in a few more; several run side
//! by side, and whatever way the process ends, nothing of them remains. `cargo xtask cluster` does the same from the shell.

pub mod browser;
mod cluster;
mod control_plane;
pub mod folder;
pub mod image;
pub mod install;
pub mod kubectl;
mod namespace;
mod network;
mod node;
mod options;
pub mod own;
mod packages;
pub mod pki;
mod process;
pub mod programs;
mod registry;
pub mod site;

pub use cluster::{BUSYBOX, Cluster, is_ready, simulated_node};
pub use control_plane::ControlPlane;
pub use image::Image;
pub use kubectl::{Kubectl, eventually};
pub use namespace::Namespace;
pub use node::Node;
pub use options::{NodeOptions, Options, Scheduler};
pub use process::Program;
pub use programs::Release;

//! Kubernetes IO: what the control plane watches, and what it does.
//!
//! ```text
//! API server ──list+watch──> watch ──Seen<wire object>──> the service's own Change
//!                                                            │ (decide, in a pure crate)
//! API server <──requests──── KubeEffects <───Effect──────────┘
//! ```
//!
//! Services see two narrow things: a stream of what was seen, and [`Effects`], one function that carries out one [`Effect`].
//! [`KubeEffects`] does so on a real API server, one file per effect; tests and demonstrations bring their own.
#![forbid(unsafe_code)]

pub mod change;
pub mod client;
pub mod effect;
mod kube_effects;
pub mod lease;
pub mod policy;
mod request;
pub mod watch;

pub use change::{Change, Kind, StorageChange};
pub use effect::{Effect, Effects, Failure};
pub use kube_effects::KubeEffects;
pub use request::{apply, delete, get, patch, post, put};

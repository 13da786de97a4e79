//! A cluster in this process: simulated nodes and simulated time, on which the real control plane runs.
//!
//! ```text
//! teams ── manifests ──> Store ── webhook::admit ──> pods as JSON, with versions, as an API server keeps them
//!   ▲                      │ ▲
//!   │                Change│ │Effect
//!   │                      ▼ │
//! Simulation ──time──> ControlPlane (scheduler::World,           nodes: what kubelets and programs do; cards run limiter::Domain
//!                                    core's Accounting)
//! ```
//!
//! Nothing here decides who gets what: pods are admitted by the webhook's functions, placed by the scheduler's `World`, charged by the
//! core's `Accounting`, and held to their shares by the limiter's `Domain`. What is made up is what the world outside Divvy does: people who submit work, programs
//! that use GPUs, kubelets that start pods, cards that break. A test of the repository's keeps it that way.
#![forbid(unsafe_code)]

pub mod accounts;
pub mod card;
pub mod control;
pub mod fleet;
mod random;
pub mod simulation;
pub mod store;
mod teams;

pub use control::ControlPlane;
pub use simulation::{Options, Simulation, Summary, Used};
pub use store::{Embedded, Refused, Store, Told};

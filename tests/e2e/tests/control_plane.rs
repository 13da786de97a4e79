//! The control plane on a real API server, with simulated nodes: every test shares one cluster and one running Divvy.
//!
//! What crashes or restarts things has clusters of its own, in `control_plane_faults.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/admission.rs"]
mod admission;
#[path = "control_plane/cli.rs"]
mod cli;
#[path = "control_plane/ground.rs"]
mod ground;
#[path = "control_plane/inventory.rs"]
mod inventory;
#[path = "control_plane/metrics.rs"]
mod metrics;
#[path = "control_plane/placing.rs"]
mod placing;
#[path = "control_plane/rights.rs"]
mod rights;

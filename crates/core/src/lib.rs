//! The pure heart of Divvy: from a snapshot of a cluster to a plan. No clock, no IO, no async, no logging.
//!
//! ```text
//! manifest --dialects--> Ask ---+
//!                               +--> schedule(&Snapshot, &Policy, now) --> Plan --audit()--> the shell carries it out
//! bound pods --fold--> Ledger --+
//! ```
//!
//! Time is an argument, randomness is a seed, and everything that can go wrong with a request is a value ([`reason`]).
#![forbid(unsafe_code)]

pub mod budget;
mod emulated;
pub mod fit;
mod hash;
pub mod keys;
#[cfg(test)]
mod laws;
pub mod ledger;
mod model;
pub mod place;
pub mod plan;
pub mod schedule;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod why;

pub use fit::{groups, resize, rules, topology};
pub use ledger::{burst, finished, kind, quota, snapshot, worth};
pub use model::policy::cells;
pub use model::{ask, device, grant, id, labels, mig, node, pod, policy, reason, resources, time, units, volume};
pub use plan::audit;

pub use plan::Plan;
pub use plan::audit::{Violation, audit};
pub use policy::Policy;
pub use schedule::{Engine, schedule};
pub use snapshot::Snapshot;
pub use why::why;

/// The manual's page about adding a device: its code runs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/design/adding-a-device.md")]
struct AddingADevice;

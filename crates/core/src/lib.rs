//! The pure heart of Divvy: from a snapshot of a cluster to a plan. No clock, no IO, no async, no logging.
//!
//! ```text
//! manifest --dialects--> Ask ---+
//!                               +--> schedule(&Snapshot, &Policy, now) --> Plan --audit()--> the shell carries it out
//! bound pods --fold--> Ledger --+
//! ```
//!
//! Time is an argument, randomness is a seed, and everything that can go wrong with a request is a value ([`reason`]).
//!
//! A room uses the rooms below it and no other:
//!
//! ```text
//! why        why a pod is pending, and the smallest change that would let it run
//! schedule   in what order: queue, gangs, preemption, reclaiming, reservations
//! place      where is it best: of what fits, what a pod gets
//! emulated   where another system would have placed it
//! plan       what is decided, and the audit of it
//! fit        may it go there: Kubernetes' rules, and devices for every request
//! budget     what it costs, and whose balance pays
//! ledger     what pods hold, what is left, and what that is worth
//! model      what there is: pods, nodes, devices, asks, grants, policies, reasons
//! ```
//!
//! Other crates name the modules of the rooms `model`, `ledger` and `fit` without the room: `divvy_core::device`, `divvy_core::snapshot`.
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

pub use ledger::snapshot::Snapshot;
pub use model::policy::Policy;
pub use plan::Plan;
pub use plan::audit::{Violation, audit};
pub use schedule::{Engine, schedule};
pub use why::why;

/// The manual's page about adding a device: its code runs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/design/adding-a-device.md")]
struct AddingADevice;

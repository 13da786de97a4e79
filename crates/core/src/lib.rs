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

pub mod ask;
pub mod audit;
pub mod budget;
pub mod burst;
pub mod cells;
pub mod device;
pub mod finished;
pub mod fit;
pub mod grant;
mod hash;
pub mod id;
pub mod keys;
pub mod kind;
pub mod kubegpu;
pub mod labels;
#[cfg(test)]
mod laws;
pub mod ledger;
pub mod mig;
pub mod node;
pub mod place;
pub mod plan;
pub mod pod;
pub mod policy;
pub mod quota;
pub mod reason;
pub mod resize;
pub mod resources;
pub mod rules;
pub mod schedule;
pub mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod topology;
pub mod units;
pub mod volume;
pub mod why;
pub mod worth;

pub use audit::{Violation, audit};
pub use plan::Plan;
pub use policy::Policy;
pub use schedule::{Engine, schedule};
pub use snapshot::Snapshot;
pub use why::why;

/// The manual's page about adding a device: its code runs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/design/adding-a-device.md")]
struct AddingADevice;

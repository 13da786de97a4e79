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
pub mod device;
pub mod grant;
pub mod id;
pub mod keys;
pub mod units;

//! Budgets, quota and metering as a controller: a thin shell over the core's accounting.
//!
//! ```text
//! API server ──watch──> News ──┐                        ┌──> statuses (balances), charges (audit trail), classes, stops
//! agents ──/journal──> Page ───┴─> Treasury::pass(now) ─┴──> Write ──> API server
//!                                  (no IO, no clock)
//! ```
//!
//! State lives in the API server and in the nodes' journals. A balance is in its budget's status; what every pod held, and at what
//! cost, in one `GpuCharges` per namespace and hour. Whoever starts reads both, lists the pods, and goes on from the moment of
//! the oldest balance: everything after it follows from facts (grants, ends, entries, journals) and comes out the same.
#![forbid(unsafe_code)]

pub mod calendar;
pub mod facts;
pub mod journals;
pub mod metrics;
pub mod news;
pub mod routes;
pub mod run;
pub mod store;
pub mod treasury;
pub mod write;

pub use treasury::Treasury;

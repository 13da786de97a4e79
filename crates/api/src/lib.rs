//! Divvy's Kubernetes objects, and the way between Kubernetes and the core.
//!
//! - [`wire`]: the objects the control plane watches, cut down to the fields it reads. Everything else (managed fields, container
//!   commands, environment) is skipped while parsing, so that 50,000 pods fit in a small process.
//! - [`extender`]: what kube-scheduler says to an extender and hears from it.
//! - [`admission`]: what the API server says to a webhook and hears from it.
#![forbid(unsafe_code)]

pub mod admission;
mod anycase;
pub mod extender;
pub mod wire;

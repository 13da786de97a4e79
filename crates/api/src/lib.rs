//! Divvy's Kubernetes objects, and the way between Kubernetes and the core.
//!
//! - [`wire`]: the objects the control plane watches, cut down to the fields it reads. Everything else (managed fields, container
//!   commands, environment) is skipped while parsing, so that 50,000 pods fit in a small process.
//! - [`convert`]: from those to the core's own values.
//! - [`policy`]: the custom resource for cluster policy.
//! - [`budget`]: the custom resources for budgets and quotas.
//! - [`extender`]: what kube-scheduler says to an extender and hears from it.
//! - [`admission`]: what the API server says to a webhook and hears from it.
//! - [`bounded`]: JSON from anybody, read within a bound of memory.
//! - [`usage`]: what agents tell on their metrics ports about containers.
#![forbid(unsafe_code)]

pub mod admission;
mod anycase;
pub mod bounded;
pub mod budget;
pub mod convert;
pub mod extender;
pub mod managed;
pub mod policy;
pub mod quantity;
pub mod reader;
pub mod usage;
pub mod wire;

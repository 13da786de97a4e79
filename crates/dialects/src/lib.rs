//! From a manifest, in any of the spellings people use, to one ask, or to all its mistakes at once.
//!
//! ```text
//! pod JSON --PodManifest--> native     --+
//!                           kubeshare  --+
//!                           kubegpu    --+--> one speaks (or all agree) --> Reading::Ask(ask, hints)
//!                           gpu_manager--+    something is wrong        --> Reading::Refused(every mistake)
//!                           gpushare   --+    nobody speaks             --> Reading::NotOurs
//!                           vgpu       --+
//! ```
//!
//! Everything here is a pure function of its arguments: no clock, no IO. [`parse`] is total: whatever the JSON, it answers.
//! [`emulate`](mod@emulate) goes the other way: what each emulated system promised its users on a bound pod and in its containers;
//! [`node`] what it showed on a node, and [`inspect`] what its command line printed.
#![forbid(unsafe_code)]

mod config;
pub mod emulate;
mod gpu_manager;
mod gpushare;
mod guard;
pub mod inspect;
mod kubegpu;
mod kubeshare;
mod manifest;
mod mistake;
mod native;
pub mod node;
pub mod quantity;
mod reading;
mod suggest;
mod vgpu;

pub use config::{CorePolicy, DialectConfig, Guard, NvidiaFlavour, OnTrick, VcudaFlavour, VgpuConfig, VgpuNames};
pub use emulate::{Emulation, emulate};
pub use manifest::{PodManifest, pod_templates};
pub use mistake::{Field, Mistake, sentence};
pub use native::render::{Rendered, render};
pub use reading::{EnvHint, Hints, PostStartHint, Reading, ResourceHint, parse};
pub use vgpu::QuotaKeys;

//! What every Divvy process needs besides its work: logs, metrics, health, listeners, and tasks that cannot die unnoticed.
//!
//! ```text
//! main ── telemetry::init
//!      ── Tasks::new ── add("watch", ..) ── add("http", http::serve(..)) ── run().await
//!                                                   │
//!                            ops routes: /healthz /readyz /metrics
//! ```
//!
//! No task is detached. [`run::Tasks`] owns them all; the first that ends (or panics) ends the process with a reason, because a
//! control plane that silently lost its lease task or its watch is worse than one that restarts.
#![forbid(unsafe_code)]

pub mod health;
pub mod http;
pub mod mutual;
pub mod run;
pub mod telemetry;
pub mod tls;

pub use health::Health;
pub use run::{Stop, Tasks};

//! The dashboard: the cluster drawn to scale, over a JSON API.
//!
//! ```text
//! watches ──Change──> Board (a fold: core's Snapshot, and what it does not keep) ──> view (typed JSON) ──> routes ──> browser
//!                       ▲                                                              │ filtered by Sight
//!          usage, budgets, the demo's clock                         access: TokenReview, SubjectAccessReview
//! ```
//!
//! Read-only. Pages carry no outside requests, and everything that changes is pushed: the browser opens one stream and is told.
#![forbid(unsafe_code)]

pub mod access;
mod assets;
pub mod board;
pub mod budgets;
mod history;
pub mod routes;
pub mod shared;
mod show;
pub mod usage;
pub mod view;

pub use access::{Access, Sight};
pub use board::{Board, Used};
pub use shared::Shared;

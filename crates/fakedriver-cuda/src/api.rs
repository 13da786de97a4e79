//! The driver's functions, by topic. A function here that bears a symbol's name is what that symbol does (see `build.rs`).
#![expect(clippy::too_many_arguments, reason = "the driver's functions have as many as they have")]

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod diagnostics;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod init;
pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node;
pub(crate) mod occupancy;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod share;
pub(crate) mod stream;
pub(crate) mod texture;
pub(crate) mod virtual_memory;

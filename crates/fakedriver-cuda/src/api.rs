//! The driver's functions, by topic. A function here that bears a symbol's name is what that symbol does (see `build.rs`).
#![expect(clippy::too_many_arguments, reason = "the driver's functions have as many as they have")]

pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod init;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod stream;

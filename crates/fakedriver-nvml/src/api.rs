//! NVML's functions, by topic. A function here that bears a symbol's name is what that symbol does (see `build.rs`).

pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod field;
pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod mig;
pub(crate) mod process;
pub(crate) mod setting;
pub(crate) mod system;
pub(crate) mod topology;

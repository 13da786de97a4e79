//! The fake driver seen from outside: real processes that load it, on machines of their own.
#![expect(unsafe_code, reason = "maps shared pages, stops processes")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

#[path = "driver/conform.rs"]
mod conform;
#[path = "driver/faults.rs"]
mod faults;
#[path = "driver/nvml.rs"]
mod nvml;
#[path = "driver/runtime.rs"]
mod runtime;
#[path = "driver/support.rs"]
mod support;
#[path = "driver/time.rs"]
mod time;

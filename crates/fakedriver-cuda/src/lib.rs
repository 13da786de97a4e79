//! The fake `libcuda.so.1`: the driver API over a simulated machine.
//!
//! - `build.rs` turns `tables/cuda.tsv` into exported functions; [`api`] has the ones that do something, by topic.
//! - [`process`]: the state of this process, one lock around it.
//! - [`engine`]: streams and what is queued in them, played in real time on the units of the machine.
//! - [`op`]: what a stream can be asked to do; [`graph`]: graphs and capture.
//! - [`memory`]: addresses, allocations, pools, virtual memory, copies.
#![expect(unsafe_code, reason = "a C interface over raw pointers")]
#![expect(non_snake_case, reason = "functions are named as they are exported")]

mod abi;
mod api;
mod call;
mod context;
mod device;
mod engine;
mod event;
mod export_table;
mod graph;
mod handles;
mod kernel;
mod memory;
mod op;
mod process;
mod tables;

#[expect(clippy::redundant_closure, reason = "generated: one form for all")]
mod exports {
    use crate::call::{Address, Symbol};

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
    include!(concat!(env!("OUT_DIR"), "/errors.rs"));
}

use exports::{ERRORS, SYMBOLS};

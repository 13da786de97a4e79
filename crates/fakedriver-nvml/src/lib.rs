//! The fake `libnvidia-ml.so.1`: NVML over a simulated machine.
//!
//! It only looks (and remembers settings): what processes hold and do is in the machine's file, written by their `libcuda`.
//! `build.rs` turns `tables/nvml.tsv` into exported functions; [`api`] has the ones that do something, by topic.
#![expect(unsafe_code, reason = "a C interface over raw pointers")]
#![expect(non_snake_case, reason = "functions are named as they are exported")]

mod abi;
mod api;
mod call;
mod physics;

#[expect(clippy::redundant_closure, reason = "generated: one form for all")]
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}

use exports::SYMBOLS;

//! The CUDA driver API as the table has it: names, real functions, and our exports.

pub(crate) mod types;

use types::CUresult;

use crate::loader::CUDA;

#[allow(
    non_snake_case,
    non_upper_case_globals,
    unused,
    clippy::too_many_arguments,
    clippy::type_complexity,
    clippy::unnecessary_cast,
    reason = "generated from the table of C names, and complete rather than minimal"
)]
mod generated {
    use super::{absent, types};
    use crate::hooks as topics;
    include!(concat!(env!("OUT_DIR"), "/cuda.rs"));

    /// Our function for the symbol at `index`, 0 if it is not hooked.
    pub(crate) fn ours(index: usize) -> usize {
        EXPORTS.address(index)
    }
}
#[cfg(target_arch = "x86_64")]
pub(crate) use generated::ARGUMENTS;
pub(crate) use generated::{LOOKUPS, NAMES, NEWEST, ROWS, STARTS, ours, real};

/// The answer where the real function is missing: the driver is not there, or too old.
#[cold]
fn absent() -> CUresult {
    if CUDA.present() { types::NOT_SUPPORTED } else { types::NO_DEVICE }
}

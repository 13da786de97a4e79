//! NVML as the table has it, and the view of it that a container gets.

pub(crate) mod deny;
pub(crate) mod devices;
pub(crate) mod memory;
pub(crate) mod processes;
pub(crate) mod types;
pub(crate) mod utilisation;

use types::nvmlReturn_t;

use crate::loader::NVML;

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
    use crate::nvml as topics;
    include!(concat!(env!("OUT_DIR"), "/nvml.rs"));

    /// Our function for the symbol at `index`, 0 if it is not hooked.
    pub(crate) fn ours(index: usize) -> usize {
        EXPORTS.address(index)
    }
}
#[cfg(target_arch = "x86_64")]
pub(crate) use generated::ARGUMENTS;
pub(crate) use generated::{NAMES, ours, real};

/// The answer where the real function is missing: NVML is not there, or too old.
#[cold]
fn absent() -> nvmlReturn_t {
    if NVML.present() { types::FUNCTION_NOT_FOUND } else { types::LIBRARY_NOT_FOUND }
}

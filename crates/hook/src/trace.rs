//! Trace mode: `DIVVY_TRACE=file` writes a line for every call that passes through us.

use core::ffi::CStr;

/// Whether calls are written down.
#[inline(always)]
pub(crate) fn on() -> bool {
    false
}

/// One call with its arguments and its status.
#[cold]
pub(crate) fn call(_name: &CStr, _arguments: &[u64], _status: u64) {}

/// A function that is not hooked: itself, or in trace mode a way to it that is written down.
pub(crate) fn watched(_name: &CStr, address: usize) -> usize {
    address
}

//! Types and constants of NVML that the hooks look into.

#![allow(non_camel_case_types, reason = "the names are the header's")]

/// Status of a call.
pub(crate) type nvmlReturn_t = u32;

pub(crate) const NO_PERMISSION: nvmlReturn_t = 4;
pub(crate) const LIBRARY_NOT_FOUND: nvmlReturn_t = 12;
pub(crate) const FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

//! The tables of internal functions that the CUDA runtime asks for by UUID.

use std::ffi::c_void;

/// The table of a UUID.
pub(crate) fn find(_id: &[u8; 16]) -> Option<*const c_void> {
    None
}

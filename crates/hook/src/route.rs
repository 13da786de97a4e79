//! `cuGetProcAddress`: how every modern runtime finds the driver.
//!
//! One name means different functions at different versions and flags, so the driver itself is asked first, with the caller's own
//! arguments. What it answers is looked up by address among its exports; only where it answers with something that is no export
//! does our own table of names, versions and flags decide.

use core::ffi::{CStr, c_char, c_void};

use crate::cuda::types::{CUresult, NOT_FOUND, SUCCESS};
use crate::cuda::{self, LOOKUPS, NEWEST, ROWS, STARTS};
use crate::loader::{CUDA, Export};
use crate::{policy, trace};

const PER_THREAD_DEFAULT_STREAM: u64 = 2;
const STATUS_NOT_FOUND: u32 = 1;

/// Looks up a function of the driver, in either form of the call; the first has no `found`.
///
/// # Safety
/// The arguments are those of cuGetProcAddress.
pub(crate) unsafe fn look_up(
    name: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    found: *mut u32,
    go: impl Fn() -> CUresult,
) -> CUresult {
    let status = go();
    if status != SUCCESS || name.is_null() || function.is_null() {
        return status;
    }
    // SAFETY: the driver took them, so they are a string and a place for a pointer.
    let (name, real) = unsafe { (CStr::from_ptr(name), *function as usize) };
    if real == 0 || !CUDA.holds(real) {
        return status;
    }
    let version = u32::try_from(version).unwrap_or(0);
    match replacement(name, version, flags, real) {
        Some((answer, hooked)) => {
            trace::lookup(name, version, flags, hooked);
            // SAFETY: as above.
            unsafe { *function = answer as *mut c_void };
        }
        None => {
            // SAFETY: as above; `found` is null or the caller's.
            unsafe {
                *function = core::ptr::null_mut();
                if let Some(found) = found.as_mut() {
                    *found = STATUS_NOT_FOUND;
                }
            }
            // The second form says so by what it found, the first by its status.
            return if found.is_null() { NOT_FOUND } else { SUCCESS };
        }
    }
    status
}

/// What the program gets for `real`, and whether that is ours; nothing if it is unknown and unknown functions are refused.
fn replacement(name: &CStr, version: u32, flags: u64, real: usize) -> Option<(usize, bool)> {
    let expected = symbol(name, version, flags & PER_THREAD_DEFAULT_STREAM != 0);
    if let Some(index) = expected.filter(|&i| CUDA.function(i) == real) {
        return Some(ours_or(index, real));
    }
    match (CUDA.export_at(real), expected) {
        (Export::Known(index), _) => Some(ours_or(index, real)),
        // No export, and a version the table covers: the driver has an inner entry point for a function we know.
        (Export::Private, Some(index)) if version <= NEWEST => Some(ours_or(index, real)),
        _ if policy::guarded(name) && !policy::let_unknown_pass(name) => None,
        _ => Some((trace::watched(name, real), false)),
    }
}

fn ours_or(index: usize, real: usize) -> (usize, bool) {
    match cuda::ours(index) {
        0 => (trace::watched(cuda::NAMES.name(index), real), false),
        ours => (ours, true),
    }
}

/// The symbol that the table has for a name at a version.
fn symbol(name: &CStr, version: u32, per_thread: bool) -> Option<usize> {
    let lookup = LOOKUPS.find(name)?;
    let rows = &ROWS[usize::from(STARTS[lookup])..usize::from(STARTS[lookup + 1])];
    let newest = |variant: bool| rows.iter().rev().find(|r| r.1 == variant && r.0 <= version).map(|r| usize::from(r.2));
    per_thread.then(|| newest(true)).flatten().or_else(|| newest(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &CStr, version: u32, per_thread: bool, expected: &str) {
        let found = symbol(name, version, per_thread).map(|i| cuda::NAMES.name(i).to_str().unwrap());
        assert_eq!(found, Some(expected), "{name:?} at {version}");
    }

    #[test]
    fn a_name_means_the_newest_symbol_at_its_version() {
        check(c"cuGetProcAddress", 11030, false, "cuGetProcAddress");
        check(c"cuGetProcAddress", 12000, false, "cuGetProcAddress_v2");
        check(c"cuMemAlloc", 2000, false, "cuMemAlloc");
        check(c"cuMemAlloc", 13000, true, "cuMemAlloc_v2");
        check(c"cuCtxSynchronize", 12090, false, "cuCtxSynchronize");
        check(c"cuCtxSynchronize", 13000, false, "cuCtxSynchronize_v2");
        check(c"cuLaunchKernel", 13000, true, "cuLaunchKernel_ptsz");
        check(c"cuLaunchKernel", 6000, true, "cuLaunchKernel");
        check(c"cuMemcpyBatchAsync", 12080, true, "cuMemcpyBatchAsync_ptsz");
        check(c"cuMemcpyBatchAsync", 13000, true, "cuMemcpyBatchAsync_v2_ptsz");
        assert_eq!(symbol(c"", 13000, false), None);
        assert_eq!(symbol(c"cuNoSuchThing", 13000, false), None);
        assert_eq!(symbol(c"cuMemAllocAsync", 11010, false), None);
    }
}

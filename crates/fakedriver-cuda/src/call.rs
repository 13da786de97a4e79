//! What surrounds every call: faults somebody asked for, the count of calls, the per-thread default stream, panics.
//! And how arguments are read and answers written.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::abi::{Answer, Error};
use crate::{SYMBOLS, process};

/// Where a symbol's function is.
pub(crate) struct Address(pub(crate) *const ());

// SAFETY: the address of a function is only ever compared and handed out.
unsafe impl Sync for Address {}

/// One line of the table.
pub(crate) struct Symbol {
    pub(crate) name: &'static str,
    pub(crate) lookup: &'static str,
    pub(crate) since: i32,
    pub(crate) per_thread: bool,
    pub(crate) address: Address,
}

static CALLS: [AtomicU64; SYMBOLS.len()] = [const { AtomicU64::new(0) }; SYMBOLS.len()];

thread_local! {
    /// Whether "stream 0" means this thread's own stream in the call that runs now.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn call(index: usize, run: impl FnOnce() -> Answer) -> u32 {
    CALLS[index].fetch_add(1, Relaxed);
    if let Some(fault) = process::machine().and_then(|m| m.fault(SYMBOLS[index].name)) {
        std::thread::sleep(std::time::Duration::from_nanos(fault.delay));
        if fault.answer != 0 {
            return fault.answer;
        }
    }
    let code = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => {
            eprintln!("fake driver: {} failed in itself", SYMBOLS[index].name);
            Error::UNKNOWN.0
        }
    };
    if tracing() {
        eprintln!("fake driver: {} = {code}", SYMBOLS[index].name);
    }
    code
}

/// Whether calls are told on standard error.
pub(crate) fn tracing() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("FAKE_GPU_TRACE").is_some())
}

pub(crate) fn call_per_thread(index: usize, run: impl FnOnce() -> Answer) -> u32 {
    PER_THREAD.set(true);
    let code = call(index, run);
    PER_THREAD.set(false);
    code
}

/// Whether "stream 0" means this thread's own stream in the call that runs now.
pub(crate) fn per_thread() -> bool {
    PER_THREAD.get()
}

pub(crate) fn not_supported() -> Answer {
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn no_such_context() -> Answer {
    Err(Error::INVALID_CONTEXT)
}

/// How often a symbol was called in this process, for tests: `fakeGpuCalls("cuMemAlloc_v2")`. -1 for a name not in the table.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fakeGpuCalls(name: *const c_char) -> i64 {
    let name = text(name).unwrap_or_default();
    let index = SYMBOLS.iter().position(|s| s.name == name);
    index.map_or(-1, |i| CALLS[i].load(Relaxed).cast_signed())
}

// The driver's contract with its callers: a pointer argument is null or valid for what the function does with it. These four
// helpers are where we rely on it; null is answered as an error, never followed.

/// Writes an answer that the caller must have a place for.
pub(crate) fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, hence valid by the contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes an answer if the caller has a place for it.
pub(crate) fn offer<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, hence valid by the contract.
        unsafe { place.write(value) };
    }
}

/// Reads an argument.
pub(crate) fn get<T: Copy>(place: *const T) -> Result<T, Error> {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, hence valid by the contract.
    Ok(unsafe { place.read() })
}

/// Reads an array; null only if it is empty.
pub(crate) fn array<T: Copy>(place: *const T, count: usize) -> Result<Vec<T>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, hence valid for `count` elements by the contract.
    Ok(unsafe { std::slice::from_raw_parts(place, count) }.to_vec())
}

/// Reads a C string; `None` for null.
pub(crate) fn text(place: *const c_char) -> Option<String> {
    // SAFETY: not null, hence a C string by the contract.
    (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
}

/// Writes a C string into a buffer of the caller's, cut to fit.
pub(crate) fn put_text(place: *mut c_char, room: usize, text: &str) -> Answer {
    if place.is_null() || room == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let count = text.len().min(room - 1);
    // SAFETY: the buffer has `room` bytes by the contract.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), count);
        place.add(count).write(0);
    }
    Ok(())
}

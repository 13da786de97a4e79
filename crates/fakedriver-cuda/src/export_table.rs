//! The tables of internal functions that the CUDA runtime asks for by UUID: those by which it starts, loads code and keeps
//! values with contexts.
//!
//! One table is refused on purpose: in it a genuine driver proves to the runtime that it is one. So the runtime of the wheels
//! starts on us, looks everything up and enumerates the devices, and then gives up. Programs use the driver API here.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::abi::{Answer, Error};
use crate::api::context::{cuCtxGetCurrent, cuCtxGetId};
use crate::api::module::cuModuleLoadFatBinary;
use crate::call::{get, offer, put};

/// What stands in a table: its size in bytes, or a function.
#[repr(C)]
union Entry {
    size: usize,
    function: *const c_void,
}

// SAFETY: sizes and addresses of functions, never written.
unsafe impl Sync for Entry {}

const fn size(entries: usize) -> Entry {
    Entry { size: entries * size_of::<Entry>() }
}

/// A function nobody was seen to call: it says so if somebody does.
const NONE: Entry = Entry { function: unsupported as *const c_void };

extern "C" fn unsupported() -> u32 {
    Error::NOT_SUPPORTED.0
}

const fn entry(function: *const c_void) -> Entry {
    Entry { function }
}

fn code(answer: Answer) -> u32 {
    answer.map_or_else(|e| e.0, |()| 0)
}

/// Modules and the primary context, for the runtime.
static RUNTIME: [Entry; 13] = [
    size(13),
    entry(load_wrapped as *const c_void),
    entry(primary_context as *const c_void),
    NONE,
    NONE,
    NONE,
    entry(load_wrapped as *const c_void),
    entry(nothing as *const c_void),
    entry(load_fat_binary as *const c_void),
    NONE,
    NONE,
    NONE,
    entry(zero as *const c_void),
];

/// Buffers for tools that listen to the runtime.
static TOOL_BUFFERS: [Entry; 7] =
    [size(7), NONE, entry(large_buffer as *const c_void), NONE, NONE, NONE, entry(small_buffer as *const c_void)];

/// Which context is current, for tools.
static TOOL_CONTEXT: [Entry; 4] = [size(4), NONE, entry(current_context as *const c_void), NONE];

/// Whether a context is a wrapper around another: none is.
static CONTEXT_CHECKS: [Entry; 4] =
    [size(4), NONE, entry(unwrap_context as *const c_void), entry(zero as *const c_void)];

/// The number of a context.
static CONTEXT_NUMBER: [Entry; 5] = [size(5), NONE, NONE, NONE, entry(context_number as *const c_void)];

/// Values that libraries keep with a context. This table has no size in front.
static CONTEXT_VALUES: [Entry; 4] = [
    entry(keep_value as *const c_void),
    entry(drop_value as *const c_void),
    entry(kept_value as *const c_void),
    Entry { size: 0 },
];

/// The table of a UUID.
pub(crate) fn find(id: &[u8; 16]) -> Option<*const c_void> {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    Some(match hex.as_str() {
        "6bd5fb6c5bf4e74a8987d93912fd9df9" => RUNTIME.as_ptr().cast(),
        "a094798c2e742e7493f20800200c0a66" => TOOL_BUFFERS.as_ptr().cast(),
        "42d85a8123f6cb478298f6e78a3aecdc" => TOOL_CONTEXT.as_ptr().cast(),
        "263e88607cd2614392f6bbd5006dfa7e" => CONTEXT_CHECKS.as_ptr().cast(),
        "21318c60971432488ca641ff7324c8f2" => CONTEXT_NUMBER.as_ptr().cast(),
        "c693336e1121df11a8c368f355d89593" => CONTEXT_VALUES.as_ptr().cast(),
        _ => {
            if std::env::var_os("FAKE_GPU_TRACE").is_some() {
                eprintln!("fake driver: no export table {hex}");
            }
            return None;
        }
    })
}

/// What the compiler puts around a fat binary.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    more: *const c_void,
}

extern "C" fn load_wrapped(module: *mut u64, wrapper: *const c_void) -> u32 {
    let data = get(wrapper.cast::<Wrapper>()).map(|w| w.data);
    code(data.and_then(|data| cuModuleLoadFatBinary(module, data)))
}

extern "C" fn load_fat_binary(data: *const c_void, module: *mut u64) -> u32 {
    code(cuModuleLoadFatBinary(module, data))
}

extern "C" fn primary_context(context: *mut u64, device: i32) -> u32 {
    code(crate::api::context::primary(context, device))
}

extern "C" fn nothing() {}

extern "C" fn zero() -> u32 {
    0
}

extern "C" fn unwrap_context(_context: u64, is_wrapped: *mut u32, _inner: *mut u64) -> u32 {
    offer(is_wrapped, 0);
    0
}

extern "C" fn context_number(context: u64, place: *mut u64) -> u32 {
    code(cuCtxGetId(context, place))
}

extern "C" fn large_buffer(place: *mut *mut u8, size: *mut usize) {
    static mut BUFFER: [u8; 1024] = [0; 1024];
    offer(place, (&raw mut BUFFER).cast());
    offer(size, 1024);
}

extern "C" fn small_buffer(place: *mut *mut u8, size: *mut usize) {
    static mut BUFFER: [u8; 14] = [0; 14];
    offer(place, (&raw mut BUFFER).cast());
    offer(size, 14);
}

extern "C" fn current_context(place: *mut u64) -> u32 {
    code(cuCtxGetCurrent(place))
}

type Values = HashMap<(u64, u64), u64>;
static VALUES: Mutex<Option<Values>> = Mutex::new(None);

fn values<T>(act: impl FnOnce(&mut Values) -> T) -> T {
    act(VALUES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// 0 means the current context.
fn context_or_current(context: u64) -> u64 {
    if context == 0 { crate::context::current().unwrap_or(0) } else { context }
}

extern "C" fn keep_value(context: u64, key: u64, value: u64, _destructor: u64) -> u32 {
    values(|v| v.insert((context_or_current(context), key), value));
    0
}

extern "C" fn drop_value(context: u64, key: u64) -> u32 {
    values(|v| v.remove(&(context_or_current(context), key)));
    0
}

extern "C" fn kept_value(place: *mut u64, context: u64, key: u64) -> u32 {
    let found = values(|v| v.get(&(context_or_current(context), key)).copied());
    code(found.ok_or(Error::INVALID_HANDLE).and_then(|value| put(place, value)))
}

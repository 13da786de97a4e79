//! Trace mode: `DIVVY_TRACE=file` writes a line for every call that passes through us, hooked or not, made from the same table as
//! the hooks.
//!
//! Hooked functions are written down with their status. Functions that are passed on are entered through a small piece of code that
//! notes the call and jumps on, so what they answer is not known here.

use core::ffi::CStr;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::say::Line;
use crate::{cuda, files, nvml};

const UNKNOWN: i32 = 0;
const OFF: i32 = -1;

/// [`UNKNOWN`], [`OFF`], or the descriptor of the file plus one.
static FILE: AtomicI32 = AtomicI32::new(UNKNOWN);

/// Whether calls are written down.
#[inline(always)]
pub(crate) fn on() -> bool {
    match FILE.load(Ordering::Relaxed) {
        OFF => false,
        UNKNOWN => begin(),
        _ => true,
    }
}

/// Looks at the environment once. A trace that cannot be written is no reason to fail.
#[cold]
fn begin() -> bool {
    let opened = files::variable(b"DIVVY_TRACE").and_then(|name| {
        let path = [name, b"\0"].concat();
        // SAFETY: the path ends with a zero.
        let file = unsafe {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            libc::open(path.as_ptr().cast(), flags, 0o644)
        };
        (file >= 0).then_some(file + 1)
    });
    FILE.store(opened.unwrap_or(OFF), Ordering::Relaxed);
    opened.is_some()
}

fn write(what: core::fmt::Arguments<'_>) {
    let mut line = Line::new();
    // SAFETY: asks the kernel for a number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let _ = writeln!(line, "{} {thread} {what}", divvy_shm::clock::monotonic_ns() / 1000);
    // SAFETY: the bytes are valid for their length; the file appends, so lines of several processes stay whole.
    unsafe { libc::write(FILE.load(Ordering::Relaxed) - 1, line.bytes().as_ptr().cast(), line.bytes().len()) };
}

struct Arguments<'a>(&'a [u64]);

impl core::fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, argument) in self.0.iter().enumerate() {
            write!(f, "{}{argument:#x}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Name<'a>(&'a CStr);

impl core::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("?"))
    }
}

/// One call of a hooked function with its arguments and its status.
#[cold]
pub(crate) fn call(name: &CStr, arguments: &[u64], status: u32) {
    write(format_args!("{}({}) = {status}", Name(name), Arguments(arguments)));
}

/// The same, around the call.
#[cold]
#[inline(never)]
pub(crate) fn around(name: &CStr, arguments: &[u64], hooked: impl FnOnce() -> u32) -> u32 {
    let status = hooked();
    call(name, arguments, status);
    status
}

/// One lookup and what it was answered with.
pub(crate) fn lookup(name: &CStr, version: u32, flags: u64, hooked: bool) {
    if on() {
        write(format_args!(
            "lookup {} at {version} flags {flags}: {}",
            Name(name),
            if hooked { "hooked" } else { "passed on" }
        ));
    }
}

/// Where the functions that are passed on really are, by their place in the tables, one table after the other.
static PASSED_ON: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];
const COUNT: usize = cuda::NAMES.len() + nvml::NAMES.len();

/// A function that is not hooked: itself, or in trace mode a way to it that is written down.
pub(crate) fn watched(name: &CStr, address: usize) -> usize {
    if !on() {
        return address;
    }
    // The program may call them from where only the real address will do.
    let untouchable = name == c"cuGetExportTable" || name == c"nvmlInternalGetExportTable";
    let index = cuda::NAMES.find(name).or_else(|| nvml::NAMES.find(name).map(|i| cuda::NAMES.len() + i));
    match index.filter(|_| !untouchable) {
        Some(index) => {
            PASSED_ON[index].store(address, Ordering::Relaxed);
            entry(index).unwrap_or(address)
        }
        None => address,
    }
}

/// Notes a call that is passed on; where it goes.
#[cfg(target_arch = "x86_64")]
extern "C" fn note(index: usize, registers: &[u64; 6]) -> usize {
    let (name, arguments) = match index.checked_sub(cuda::NAMES.len()) {
        Some(i) => (nvml::NAMES.name(i), nvml::ARGUMENTS.get(i)),
        None => (cuda::NAMES.name(index), cuda::ARGUMENTS.get(index)),
    };
    let known = usize::from(arguments.copied().unwrap_or(0)).min(registers.len());
    write(format_args!("{}({}{})", Name(name), Arguments(&registers[..known]), if known == 6 { ", ..." } else { "" }));
    PASSED_ON[index].load(Ordering::Relaxed)
}

#[cfg(target_arch = "x86_64")]
mod entries {
    //! One entry per function: ten bytes that push its place and jump to what they share.

    use core::arch::{global_asm, naked_asm};

    const ENTRY: usize = 10;

    global_asm!(
        ".hidden divvy_trace_entries",
        ".globl divvy_trace_entries",
        "divvy_trace_entries:",
        ".set divvy_trace_index, 0",
        ".rept {count}",
        ".byte 0x68", // push, with four bytes whatever the number
        ".long divvy_trace_index",
        ".byte 0xe9", // jmp, likewise
        ".long {shared} - . - 4",
        ".set divvy_trace_index, divvy_trace_index + 1",
        ".endr",
        count = const super::COUNT,
        shared = sym shared,
    );

    unsafe extern "C" {
        static divvy_trace_entries: u8;
    }

    /// Keeps every register that carries an argument, notes the call, and goes on as if nothing had been.
    #[unsafe(naked)]
    unsafe extern "C" fn shared() {
        naked_asm!(
            // On the stack: the place, the return address. Six registers and eight of the wide ones go below.
            "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi",
            "push rax",
            "sub rsp, 128",
            "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
            "mov rdi, [rsp + 184]",
            "lea rsi, [rsp + 136]",
            "sub rsp, 8",
            "call {note}",
            "add rsp, 8",
            "mov r11, rax",
            "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
            "add rsp, 128",
            "pop rax",
            "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop r8", "pop r9",
            "add rsp, 8",
            "jmp r11",
            note = sym super::note,
        )
    }

    pub(super) fn entry(index: usize) -> Option<usize> {
        Some(&raw const divvy_trace_entries as usize + index * ENTRY)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod entries {
    //! Elsewhere only hooked functions are written down.

    pub(super) fn entry(_: usize) -> Option<usize> {
        None
    }
}

use entries::entry;

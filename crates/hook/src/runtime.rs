//! What a library without the standard library must bring itself. Only the shipped build (`--profile hook`) has this part:
//! it needs nothing but libc.so.6, where the standard library would bring in libgcc_s and newer glibc symbols.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::global_asm;
use core::panic::PanicInfo;

/// The program's own malloc, so that whatever allocator it brought also serves us.
struct Malloc;

// SAFETY: posix_memalign and free fulfil the contract of GlobalAlloc; both may be called from any thread.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut block = core::ptr::null_mut();
        let align = layout.align().max(core::mem::size_of::<usize>());
        // SAFETY: `block` outlives the call; align is a power of two and a multiple of a pointer's size.
        match unsafe { libc::posix_memalign(&mut block, align, layout.size()) } {
            0 => block.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block came from posix_memalign above.
        unsafe { libc::free(block.cast()) }
    }
}

#[global_allocator]
static ALLOCATOR: Malloc = Malloc;

/// A broken invariant of ours. There is nothing to unwind into but foreign frames, so the process ends, with the place named.
#[panic_handler]
fn broken(info: &PanicInfo) -> ! {
    let line = info.location().map_or(0, core::panic::Location::line);
    let file = info.location().map_or("?", core::panic::Location::file);
    crate::say!("broken invariant at {file}:{line}; please report this");
    // SAFETY: abort takes no arguments and does not return.
    unsafe { libc::abort() }
}

// The precompiled core library names these two although nothing here ever unwinds. Hidden, so that C++ programs keep their own.
global_asm!(
    ".hidden _Unwind_Resume",
    ".globl _Unwind_Resume",
    "_Unwind_Resume:",
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    #[cfg(target_arch = "x86_64")]
    "ud2",
    #[cfg(target_arch = "aarch64")]
    "brk #1",
);

//! `dlsym` and `dlvsym`: by far the most used way to the driver, and called by everybody else too.
//!
//! The real functions look at their return address to know who asks (`RTLD_NEXT`, `RTLD_DEFAULT`), so a wrapper would change
//! their meaning for every other library in the process. Ours are naked: names that are not the driver's tail-jump to the real
//! function with the caller's frame untouched. For the driver's names the answer is what it would have been without us, and
//! where that is a function of the real driver that we hook, ours.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::loader::{self, CUDA, NVML};
use crate::{cuda, elf, nvml, policy};

static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// What the slow path has to say: in `rax`/`rdx` (`x0`/`x1`).
#[repr(C)]
struct Answer {
    address: usize,
    /// 0: ask the real function, in the caller's name.
    given: usize,
}

impl Answer {
    const ASK: Answer = Answer { address: 0, given: 0 };

    fn give(address: usize) -> Answer {
        Answer { address, given: 1 }
    }
}

/// Looks up a symbol; see dlsym(3).
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 4f",
        "test rsi, rsi",
        "jz 2f",
        "cmp byte ptr [rsi], 99", // c
        "je 3f",
        "cmp byte ptr [rsi], 110", // n
        "jne 2f",
        "cmp byte ptr [rsi + 1], 118", // v
        "je 4f",
        "2:",
        "jmp rax",
        "3:",
        "cmp byte ptr [rsi + 1], 117", // u
        "jne 2b",
        "4:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, qword ptr [rsp + 24]",
        "call {slow}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jz 5f",
        "ret",
        "5:",
        "jmp qword ptr [rip + {real}]",
        real = sym REAL_DLSYM,
        slow = sym slow_dlsym,
    )
}

/// Looks up one version of a symbol; see dlvsym(3).
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, qword ptr [rsp + 24]",
        "call {slow}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rcx, rcx",
        "jz 5f",
        "ret",
        "5:",
        "jmp qword ptr [rip + {real}]",
        real = sym REAL_DLVSYM,
        slow = sym slow_dlvsym,
    )
}

/// Looks up a symbol; see dlsym(3).
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 4f",
        "cbz x1, 2f",
        "ldrb w17, [x1]",
        "cmp w17, #99", // c
        "b.eq 3f",
        "cmp w17, #110", // n
        "b.ne 2f",
        "ldrb w17, [x1, #1]",
        "cmp w17, #118", // v
        "b.eq 4f",
        "2:",
        "br x16",
        "3:",
        "ldrb w17, [x1, #1]",
        "cmp w17, #117", // u
        "b.ne 2b",
        "4:",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "mov x2, x30",
        "bl {slow}",
        "mov x16, x0",
        "mov x17, x1",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "cbz x17, 5f",
        "mov x0, x16",
        "ret",
        "5:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        real = sym REAL_DLSYM,
        slow = sym slow_dlsym,
    )
}

/// Looks up one version of a symbol; see dlvsym(3).
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    naked_asm!(
        "stp x0, x1, [sp, #-32]!",
        "stp x2, x30, [sp, #16]",
        "mov x3, x30",
        "bl {slow}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x2, x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "cbz x17, 5f",
        "mov x0, x16",
        "ret",
        "5:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        real = sym REAL_DLVSYM,
        slow = sym slow_dlvsym,
    )
}

extern "C" fn slow_dlsym(handle: *mut c_void, name: *const c_char, caller: usize) -> Answer {
    let Some(real) = real::<Dlsym>(&REAL_DLSYM, c"dlsym") else { return Answer::give(0) };
    // SAFETY: whoever calls dlsym passes a C string or null.
    let Some(name) = (unsafe { name.as_ref() }).map(|n| unsafe { CStr::from_ptr(n) }) else { return Answer::ASK };
    // SAFETY: the real dlsym, with the caller's handle or one of the two pseudo-handles.
    look_up(handle, name, caller, &|handle| unsafe { real(handle, name.as_ptr()) } as usize)
}

extern "C" fn slow_dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char, caller: usize) -> Answer {
    let Some(real) = real::<Dlvsym>(&REAL_DLVSYM, c"dlvsym") else { return Answer::give(0) };
    // SAFETY: whoever calls dlvsym passes a C string or null.
    let Some(name) = (unsafe { name.as_ref() }).map(|n| unsafe { CStr::from_ptr(n) }) else { return Answer::ASK };
    // SAFETY: the real dlvsym, with the caller's handle or one of the two pseudo-handles, and the caller's version.
    look_up(handle, name, caller, &|handle| unsafe { real(handle, name.as_ptr(), version) } as usize)
}

/// The real function, found on the first call.
fn real<F: Copy>(place: &AtomicUsize, name: &CStr) -> Option<F> {
    if place.load(Ordering::Relaxed) == 0 {
        place.store(elf::next_after(loader::own_address(), None, name).unwrap_or(0), Ordering::Relaxed);
    }
    let address = place.load(Ordering::Relaxed);
    // SAFETY: the callers name the function that goes with F.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

/// A name of the driver's, or of NVML's: where it stands in the table, and what it is without us.
struct Wanted {
    present: bool,
    real: usize,
    ours: usize,
    known: bool,
}

impl Wanted {
    fn new(name: &CStr) -> Option<Self> {
        let bytes = name.to_bytes();
        if bytes.starts_with(b"cu") {
            let index = cuda::NAMES.find(name);
            let present = CUDA.present();
            let real = index.filter(|_| present).map_or(0, |i| CUDA.function(i));
            let ours = index.map_or(0, cuda::ours);
            return Some(Wanted { present, real, ours, known: index.is_some() });
        }
        if bytes.starts_with(b"nvml") {
            let index = nvml::NAMES.find(name);
            let present = NVML.present();
            let real = index.filter(|_| present).map_or(0, |i| NVML.function(i));
            let ours = index.map_or(0, nvml::ours);
            return Some(Wanted { present, real, ours, known: index.is_some() });
        }
        None
    }
}

fn look_up(handle: *mut c_void, name: &CStr, caller: usize, ask: &dyn Fn(*mut c_void) -> usize) -> Answer {
    let Some(wanted) = Wanted::new(name) else { return Answer::ASK };
    let own = |address: usize| address != 0 && address == wanted.ours;
    // What the caller would get if we were not loaded.
    let without_us = if handle == libc::RTLD_NEXT {
        let us = loader::own_address();
        if elf::in_order(caller, us) {
            // What lies between the caller and us, and else what comes behind us.
            elf::next_after(caller, Some(us), name).unwrap_or_else(|| ask(libc::RTLD_NEXT))
        } else {
            // Behind us the real function would answer right, but with the driver's own.
            let behind_us = ask(libc::RTLD_NEXT);
            let candidates = [Some(behind_us), elf::next_after(caller, None, name)];
            match candidates.into_iter().flatten().find(|&a| a != 0 && (CUDA.holds(a) || NVML.holds(a))) {
                Some(of_driver) => of_driver,
                None => return Answer::ASK,
            }
        }
    } else {
        let found = ask(handle);
        if own(found) {
            // The handle covers the whole program and we came first. Behind us, then; or privately loaded by the caller's group.
            match ask(libc::RTLD_NEXT) {
                0 if wanted.present => wanted.real,
                address => address,
            }
        } else if found == 0 && handle == libc::RTLD_DEFAULT {
            return Answer::ASK; // the caller's own group may have it
        } else {
            found
        }
    };
    let of_driver = without_us != 0 && (CUDA.holds(without_us) || NVML.holds(without_us));
    if !of_driver {
        return Answer::give(without_us);
    }
    if wanted.ours != 0 {
        return Answer::give(wanted.ours);
    }
    if !wanted.known && policy::guarded(name) && !policy::let_unknown_pass(name) {
        return Answer::give(0);
    }
    Answer::give(crate::trace::watched(name, without_us))
}

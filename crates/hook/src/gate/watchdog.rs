//! Where a card refuses a read-only gate page, the page is ours to write, and nobody else may be there to open it when the arbiter
//! and the keeper are gone: a thread of ours does. It sleeps, and looks five times a second.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::OPEN;
use divvy_shm::{GatePage, MAX_DEVICES};

use crate::loader::own_next;
use crate::process::Member;

const LOOK_US: libc::c_uint = 200_000;
/// When neither gave a sign of life for so long, gates are opened.
const GIVEN_UP_NS: u64 = 600_000_000;

/// Starts the thread, once per process.
pub(super) fn start(member: Member, page: &'static GatePage) {
    if member.process.streams.watched.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    // Linked to, they would tie us to the glibc we were built on: since 2.34 they carry a new version.
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const c_void,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> i32;
    type Detach = unsafe extern "C" fn(libc::pthread_t) -> i32;
    let (Some(create), Some(detach)) = (own_next::<Create>(c"pthread_create"), own_next::<Detach>(c"pthread_detach"))
    else {
        return;
    };
    // SAFETY: the thread's argument lives as long as the process. All signals stay with the program's own threads.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread: libc::pthread_t = core::mem::zeroed();
        let argument = core::ptr::from_ref(page).cast_mut().cast::<c_void>();
        let started = create(&mut thread, core::ptr::null(), watch, argument) == 0;
        if started {
            detach(thread);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &before, null_mut());
    }
}

extern "C" fn watch(page: *mut c_void) -> *mut c_void {
    // SAFETY: the page that `start` was given, mapped writable for as long as the process lives.
    let page: &'static GatePage = unsafe { &*page.cast() };
    loop {
        // SAFETY: sleeps.
        unsafe { libc::usleep(LOOK_US) };
        let sign = page.arbiter_beat().max(page.keeper_beat());
        if monotonic_ns().saturating_sub(sign) > GIVEN_UP_NS {
            for gate in (0..MAX_DEVICES).filter_map(|device| page.gate(device)) {
                gate.word().store(OPEN, Ordering::Release);
                // SAFETY: waking looks at the address and touches nothing.
                unsafe { libc::syscall(libc::SYS_futex, gate.word().as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
            }
        }
    }
}

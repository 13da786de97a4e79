//! A mapping that a stranger may truncate. Touching a page beyond the end of a file is a SIGBUS, which would end the agent; so the
//! agent's handler puts empty memory in the place of a mapping it knows, marks it broken, and lets the access go on.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::{Access, Mapped, Shared};

/// Mappings at once: five for each of a thousand containers, and some that are open for a moment. Twice as many double the time in which
/// a fault is mended, some microseconds.
const PLACES: usize = 8192;

struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
}

static KNOWN: [Place; PLACES] =
    [const { Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0), broken: AtomicBool::new(false) } }; PLACES];

/// A `T` in a file that strangers can write and truncate. Reading it never ends the process; when the file went away under it, it
/// reads as zeroes and [`Guarded::is_broken`] says so.
#[derive(Debug)]
pub struct Guarded<T: Shared> {
    mapped: Mapped<T>,
    place: usize,
}

impl<T: Shared> Guarded<T> {
    /// Maps the file at `path`, writable. The first call installs the SIGBUS handler of this process.
    pub fn open(path: &Path) -> io::Result<Guarded<T>> {
        install();
        Guarded::over(Mapped::open(path, Access::Write)?)
    }

    /// Guards a mapping made here.
    pub fn over(mapped: Mapped<T>) -> io::Result<Guarded<T>> {
        install();
        let start = mapped.at.as_ptr().addr();
        let place = KNOWN
            .iter()
            .position(|p| p.start.compare_exchange(0, 1, Acquire, Relaxed).is_ok())
            .ok_or_else(|| io::Error::other("too many guarded mappings"))?;
        let known = &KNOWN[place];
        known.broken.store(false, Relaxed);
        known.end.store(start + size_of::<T>(), Relaxed);
        known.start.store(start, Release);
        Ok(Guarded { mapped, place })
    }

    /// Did the file go away under the mapping? It stays so; open it anew after mending it.
    pub fn is_broken(&self) -> bool {
        KNOWN[self.place].broken.load(Acquire)
    }
}

impl<T: Shared> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.mapped
    }
}

impl<T: Shared> Drop for Guarded<T> {
    fn drop(&mut self) {
        // Forgotten before it is unmapped: an address that is used again must not be found here.
        KNOWN[self.place].end.store(0, Relaxed);
        KNOWN[self.place].start.store(0, Release);
    }
}

static mut PREVIOUS: libc::sigaction = libc::sigaction {
    sa_sigaction: libc::SIG_DFL,
    // SAFETY: an all-zero signal set is the empty set.
    sa_mask: unsafe { core::mem::zeroed() },
    sa_flags: 0,
    sa_restorer: None,
};

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero sigaction is a valid one to fill in.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both point to valid sigactions; PREVIOUS is written here once and read by the handler only afterwards.
        unsafe { libc::sigaction(libc::SIGBUS, &action, &raw mut PREVIOUS) };
    });
}

/// Only calls that are allowed in a signal handler: loads, stores, mmap, sigaction.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() }.addr();
    for place in &KNOWN {
        let (start, end) = (place.start.load(Acquire), place.end.load(Relaxed));
        if start <= 1 || address < start || address >= end {
            continue;
        }
        // SAFETY: errno is thread-local and restored below; the range is a mapping of ours, alive as long as it is listed, and
        // fresh empty memory is a valid value of every shared type.
        let mended = unsafe {
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(start as *mut libc::c_void, end - start, protection, flags, -1, 0);
            *libc::__errno_location() = errno;
            at != libc::MAP_FAILED
        };
        if mended {
            place.broken.store(true, Release);
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Not ours: whoever handled SIGBUS before decides; the default ends the process when the access is tried again.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: PREVIOUS was filled by `sigaction` before this handler could run, and holds either a disposition or a handler of the
    // shape its flags say.
    unsafe {
        let previous = &raw const PREVIOUS;
        match (*previous).sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, previous, core::ptr::null_mut());
            }
            handler if (*previous).sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    core::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = core::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

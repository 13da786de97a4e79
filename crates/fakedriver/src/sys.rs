//! The few system calls the model needs: clock, futex, record locks, shared mappings.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU32;

/// Nanoseconds of `CLOCK_MONOTONIC`, the time of the simulated machine: all processes of a host read the same.
#[must_use]
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

/// Nanoseconds of `CLOCK_REALTIME`, for answers that carry a wall-clock time.
#[must_use]
pub fn wall_clock() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut t) };
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000).cast_signed(), tv_nsec: (ns % 1_000_000_000).cast_signed() }
}

/// One word to wait on: its address and the value it must still have for the wait to begin.
pub type Awaited = (*const u32, u32);

#[repr(C)]
struct WaitEntry {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// The most words one wait may name.
pub const MAX_AWAITED: usize = 128;

/// Sleeps until one of the words is woken or no longer holds its value, or until `deadline` (absolute, [`now`]'s clock).
/// The words may lie in memory shared with other processes, mapped read-only here. May return early.
pub fn futex_wait(words: &[Awaited], deadline: Option<u64>) {
    let limit = deadline.map(timespec);
    let limit_at = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    if let [(address, value)] = words {
        // SAFETY: FUTEX_WAIT_BITSET takes an absolute monotonic time-out; the kernel checks the address.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                *address,
                libc::FUTEX_WAIT_BITSET,
                *value,
                limit_at,
                0,
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        return;
    }
    const FUTEX2_SIZE_U32: u32 = 2;
    let entries: Vec<WaitEntry> = words
        .iter()
        .take(MAX_AWAITED)
        .map(|&(address, value)| WaitEntry {
            value: value.into(),
            address: address as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        })
        .collect();
    // SAFETY: the entries outlive the call; the kernel checks the addresses in them.
    let done = unsafe {
        libc::syscall(libc::SYS_futex_waitv, entries.as_ptr(), entries.len(), 0, limit_at, libc::CLOCK_MONOTONIC)
    };
    if done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        futex_wait(&words[..1], deadline);
    }
}

/// Wakes everyone who sleeps on the word, in whatever process.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: waking touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Makes this thread's timed sleeps end on time: the default slack of 50 us is longer than many kernels.
pub fn sharpen_timers() {
    // SAFETY: sets an attribute of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize) };
}

fn record(kind: i32, byte: u64) -> libc::flock {
    // SAFETY: all-zero is a valid flock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).unwrap_or_default();
    lock.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or_default();
    lock.l_start = byte.cast_signed();
    lock.l_len = 1;
    lock
}

/// Takes the record lock on one byte of the file for this process, if nobody has it. The kernel drops it when the process ends,
/// however it ends; a forked child does not inherit it.
pub fn try_lock(file: &File, byte: u64) -> bool {
    let lock = record(libc::F_WRLCK, byte);
    // SAFETY: the file is open and `lock` valid.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

/// Waits for the record lock on one byte of the file.
pub fn lock(file: &File, byte: u64) {
    let lock = record(libc::F_WRLCK, byte);
    // SAFETY: the file is open and `lock` valid.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) } != 0 {
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Gives a record lock back.
pub fn unlock(file: &File, byte: u64) {
    let lock = record(libc::F_UNLCK, byte);
    // SAFETY: the file is open and `lock` valid.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
}

/// Who, other than this process, holds the record lock on a byte: the pid as this process's pid namespace sees it, 0 if it does not see it.
#[must_use]
pub fn lock_holder(file: &File, byte: u64) -> Option<u32> {
    let mut lock = record(libc::F_WRLCK, byte);
    // SAFETY: the file is open and `lock` a valid place for the answer.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    (asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}

/// Maps the first `size` bytes of the file, shared and writable, for the life of the process.
pub fn map_shared(file: &File, size: usize) -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Whether a process was stopped by a signal, as far as we can see it.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may have brackets of its own.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// The inode of this process's pid namespace, 0 where /proc does not tell.
#[must_use]
pub fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    #[test]
    fn a_stopped_process_is_told_from_one_that_sleeps() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        assert!(!is_stopped(child.id()));
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_stopped(child.id()) {
            assert!(Instant::now() < deadline, "it is stopped, and nobody sees it");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(child.id()), "nor is one that is gone");
    }

    #[test]
    fn a_wait_ends_at_its_deadline_or_when_the_value_differs() {
        let (a, b) = (AtomicU32::new(1), AtomicU32::new(2));
        let words: [Awaited; 2] = [(a.as_ptr(), 1), (b.as_ptr(), 2)];
        let start = Instant::now();
        futex_wait(&words, Some(now() + 2_000_000));
        assert!(start.elapsed() >= Duration::from_millis(2));
        b.store(3, Ordering::SeqCst);
        futex_wait(&words, None);
    }
}

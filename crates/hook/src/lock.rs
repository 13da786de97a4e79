//! A lock of one word that is free when zero, so that memory wiped at a fork holds free locks.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// Something that one thread at a time may touch. Valid when all zero, if `T` is.
///
/// Most are held for nanoseconds, so giving back is a plain store and nobody is woken; who has to wait longer sleeps in between.
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag lets one thread at a time have the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(T::default()) }
    }
}

impl<T> Lock<T> {
    #[cfg(test)]
    pub(crate) const fn new(value: T) -> Self {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if !self.try_take() {
            self.wait();
        }
        Held(self)
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for attempt in 0u32.. {
            if !self.held.load(Ordering::Relaxed) && self.try_take() {
                return;
            }
            match attempt {
                0..100 => core::hint::spin_loop(),
                // SAFETY: takes no arguments.
                100..120 => drop(unsafe { libc::sched_yield() }),
                _ => {
                    let pause = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
                    // SAFETY: a time to sleep, and nowhere to put what is left of it.
                    unsafe { libc::nanosleep(&pause, core::ptr::null_mut()) };
                }
            }
        }
    }
}

/// The lock is held while this lives.
pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together_without_losing_any() {
        let sum = Lock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..20_000).for_each(|_| *sum.lock() += 1));
            }
        });
        assert_eq!(*sum.lock(), 80_000);
    }
}

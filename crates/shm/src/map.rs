//! Files as memory: mapped types, and a mapping that survives a tenant who truncates the file under it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

mod sigbus;

pub use crate::shared::Shared;
pub use sigbus::Guarded;

/// May the mapping be written?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No; a write faults.
    Read,
    /// Yes.
    Write,
}

/// A `T` that lies in a file.
#[derive(Debug)]
pub struct Mapped<T: Shared> {
    at: NonNull<T>,
    access: Access,
}

// SAFETY: the mapping belongs to this value alone, and `T` is made of atomics.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps the file at `path`, which must hold a whole `T`.
    pub fn open(path: &Path, access: Access) -> io::Result<Mapped<T>> {
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::Write)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(path)
            .map_err(|e| named(path, &e))?;
        Mapped::of(&file, access).map_err(|e| named(path, &e))
    }

    /// Makes the file at `path`, readable and writable as `mode` says, with the byte ranges of `touched` backed by memory at once:
    /// a full tmpfs is an error here, and not a SIGBUS in somebody's process later. The file must not exist.
    pub fn create(path: &Path, mode: u32, touched: &[std::ops::Range<usize>]) -> io::Result<Mapped<T>> {
        use std::os::unix::fs::PermissionsExt;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(path)
            .map_err(|e| named(path, &e))?;
        let made = (|| {
            // Not at open: the umask would have its say.
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.set_len(size_of::<T>() as u64)?;
            for range in touched {
                allocate(&file, range)?;
            }
            Mapped::of(&file, Access::Write)
        })();
        made.map_err(|e| {
            let _ = std::fs::remove_file(path);
            named(path, &e)
        })
    }

    fn of(file: &File, access: Access) -> io::Result<Mapped<T>> {
        let (found, expected) = (file.metadata()?.len(), size_of::<T>() as u64);
        if found < expected {
            let fault = crate::header::HeaderFault::TooShort { found, expected };
            return Err(io::Error::new(io::ErrorKind::InvalidData, fault));
        }
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a fresh shared mapping of an open file, at a place the kernel chooses.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size_of::<T>(), protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        const { assert!(align_of::<T>() <= 4096, "mmap promises no more than the smallest page") };
        let at = NonNull::new(at.cast::<T>()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Mapped { at, access })
    }

    /// How it is mapped.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The mapping lives as long as the process. The library keeps its pages this way: no drop order at exit can pull them away.
    pub fn leak(self) -> &'static T {
        let at = self.at;
        core::mem::forget(self);
        // SAFETY: valid, and never unmapped from here on.
        unsafe { at.as_ref() }
    }
}

impl<T: Shared> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped for as long as `self` lives, large enough, and any content is a valid `T`.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Shared> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

fn allocate(file: &File, range: &std::ops::Range<usize>) -> io::Result<()> {
    // SAFETY: plain system call on an open descriptor.
    let result =
        unsafe { libc::fallocate(file.as_raw_fd(), 0, range.start as libc::off_t, range.len() as libc::off_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

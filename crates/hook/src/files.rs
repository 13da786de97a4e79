//! The shared files of the container: finding them, mapping them, and believing in them or not.

use core::ffi::{CStr, c_char};
use core::fmt;
use core::ptr::null_mut;

use alloc::vec::Vec;

use divvy_shm::header::HeaderFault;
use divvy_shm::ledger::Reaper;
use divvy_shm::{GatePage, Ledger, Shared, place};

/// Why the files cannot be used.
pub(crate) enum Fault {
    /// A file could not be opened or mapped: its name and the error number.
    Unreadable(&'static str, i32),
    /// A file is not what it should be.
    Unsound(&'static str, HeaderFault),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unreadable(name, error) => write!(f, "the file {name} cannot be mapped (error {error})"),
            Fault::Unsound(name, fault) => write!(f, "the file {name} {fault}"),
        }
    }
}

/// Maps both files; nothing if there are none.
pub(crate) fn open() -> Result<Option<(*mut GatePage, *mut Ledger)>, Fault> {
    let Some(dir) = own_directory() else { return Ok(None) };
    let gate = map::<GatePage>(&dir, place::GATE, libc::O_RDONLY)?;
    // SAFETY: just mapped whole.
    unsafe { &*gate }.check().map_err(|fault| Fault::Unsound(place::GATE, fault))?;
    let ledger = map::<Ledger>(&dir, place::LEDGER, libc::O_RDWR)?;
    // The ledger's header is the tenant's to spoil; the layout is what we know it to be, and its size was checked.
    Ok(Some((gate, ledger)))
}

/// The gate file mapped once more, for a context to register.
pub(crate) fn gate_again(writable: bool) -> Result<*mut GatePage, Fault> {
    again(place::GATE, if writable { libc::O_RDWR } else { libc::O_RDONLY })
}

/// The ledger mapped once more, for a context to register.
pub(crate) fn ledger_again() -> Result<*mut Ledger, Fault> {
    again(place::LEDGER, libc::O_RDWR)
}

/// The right to give back slots of the ledger, waited for at most that long.
pub(crate) fn reaper(patience_ns: u64) -> Option<Reaper> {
    let ledger = path(&own_directory()?, place::LEDGER);
    Reaper::of(CStr::from_bytes_until_nul(&ledger).ok()?, patience_ns)
}

fn again<T: Shared>(name: &'static str, mode: i32) -> Result<*mut T, Fault> {
    map(&own_directory().ok_or(Fault::Unreadable(name, libc::ENOENT))?, name, mode)
}

/// The directory of the container: the fixed one if it holds a gate, and only otherwise the one a variable names.
fn directory(fixed: &[u8], named: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let has_gate = |dir: &[u8]| exists(&path(dir, place::GATE));
    if has_gate(fixed) { Some(fixed.to_vec()) } else { named().filter(|dir| has_gate(dir)) }
}

fn own_directory() -> Option<Vec<u8>> {
    directory(place::IN_CONTAINER.as_bytes(), || variable(place::DIR_VARIABLE.as_bytes()).map(<[u8]>::to_vec))
}

/// The path of the agent's socket.
pub(crate) fn socket() -> Option<Vec<u8>> {
    own_directory().map(|dir| path(&dir, place::SOCKET))
}

/// `dir/name`, ended by a zero.
fn path(dir: &[u8], name: &str) -> Vec<u8> {
    [dir, b"/", name.as_bytes(), b"\0"].concat()
}

fn exists(path: &[u8]) -> bool {
    // SAFETY: the path ends with a zero.
    unsafe { libc::access(path.as_ptr().cast(), libc::F_OK) == 0 }
}

/// An environment variable, by looking through the block itself: nothing is locked and nothing allocated. A program that runs with
/// more rights than its caller hears none.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: asks for a number that the kernel gave the program.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's own list of strings, ended by null; null itself after clearenv.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value).filter(|v| !v.is_empty());
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Maps the whole of a `T` for the life of the process. The descriptor does not stay.
fn map<T: Shared>(dir: &[u8], name: &'static str, mode: i32) -> Result<*mut T, Fault> {
    let path = path(dir, name);
    let unreadable = || Fault::Unreadable(name, errno());
    // SAFETY: plain system calls; the path ends with a zero, the buffers outlive the calls, and the mapping is fresh.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), mode | libc::O_CLOEXEC | libc::O_NOFOLLOW);
        if file < 0 {
            return Err(unreadable());
        }
        let found = libc::lseek(file, 0, libc::SEEK_END);
        if found < size_of::<T>() as i64 {
            libc::close(file);
            let fault =
                HeaderFault::TooShort { found: u64::try_from(found).unwrap_or(0), expected: size_of::<T>() as u64 };
            return Err(Fault::Unsound(name, fault));
        }
        let protection = if mode == libc::O_RDWR { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let mapped = libc::mmap(null_mut(), size_of::<T>(), protection, libc::MAP_SHARED, file, 0);
        let failed = (mapped == libc::MAP_FAILED).then(unreadable);
        libc::close(file);
        match failed {
            Some(fault) => Err(fault),
            None => Ok(mapped.cast()),
        }
    }
}

pub(crate) fn errno() -> i32 {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_heard_only_where_the_fixed_place_holds_no_gate() {
        let base = std::env::temp_dir().join(format!("divvy-files-{}", std::process::id()));
        let (fixed, other, empty) = (base.join("fixed"), base.join("other"), base.join("empty"));
        for dir in [&fixed, &other, &empty] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(other.join(place::GATE), b"").unwrap();
        let bytes = |p: &std::path::Path| p.as_os_str().as_encoded_bytes().to_vec();
        let (fixed_name, other_name) = (bytes(&fixed), bytes(&other));
        let named = |dir: Option<&[u8]>| directory(&fixed_name, || dir.map(<[u8]>::to_vec));
        assert_eq!(named(None), None);
        assert_eq!(named(Some(&bytes(&empty))), None);
        assert_eq!(named(Some(&other_name)), Some(other_name.clone()));
        std::fs::write(fixed.join(place::GATE), b"").unwrap();
        assert_eq!(named(Some(&other_name)), Some(fixed_name.clone()));
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn variables_are_found_whole() {
        assert!(variable(b"PATH").is_some());
        assert!(variable(b"PAT").is_none());
    }
}

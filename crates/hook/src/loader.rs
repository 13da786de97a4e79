//! The real libraries: where they are, and the addresses of their functions.
//!
//! Nothing here calls into them. A library counts as present once it is loaded, whoever loaded it; from then on it is pinned,
//! because the addresses of its functions are kept.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::{self, Object};
use crate::names::Names;
use crate::{cuda, nvml};

/// A library whose functions we stand in for.
pub(crate) struct Library<const COUNT: usize, const SIZE: usize> {
    soname: &'static CStr,
    names: &'static Names<COUNT, SIZE>,
    start: AtomicUsize,
    end: AtomicUsize,
    functions: [AtomicUsize; COUNT],
}

/// libcuda.so.1
pub(crate) static CUDA: Library<{ cuda::NAMES.len() }, { cuda::NAMES.buckets.len() }> =
    Library::new(c"libcuda.so.1", &cuda::NAMES);
/// libnvidia-ml.so.1
pub(crate) static NVML: Library<{ nvml::NAMES.len() }, { nvml::NAMES.buckets.len() }> =
    Library::new(c"libnvidia-ml.so.1", &nvml::NAMES);

impl<const COUNT: usize, const SIZE: usize> Library<COUNT, SIZE> {
    const fn new(soname: &'static CStr, names: &'static Names<COUNT, SIZE>) -> Self {
        let (start, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Library { soname, names, start, end, functions: [const { AtomicUsize::new(0) }; COUNT] }
    }

    /// The address of a real function, 0 if there is none.
    #[inline(always)]
    pub(crate) fn function(&self, index: usize) -> usize {
        match self.functions[index].load(Ordering::Relaxed) {
            0 => self.late(index),
            address => address,
        }
    }

    /// The first call of all, or a function this driver does not have.
    #[cold]
    fn late(&self, index: usize) -> usize {
        if !self.present() && self.load() {
            self.present();
        }
        self.functions[index].load(Ordering::Relaxed)
    }

    /// Whether the library is loaded; if it is, its functions are known afterwards.
    pub(crate) fn present(&self) -> bool {
        if self.end.load(Ordering::Acquire) != 0 {
            return true;
        }
        let Some(object) = elf::first(&mut |o| o.soname() == Some(self.soname)) else { return false };
        pin(&object);
        for (index, function) in self.functions.iter().enumerate() {
            function.store(object.find(self.names.name(index)).unwrap_or(0), Ordering::Relaxed);
        }
        let (start, end) = object.range();
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
        true
    }

    /// Whether an address belongs to the library.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.present() && (self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)).contains(&address)
    }

    /// The index of the function at an address, if it is an export the table knows; else the name of the export, if it is one.
    pub(crate) fn export_at(&self, address: usize) -> Export {
        if let Some(index) = self.functions.iter().position(|f| f.load(Ordering::Relaxed) == address) {
            return Export::Known(index);
        }
        let named = elf::first(&mut |o| o.holds(address)).is_some_and(|o| o.name_of(address).is_some());
        if named { Export::Unknown } else { Export::Private }
    }

    /// A program that was linked to the library weakly, or to us alone, calls before anything has loaded it.
    fn load(&self) -> bool {
        // SAFETY: dlopen's own type.
        let Some(dlopen) = own_next::<unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>(c"dlopen") else {
            return false;
        };
        // SAFETY: the name is a C string.
        !unsafe { dlopen(self.soname.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) }.is_null()
    }
}

/// What lies at an address of a library.
pub(crate) enum Export {
    /// An export in the table.
    Known(usize),
    /// An export the table does not have.
    Unknown,
    /// No export at all.
    Private,
}

/// Keeps an object loaded for good.
fn pin(object: &Object) {
    if let Some(dlopen) = own_next::<unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>(c"dlopen") {
        // SAFETY: the name is the loader's own for an object that is loaded.
        unsafe { dlopen(object.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// An address inside this library.
pub(crate) fn own_address() -> usize {
    own_address as *const () as usize
}

/// What `name` is behind us, as if we were not there. `F` must be its function type.
pub(crate) fn own_next<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = elf::next_after(own_address(), None, name)?;
    // SAFETY: F is a function pointer type by contract, as large as an address, and the address is not null.
    Some(unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

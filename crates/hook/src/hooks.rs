//! What is done about each call, by topic. `hooks.tsv` says which symbol comes here; `go` is the real call with the caller's own
//! arguments, and whatever it answers is what the program gets, unless a limit says no.

pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod report;
pub(crate) mod stream;
pub(crate) mod view;
pub(crate) mod vmm;

/// Where a call puts an address or a size: 32 bits wide in the oldest entry points, 64 in the others. May be null.
#[derive(Clone, Copy)]
pub(crate) enum Out {
    /// As before CUDA 3.2.
    Narrow(*mut u32),
    /// As since.
    Wide(*mut u64),
}

impl From<*mut u32> for Out {
    fn from(out: *mut u32) -> Self {
        Out::Narrow(out)
    }
}

impl From<*mut u64> for Out {
    fn from(out: *mut u64) -> Self {
        Out::Wide(out)
    }
}

impl From<*mut usize> for Out {
    fn from(out: *mut usize) -> Self {
        Out::Wide(out.cast())
    }
}

impl Out {
    /// What is there; 0 for null.
    ///
    /// # Safety
    /// Null, or readable.
    pub(crate) unsafe fn get(self) -> u64 {
        // SAFETY: by contract.
        unsafe {
            match self {
                Out::Narrow(out) => out.as_ref().map_or(0, |v| u64::from(*v)),
                Out::Wide(out) => out.as_ref().map_or(0, |v| *v),
            }
        }
    }

    /// Whether there is a place, and of 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Out::Wide(out) if !out.is_null())
    }

    /// Puts a number there, cut to what fits; nothing happens to null.
    ///
    /// # Safety
    /// Null, or writable.
    pub(crate) unsafe fn set(self, value: u64) {
        // SAFETY: by contract.
        unsafe {
            match self {
                Out::Narrow(out) => {
                    if let Some(out) = out.as_mut() {
                        *out = u32::try_from(value).unwrap_or(u32::MAX);
                    }
                }
                Out::Wide(out) => {
                    if let Some(out) = out.as_mut() {
                        *out = value;
                    }
                }
            }
        }
    }
}

//! A fixed set of names with constant-time lookup: one text without relocations, offsets, and a hash table, all made at build time.

use core::ffi::CStr;

/// `COUNT` names in a table of `SIZE` (a power of two) buckets.
pub(crate) struct Names<const COUNT: usize, const SIZE: usize> {
    /// All names, each ended by a zero.
    pub(crate) text: &'static [u8],
    /// Where each name starts.
    pub(crate) offsets: [u16; COUNT],
    /// Indices by hash, `u16::MAX` where empty; collisions go to the next.
    pub(crate) buckets: [u16; SIZE],
}

impl<const COUNT: usize, const SIZE: usize> Names<COUNT, SIZE> {
    /// How many names there are.
    pub(crate) const fn len(&self) -> usize {
        COUNT
    }

    /// The name at an index; an empty one past the end.
    pub(crate) fn name(&self, index: usize) -> &'static CStr {
        let rest = self.offsets.get(index).and_then(|&o| self.text.get(usize::from(o)..)).unwrap_or_default();
        CStr::from_bytes_until_nul(rest).unwrap_or_default()
    }

    /// The index of a name.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        let mut at = hash(name.to_bytes()) as usize & (SIZE - 1);
        loop {
            let index = usize::from(self.buckets[at]);
            if index >= COUNT {
                return None;
            }
            if self.name(index) == name {
                return Some(index);
            }
            at = (at + 1) & (SIZE - 1);
        }
    }
}

/// FNV-1a, as the build script has it.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// Our function for each name of such a set, or null.
pub(crate) struct Exports<const COUNT: usize>(pub(crate) [*const (); COUNT]);

// SAFETY: addresses of functions, never written.
unsafe impl<const COUNT: usize> Sync for Exports<COUNT> {}

impl<const COUNT: usize> Exports<COUNT> {
    /// The address of our function, 0 if there is none.
    pub(crate) fn address(&self, index: usize) -> usize {
        self.0.get(index).map_or(0, |&function| function as usize)
    }
}

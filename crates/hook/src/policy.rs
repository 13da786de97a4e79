//! Functions the table does not know: a newer driver may have ways to allocate or launch that nobody guards yet.

use core::ffi::CStr;

/// Names that begin like this can allocate or launch.
const GUARDED: [&[u8]; 6] = [b"cuMem", b"cuLaunch", b"cuGraph", b"cuArray", b"cuMipmapped", b"cuMulticast"];

/// Whether a name belongs to a group that is guarded as a whole.
pub(crate) fn guarded(name: &CStr) -> bool {
    GUARDED.iter().any(|prefix| name.to_bytes().starts_with(prefix))
}

/// Whether an unknown function of a guarded group may be used all the same.
pub(crate) fn let_unknown_pass(_name: &CStr) -> bool {
    true
}

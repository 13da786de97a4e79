//! Functions the table does not know: a newer driver may have ways to allocate or launch that nobody guards yet.

use core::ffi::CStr;

use divvy_shm::Enforcement;
use divvy_shm::frame::EventKind;

use crate::process::of_container;

/// Names that begin like this can allocate or launch.
const GUARDED: [&[u8]; 6] = [b"cuMem", b"cuLaunch", b"cuGraph", b"cuArray", b"cuMipmapped", b"cuMulticast"];

/// Whether a name belongs to a group that is guarded as a whole.
pub(crate) fn guarded(name: &CStr) -> bool {
    GUARDED.iter().any(|prefix| name.to_bytes().starts_with(prefix))
}

/// Whether an unknown function of a guarded group may be used all the same. Either way the agent hears of it.
pub(crate) fn let_unknown_pass(name: &CStr) -> bool {
    let Some(member) = of_container() else { return true };
    let strict = |device| member.gate().limits(device).is_some_and(|l| l.enforcement == Enforcement::Strict);
    let pass = !(0..member.gate().devices()).any(strict);
    let first_letters = name.to_bytes().iter().take(8).fold(0, |word, &b| (word << 8) | u64::from(b));
    member.tell(EventKind::UnknownSymbol, usize::MAX, first_letters, u64::from(pass));
    pass
}

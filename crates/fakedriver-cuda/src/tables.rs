//! `cuGetProcAddress`: from a name, a version and flags to a function.

use crate::SYMBOLS;
use crate::call::Symbol;

/// Why a lookup found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    NoSuchName,
    OnlyNewer,
}

/// The symbol a name means at a version: the newest that is not newer. With `per_thread`, the variant for the per-thread
/// default stream where there is one.
pub(crate) fn lookup(name: &str, version: i32, per_thread: bool) -> Result<&'static Symbol, Missing> {
    let newest = |want: bool| {
        SYMBOLS
            .iter()
            .filter(|s| s.lookup == name && s.per_thread == want && s.since <= version)
            .max_by_key(|s| s.since)
    };
    let found = if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) };
    found.ok_or_else(|| if SYMBOLS.iter().any(|s| s.lookup == name) { Missing::OnlyNewer } else { Missing::NoSuchName })
}

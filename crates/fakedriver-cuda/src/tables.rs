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
/// default stream where the name has any: before version 7.0 it then means nothing.
pub(crate) fn lookup(name: &str, version: i32, per_thread: bool) -> Result<&'static Symbol, Missing> {
    let newest = |want: bool| {
        SYMBOLS
            .iter()
            .filter(|s| s.lookup == name && s.per_thread == want && s.since <= version)
            .max_by_key(|s| s.since)
    };
    let varies = SYMBOLS.iter().any(|s| s.lookup == name && s.per_thread);
    let found = newest(per_thread && varies);
    found.ok_or_else(|| if SYMBOLS.iter().any(|s| s.lookup == name) { Missing::OnlyNewer } else { Missing::NoSuchName })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_newest_symbol_that_is_not_newer_than_asked() {
        let name = |lookup_name, version, per_thread| lookup(lookup_name, version, per_thread).map(|s| s.name);
        assert_eq!(name("cuMemAlloc", 2000, false), Ok("cuMemAlloc"));
        assert_eq!(name("cuMemAlloc", 3020, true), Ok("cuMemAlloc_v2"), "no variant of its own");
        assert_eq!(name("cuGetProcAddress", 11030, false), Ok("cuGetProcAddress"));
        assert_eq!(name("cuGetProcAddress", 12000, false), Ok("cuGetProcAddress_v2"));
        assert_eq!(name("cuCtxSynchronize", 12090, false), Ok("cuCtxSynchronize"));
        assert_eq!(name("cuCtxSynchronize", 13000, false), Ok("cuCtxSynchronize_v2"));
        assert_eq!(name("cuStreamGetCaptureInfo", 12030, true), Ok("cuStreamGetCaptureInfo_v3_ptsz"));
        assert_eq!(name("cuMemcpy", 7000, true), Ok("cuMemcpy_ptds"));
        assert_eq!(name("cuMemcpy", 6000, true), Err(Missing::OnlyNewer));
        assert_eq!(name("cuMemCreate", 10000, false), Err(Missing::OnlyNewer));
        assert_eq!(name("", 13000, false), Err(Missing::NoSuchName));
    }

    #[test]
    fn no_symbol_is_exported_twice_and_errors_have_names() {
        let names: std::collections::BTreeSet<&str> = SYMBOLS.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SYMBOLS.len());
        assert!(crate::ERRORS.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(crate::ERRORS.iter().find(|e| e.0 == 2).map(|e| e.1), Some(c"CUDA_ERROR_OUT_OF_MEMORY"));
    }

    /// What the headers have and nobody has classified stands as "?" in the tables.
    #[test]
    fn every_symbol_has_a_class_and_every_nvml_function_an_action() {
        let cuda = include_str!("../../../tables/cuda.tsv").lines().map(|l| (l, l.split('\t').nth(4)));
        let nvml = include_str!("../../../tables/nvml.tsv").lines().map(|l| (l, l.split('\t').nth(1)));
        let unclassified: Vec<&str> =
            cuda.chain(nvml).filter(|(_, class)| *class == Some("?")).map(|(line, _)| line).collect();
        assert!(unclassified.is_empty(), "{unclassified:#?}");
    }
}

//! Packages from PyPI, kept in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with these packages, to be put into `PYTHONPATH`.
pub(crate) fn packages(list: &[&str]) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("divvy-tests/packages");
    let folder = cache.join(list.join("+").replace("==", "-"));
    if folder.exists() {
        return folder;
    }
    // Fetched beside and moved when whole: another test may be looking for it.
    fs::create_dir_all(&cache).expect("a cache");
    let fresh = tempfile::tempdir_in(&cache).expect("a folder in the cache");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps", "--target"]);
    let done = pip.arg(fresh.path()).args(list).status().expect("pip runs");
    assert!(done.success(), "cannot fetch {list:?}");
    if fs::rename(fresh.path(), &folder).is_ok() {
        let _ = fresh.keep();
    }
    folder
}

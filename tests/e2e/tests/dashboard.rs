//! The dashboard in a real browser. One test at a time: browsers are large, and what one measures
//! another would spoil. `DIVVY_PICTURES=1 cargo test -p divvy-e2e --test dashboard` writes the pictures of the documentation anew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dashboard {
    mod demo;
    mod sign_in;
}
#[path = "control_plane/ground.rs"]
mod ground;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use divvy_e2e::browser::Page;

/// Held by the test that runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// Takes a picture; where asked to, it becomes the documentation's.
fn picture(page: &mut Page, name: &str) {
    let taken = page.picture().unwrap();
    assert!(taken.starts_with(b"\x89PNG") && taken.len() > 10_000, "{name} is no picture: {} bytes", taken.len());
    let path = pictures().join(name);
    if std::env::var_os("DIVVY_PICTURES").is_some() {
        std::fs::create_dir_all(pictures()).unwrap();
        std::fs::write(&path, &taken).unwrap();
    }
    assert!(path.exists(), "{name} is missing in docs/pictures: run this test with DIVVY_PICTURES=1 and commit it");
}

#[track_caller]
fn nothing_went_wrong(page: &mut Page, address: &str) {
    assert_eq!(page.errors().unwrap(), Vec::<String>::new());
    let outside: Vec<&String> =
        page.requests().iter().filter(|url| !url.starts_with(address) && !url.starts_with("about:")).collect();
    assert_eq!(outside, Vec::<&String>::new(), "requests to elsewhere");
    assert!(!page.requests().is_empty());
}

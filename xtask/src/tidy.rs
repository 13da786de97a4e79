//! Promises about the repository itself, kept by `cargo test -p xtask`: each file here is one of them, and names the mend when it
//! is broken.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run;

mod deny;
mod edges;
mod links;
mod metrics;
mod packages;
mod reach;
mod size;
mod source;
mod unused;
mod words;

/// A file of the repository.
struct File {
    /// From the repository's root.
    path: String,
    text: String,
}

impl File {
    fn ends_with(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// Whether it only serves tests: then names may be spelled out and files may be long.
    fn is_test(&self) -> bool {
        let path = Path::new(&self.path);
        let folders = ["tests", "benches", "examples", "fixtures"];
        path.components().any(|part| folders.iter().any(|folder| part.as_os_str() == *folder))
            || ["tests.rs", "testing.rs"].iter().any(|name| path.file_name().is_some_and(|file| file == *name))
    }

    fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }
}

/// All text files that git knows or would know.
fn files() -> Vec<File> {
    let listed = run::command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]).output().unwrap();
    assert!(listed.status.success(), "git ls-files failed");
    let names = String::from_utf8(listed.stdout).unwrap();
    let files = names.lines().filter_map(|path| {
        let text = fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    });
    let files: Vec<File> = files.collect();
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "git lists no Cargo.toml");
    files
}

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.ends_with(".rs")).collect()
}

fn root() -> PathBuf {
    run::root()
}

/// Fails with all broken places at once, and the mend.
fn none(broken: &[String], mend: &str) {
    assert!(broken.is_empty(), "\n{}\n\n{mend}\n", broken.join("\n"));
}

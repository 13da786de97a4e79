//! Promises about the repository itself, kept by `cargo test -p xtask`: each file here is one of them, and names the mend when it
//! is broken.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::run;

mod dependencies;
mod lists;
mod shape;
mod source;
mod text;

/// A file of the repository.
struct File {
    /// From the repository's root.
    path: String,
    text: String,
    /// Whether its module is declared for tests alone.
    is_test_module: bool,
}

impl File {
    fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned(), is_test_module: false }
    }

    fn ends_with(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// Whether it only serves tests: then names may be spelled out and files may be long.
    fn is_test(&self) -> bool {
        let path = Path::new(&self.path);
        let folders = ["tests", "benches", "examples", "fixtures"];
        self.is_test_module
            || path.components().any(|part| folders.iter().any(|folder| part.as_os_str() == *folder))
            || ["tests.rs", "testing.rs"].iter().any(|name| path.file_name().is_some_and(|file| file == *name))
    }

    fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }
}

/// All text files that git knows or would know.
fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
        let words = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let listed = run::command("git", &words).output().unwrap();
        assert!(listed.status.success(), "git ls-files failed");
        let names = String::from_utf8(listed.stdout).unwrap();
        let read = |path: &str| Some(File::new(path, &fs::read_to_string(root().join(path)).ok()?));
        let mut files: Vec<File> = names.lines().filter_map(read).collect();
        assert!(files.iter().any(|file| file.path == "Cargo.toml"), "git lists no Cargo.toml");
        mark_test_modules(&mut files);
        files
    });
    &FILES
}

/// Finds the modules that are declared under `#[cfg(test)]`, and all that is below them.
fn mark_test_modules(files: &mut [File]) {
    let declared: Vec<String> = files.iter().filter(|file| file.ends_with(".rs")).flat_map(test_modules).collect();
    for file in files {
        let module = file.path.trim_end_matches(".rs");
        let below =
            |test: &String| module.strip_prefix(&**test).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        file.is_test_module = declared.iter().any(below);
    }
}

/// The paths, without `.rs`, of the modules that a file declares for tests alone.
fn test_modules(file: &File) -> Vec<String> {
    let path = file.path.trim_end_matches(".rs");
    let folder = path.strip_suffix("/lib").or(path.strip_suffix("/main")).unwrap_or(path);
    let after = file.text.split("#[cfg(test)]\n").skip(1).filter_map(|after| after.lines().next());
    let names = after.filter_map(|line| line.trim().strip_suffix(';')?.split_once("mod ").map(|(_, name)| name.trim()));
    names.map(|name| format!("{folder}/{name}")).collect()
}

fn rust_files() -> impl Iterator<Item = &'static File> {
    files().iter().filter(|file| file.ends_with(".rs"))
}

fn root() -> PathBuf {
    run::root()
}

/// Fails with all broken places at once, and the mend.
fn none(broken: &[String], mend: &str) {
    assert!(broken.is_empty(), "\n{}\n\n{mend}\n", broken.join("\n"));
}

#[test]
fn modules_for_tests_are_known_by_their_declaration() {
    let root = File::new("a/src/lib.rs", "#[cfg(test)]\nmod b;\nmod bc;\n#[cfg(test)]\nmod tests {\n}\n");
    let mut files = [root, File::new("a/src/b.rs", ""), File::new("a/src/b/d.rs", ""), File::new("a/src/bc.rs", "")];
    mark_test_modules(&mut files);
    assert_eq!(files.map(|file| file.is_test()), [false, true, true, false]);
}

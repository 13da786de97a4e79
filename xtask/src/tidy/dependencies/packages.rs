//! What cargo says about our packages, and which sources belong to each.

use serde_json::Value;

use crate::run;
use crate::tidy::source::shipped;
use crate::tidy::{File, none, root, rust_files};

/// One of our packages.
pub(super) struct Package {
    pub(super) name: String,
    /// Its folder, from the repository's root, with a slash at the end.
    pub(super) folder: String,
    pub(super) needs: Vec<Need>,
}

/// A line under `[dependencies]` and the like.
pub(super) struct Need {
    pub(super) name: String,
    /// The name in sources.
    pub(super) identifier: String,
    pub(super) for_tests: bool,
}

impl Package {
    /// The text of its sources: with what its tests need, or of what it ships alone.
    pub(super) fn sources<'a>(&self, files: &[&'a File], tests: bool) -> Vec<&'a str> {
        let ours = files.iter().filter_map(|file| Some((file.path.strip_prefix(&self.folder)?, file)));
        let chosen = ours.filter(|(path, _)| tests || is_shipped(path));
        chosen.map(|(_, file)| if tests { &*file.text } else { shipped(&file.text) }).collect()
    }
}

/// Whether a file of a package is part of what it ships. A program under `tests/bin` is built as all its programs are.
fn is_shipped(path: &str) -> bool {
    let is_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    path.starts_with("tests/bin/") || path == "build.rs" || path.starts_with("src/") && !is_tests
}

pub(super) fn packages() -> Vec<Package> {
    let output = run::command("cargo", &["metadata", "--format-version=1", "--no-deps", "--offline"]).output().unwrap();
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

fn package(found: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let manifest = text(&found["manifest_path"]);
    let folder = manifest.strip_prefix(&*root().to_string_lossy()).unwrap().trim_start_matches('/');
    let needs = found["dependencies"].as_array().unwrap().iter().map(|need| {
        let name = text(&need["name"]);
        let identifier = need["rename"].as_str().unwrap_or(&name).replace('-', "_");
        Need { name, identifier, for_tests: need["kind"] == "dev" }
    });
    Package {
        name: text(&found["name"]),
        folder: folder.trim_end_matches("Cargo.toml").to_owned(),
        needs: needs.collect(),
    }
}

#[test]
fn every_source_file_belongs_to_one_package() {
    let packages = packages();
    let lost = rust_files().map(|file| &file.path);
    let lost = lost.filter(|path| packages.iter().filter(|package| path.starts_with(&package.folder)).count() != 1);
    let lost: Vec<String> = lost.cloned().collect();
    none(&lost, "Move it into the folder of a package.");
}

#[test]
fn what_a_package_ships_is_told_from_its_tests() {
    let shipped = ["src/a.rs", "src/a/b.rs", "tests/bin/c.rs", "build.rs"];
    let not = ["src/tests.rs", "src/a/tests.rs", "src/a/tests/b.rs", "tests/a.rs", "benches/a.rs", "examples/a.rs"];
    assert!(shipped.iter().all(|path| is_shipped(path)), "{shipped:?}");
    assert!(!not.iter().any(|path| is_shipped(path)), "{not:?}");
}

//! No source file lies about unused: each is reached by `mod` from a target of its package.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run;
use crate::tidy::source::{Kind, pieces};
use crate::tidy::{none, root, rust_files};

#[test]
fn every_source_file_is_part_of_a_target() {
    let mut reached = BTreeSet::new();
    for target in targets() {
        follow(&target, true, &mut reached);
    }
    let lost = rust_files().map(|file| &file.path).filter(|path| !reached.contains(&root().join(path)));
    let lost: Vec<String> = lost.cloned().collect();
    none(&lost, "Declare it with `mod`, or delete it.");
}

/// The first file of every library, program, test, bench, example and build script.
fn targets() -> Vec<PathBuf> {
    let output = run::command("cargo", &["metadata", "--format-version=1", "--no-deps", "--offline"]).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    targets.map(|target| PathBuf::from(target["src_path"].as_str().unwrap())).collect()
}

/// Adds `file` and everything its `mod` and `include!` lines lead to.
fn follow(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    // A `#[path]` may climb out of its folder.
    if !reached.insert(file.canonicalize().unwrap_or_else(|_| file.to_owned())) {
        return;
    }
    let folder = file.parent().unwrap();
    let stem = file.file_stem().unwrap();
    // `a.rs` keeps its modules in `a/`; the first file of a target, and `mod.rs`, beside themselves.
    let own = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut path_attribute = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        inline.retain(|(at, _)| *at < indent);
        let module = inline.iter().fold(own.clone(), |folder, (_, name)| folder.join(name));
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()) {
            path_attribute = Some(folder.join(path));
        } else if let Some(name) = module_name(line, ';') {
            match path_attribute.take() {
                Some(path) => follow(&path, false, reached),
                None => {
                    follow(&module.join(format!("{name}.rs")), false, reached);
                    follow(&module.join(name).join("mod.rs"), false, reached);
                }
            }
        } else if let Some(name) = module_name(line, '{') {
            inline.push((indent, name.to_owned()));
        }
    }
    let pieces = pieces(&text);
    for pair in pieces.windows(2) {
        if pair[0].kind == Kind::Code && pair[0].text.trim_end().ends_with("include!(") && pair[1].kind == Kind::String
        {
            follow(&folder.join(pair[1].text.trim_matches('"')), false, reached);
        }
    }
}

/// The name in `pub(crate) mod name;` or `mod name {`.
fn module_name(line: &str, end: char) -> Option<&str> {
    let declared = line.strip_suffix(end).or_else(|| line.split(end).next().filter(|_| line.contains(end)))?;
    let declared = declared.trim().strip_prefix("pub").map_or(declared.trim(), |rest| {
        let rest = rest.trim_start();
        rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest).trim_start()
    });
    let name = declared.strip_prefix("mod ")?.trim();
    (!name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

#[test]
fn modules_are_recognised_however_public() {
    assert_eq!(module_name("mod a;", ';'), Some("a"));
    assert_eq!(module_name("pub(crate) mod a;", ';'), Some("a"));
    assert_eq!(module_name("pub mod a_b {", '{'), Some("a_b"));
    assert_eq!(module_name("let model = 1;", ';'), None);
    assert_eq!(module_name("mod a;", '{'), None);
}

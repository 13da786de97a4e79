//! The demo decides nothing itself: placement is the scheduler's, classes and balances are the core's, gates are the limiter's. What it
//! would need in order to decide is not to be found in its source.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

/// What only somebody who decides would write, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    ("divvy_core::schedule", "placing pods is the scheduler's"),
    ("divvy_core::place", "scoring devices is the core's"),
    ("divvy_core::fit", "fitting devices is the core's"),
    ("divvy_core::rules", "filtering nodes is the core's"),
    ("divvy_core::plan", "plans are the core's"),
    ("divvy_core::quota", "quota is the core's, through the scheduler"),
    ("Engine", "the scheduler has one"),
    ("Grant {", "grants come with binds"),
    ("Slice {", "grants come with binds"),
    ("Effect::Bind(Bind {", "only the scheduler binds"),
    ("Effect::Evict(Evict {", "only the scheduler evicts"),
    (".place(", "placing pods is the scheduler's"),
    ("keys::GRANT", "grants come with binds"),
    ("Standing {", "how a namespace stands is the core's to say"),
    ("Class::Guarantee", "classes are the budget's"),
    ("Balance {", "balances are the core's"),
    ("Directive {", "gates are the limiter's"),
    ("directive.open =", "gates are the limiter's"),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && path.file_stem().unwrap() != "tests" {
            found.push(path);
        }
    }
}

fn decisions(text: &str) -> Vec<&'static str> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    FORBIDDEN.iter().filter(|(words, _)| code.contains(words)).map(|(_, why)| *why).collect()
}

#[test]
fn the_demo_contains_no_decision_of_its_own() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    sources(&crates.join("embedded/src"), &mut found);
    sources(&crates.join("divvy/src/demo"), &mut found);
    found.push(crates.join("divvy/src/demo.rs"));
    assert!(found.len() > 12, "{found:?}");
    for path in found {
        let decided = decisions(&std::fs::read_to_string(&path).unwrap());
        assert!(decided.is_empty(), "{} decides itself: {decided:?}", path.display());
    }
}

#[test]
fn a_decision_would_be_noticed() {
    assert_eq!(decisions("let grant = Grant { v: 1 };"), ["grants come with binds"]);
    assert!(decisions("// Grant { is what the scheduler makes").is_empty());
}

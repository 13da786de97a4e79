//! Dependencies that are named in a manifest are named in a source file, too.

use super::packages::packages;
use crate::tidy::source::items::is_of_word;
use crate::tidy::source::{Kind, pieces};
use crate::tidy::{none, rust_files};

/// Dependencies that no source names, and why they are there.
const UNNAMED: &[(&str, &str, &str)] = &[];

#[test]
fn every_dependency_is_named_where_it_may_be() {
    let files: Vec<_> = rust_files().collect();
    let mut broken = Vec::new();
    for package in packages() {
        let [ships, all] = [false, true].map(|tests| code(&package.sources(&files, tests)));
        for need in &package.needs {
            let excepted = UNNAMED.iter().any(|(at, name, _)| *at == package.name && *name == need.name);
            let in_all = names(&all, &need.identifier);
            let found = if need.for_tests { in_all } else { names(&ships, &need.identifier) };
            match (found, excepted) {
                (true, true) => {
                    broken.push(format!("{}: {} is listed in UNNAMED and is named", package.name, need.name))
                }
                (false, false) if in_all => {
                    broken.push(format!("{}: only tests name {}", package.name, need.name));
                }
                (false, false) => broken.push(format!("{}: nothing names {}", package.name, need.name)),
                _ => {}
            }
        }
    }
    none(
        &broken,
        "Take it out of Cargo.toml, or move it under [dev-dependencies]. One that is there for a feature goes into UNNAMED with a reason.",
    );
}

/// The code itself: what comments and strings say uses nothing.
fn code(sources: &[&str]) -> String {
    let code = sources.iter().flat_map(|text| pieces(text)).filter(|piece| piece.kind == Kind::Code);
    code.flat_map(|piece| [piece.text, " "]).collect()
}

fn names(code: &str, identifier: &str) -> bool {
    let alone = |at: usize| !code[..at].ends_with(is_of_word) && !code[at + identifier.len()..].starts_with(is_of_word);
    code.match_indices(identifier).any(|(at, _)| alone(at))
}

#[test]
fn only_code_names_a_dependency() {
    let code = code(&["// a\nuse b::c; \"d\"", "e_f(g)"]);
    assert_eq!(["a", "b", "d", "e", "e_f"].map(|name| names(&code, name)), [false, true, false, false, true]);
}

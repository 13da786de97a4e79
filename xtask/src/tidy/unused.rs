//! Dependencies that are named in a manifest are named in a source file, too.

use std::collections::BTreeSet;

use super::packages::packages;
use super::source::{Kind, pieces};
use super::{none, rust_files};

/// Dependencies that no source names, and why they are there.
const UNNAMED: &[(&str, &str, &str)] = &[];

#[test]
fn every_dependency_is_named_where_it_may_be() {
    let files = rust_files();
    let mut broken = Vec::new();
    for package in packages() {
        let [ships, all] = [false, true].map(|tests| words(&package.sources(&files, tests)));
        for need in &package.needs {
            let excepted = UNNAMED.iter().any(|(at, name, _)| *at == package.name && *name == need.name);
            let found = if need.for_tests { &all } else { &ships };
            match (found.contains(&need.identifier), excepted) {
                (true, true) => {
                    broken.push(format!("{}: {} is listed in UNNAMED and is named", package.name, need.name))
                }
                (false, false) if all.contains(&need.identifier) => {
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

/// The words of the code itself: what comments and strings say uses nothing.
fn words(sources: &[&str]) -> BTreeSet<String> {
    let code = sources.iter().flat_map(|text| pieces(text)).filter(|piece| piece.kind == Kind::Code);
    code.flat_map(|piece| piece.text.split(|c: char| !c.is_alphanumeric() && c != '_')).map(str::to_owned).collect()
}

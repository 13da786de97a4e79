//! A type's name means one type in the whole workspace.

use std::collections::BTreeMap;

use crate::tidy::lists::List;
use crate::tidy::source::{bare, items, shipped};
use crate::tidy::{File, none, rust_files};

/// The arguments of a command: each command has some, and nobody else sees them.
const ARGUMENTS: &str = "Args";

/// Names that NVIDIA's headers give; the library and the fake driver spell the same functions.
fn is_of_c(name: &str) -> bool {
    name.contains('_') || name.starts_with("CU")
}

#[test]
fn a_name_is_one_type_but_for_those_that_are_listed() {
    none(
        &List::read("type-names").compare(&repeated(rust_files())),
        "Give one of them the name of what it is. A name that must stand twice is listed in xtask/tidy/type-names.txt as 'NAME TIMES: reason'.",
    );
}

/// Names that are declared more than once in what ships: `name times`, and where.
fn repeated<'a>(files: impl Iterator<Item = &'a File>) -> BTreeMap<String, String> {
    let mut declared: BTreeMap<String, Vec<&'a str>> = BTreeMap::new();
    for file in files.filter(|file| !file.is_test() && !file.is_generated()) {
        for name in items::types(&bare(shipped(&file.text))) {
            if name != ARGUMENTS && !is_of_c(name) {
                declared.entry(name.to_owned()).or_default().push(&file.path);
            }
        }
    }
    declared.retain(|_, places| places.len() > 1);
    declared.into_iter().map(|(name, places)| (format!("{name} {}", places.len()), places.join(", "))).collect()
}

#[test]
fn a_name_that_is_declared_twice_is_found() {
    let files = [
        File::new("a.rs", "struct A; enum B {} struct Args; struct CUuuid;\n#[cfg(test)]\nmod tests { struct B; }"),
        File::new("b.rs", "pub(crate) trait A {}\nstruct Args; struct CUuuid;"),
        File::new("tests/c.rs", "struct A;"),
    ];
    assert_eq!(repeated(files.iter()), BTreeMap::from([("A 2".into(), "a.rs, b.rs".into())]));
}

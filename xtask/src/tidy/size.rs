//! Files that can be read at one sitting.

use std::collections::BTreeMap;
use std::fs;

use super::{none, root, rust_files};

/// Aim for 100 to 300, think at 500; from here on a file must say why.
const LIMIT: usize = 800;
const EXCEPTIONS: &str = "xtask/size-exceptions.txt";

/// Path -> reason.
fn exceptions() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(EXCEPTIONS)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (path, reason) =
                line.split_once(": ").unwrap_or_else(|| panic!("{EXCEPTIONS}: '{line}' is not 'path: reason'"));
            (path.to_owned(), reason.to_owned())
        })
        .collect()
}

#[test]
fn long_files_say_why() {
    let exceptions = exceptions();
    let long: BTreeMap<String, usize> = rust_files()
        .into_iter()
        .filter(|file| !file.is_test() && !file.is_generated())
        .map(|file| (file.path, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LIMIT)
        .collect();
    let unexplained = long.iter().filter(|(path, _)| !exceptions.contains_key(*path));
    let mut broken: Vec<String> = unexplained.map(|(path, lines)| format!("{path} has {lines} lines")).collect();
    let stale = exceptions.keys().filter(|path| !long.contains_key(*path));
    broken.extend(stale.map(|path| format!("{path} is listed in {EXCEPTIONS} but is not long")));
    none(
        &broken,
        &format!("Split a file of more than {LIMIT} lines by the questions it answers, or explain it in {EXCEPTIONS}."),
    );
}

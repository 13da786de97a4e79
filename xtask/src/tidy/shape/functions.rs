//! Functions that fit on a screen.

use std::collections::BTreeMap;

use crate::tidy::lists::List;
use crate::tidy::source::{bare, items};
use crate::tidy::{File, none, rust_files};

/// What a reader sees at once.
const LINES: usize = 70;

#[test]
fn functions_fit_on_a_screen_but_for_those_that_are_listed() {
    let found: BTreeMap<String, String> = rust_files().filter(|file| !file.is_generated()).flat_map(long).collect();
    none(
        &List::read("long-functions").compare(&found),
        &format!(
            "Split a function of more than {LINES} lines by the steps it takes, or say in xtask/tidy/long-functions.txt why it is one."
        ),
    );
}

/// The functions of a file that are too long: `path::name`, and how long.
fn long(file: &File) -> Vec<(String, String)> {
    let functions = items::functions(&bare(&file.text)).into_iter().filter(|function| function.lines > LINES);
    functions.map(|f| (format!("{}::{}", file.path, f.name), format!("{} lines, from {}", f.lines, f.line))).collect()
}

#[test]
fn a_function_of_one_line_too_many_is_found() {
    let file = |lines: usize| {
        let text = format!("fn f() {{\n{}}}\nfn g() {{}}", "    a();\n".repeat(lines - 2));
        File::new("a.rs", &text)
    };
    assert_eq!(long(&file(LINES)), []);
    assert_eq!(long(&file(LINES + 1)), [("a.rs::f".into(), "71 lines, from 1".into())]);
}

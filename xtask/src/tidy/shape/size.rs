//! Files that can be read at one sitting.

use std::collections::BTreeMap;

use crate::tidy::lists::List;
use crate::tidy::{File, none, rust_files};

/// Aim for 100 to 300, think at 500; from here on a file must say why.
const LIMIT: usize = 800;

#[test]
fn long_files_say_why() {
    none(
        &List::read("long-files").compare(&long(rust_files())),
        &format!(
            "Split a file of more than {LIMIT} lines by the questions it answers, or say in xtask/tidy/long-files.txt why it is one."
        ),
    );
}

fn long<'a>(files: impl Iterator<Item = &'a File>) -> BTreeMap<String, String> {
    let ours = files.filter(|file| !file.is_test() && !file.is_generated());
    let lengths = ours.map(|file| (file.path.clone(), file.text.lines().count()));
    lengths.filter(|(_, lines)| *lines > LIMIT).map(|(path, lines)| (path, format!("{lines} lines"))).collect()
}

#[test]
fn a_file_of_one_line_too_many_is_found() {
    let file = |path: &str, lines: usize| File::new(path, &"a\n".repeat(lines));
    let files = [file("a.rs", LIMIT), file("b.rs", LIMIT + 1), file("tests/c.rs", LIMIT + 1)];
    assert_eq!(long(files.iter()), BTreeMap::from([("b.rs".into(), "801 lines".into())]));
}

//! `xtask/times/slow-tests.txt` names tests that exist.

use crate::test::AllowedTimes;
use crate::tidy::{none, rust_files};

#[test]
fn each_test_that_may_take_long_exists() {
    let limits = AllowedTimes::read().unwrap();
    let exists = |name: &str| {
        // FOLDER PROGRAM MODULE::TEST
        let words: Vec<&str> = name.split(' ').collect();
        let [folder, _, test] = *words.as_slice() else { return false };
        let declared = format!("fn {}()", test.rsplit("::").next().unwrap_or(test));
        rust_files().any(|file| file.path.starts_with(&format!("{folder}/")) && file.text.contains(&declared))
    };
    let broken: Vec<String> = limits.slow().filter(|name| !exists(name)).map(str::to_owned).collect();
    none(
        &broken,
        "xtask/times/slow-tests.txt lists tests that are not there: take the lines out, or write FOLDER PROGRAM TEST",
    );
}

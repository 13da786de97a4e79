//! docs/reference/compat-cases.md: every case has a row, and the tests it names exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The numbers of each system's cases.
const CASES: [(&str, &str); 8] = [
    ("KS", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24 26 27 28 29 31 32 33 34"),
    ("GM", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24 26 27 28"),
    ("KG", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24 26 27 28 29 31"),
    ("GS", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19"),
    ("TK", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24"),
    ("AL", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24"),
    ("FP", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22 23 24 26 27 28"),
    ("HM", "01 02 03 04 06 07 08 09 11 12 13 14 16 17 18 19 21 22"),
];

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the document by id: class, what the user sees, tests.
fn rows() -> BTreeMap<String, Vec<[String; 3]>> {
    let document = fs::read_to_string(root().join("docs/reference/compat-cases.md")).unwrap();
    let mut rows: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
    for line in document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, class, seen, tests] = cells[..] else { continue };
        if id.len() == 5 && id.as_bytes()[2] == b'-' && id[3..].parse::<u8>().is_ok() {
            rows.entry(id.to_owned()).or_default().push([class.to_owned(), seen.to_owned(), tests.to_owned()]);
        }
    }
    rows
}

#[test]
fn every_case_has_one_row_and_no_row_is_about_no_case() {
    let rows = rows();
    let ids: Vec<String> =
        CASES.iter().flat_map(|(system, all)| all.split(' ').map(move |n| format!("{system}-{n}"))).collect();
    let missing: Vec<&String> = ids.iter().filter(|id| !rows.contains_key(*id)).collect();
    assert!(missing.is_empty(), "docs/reference/compat-cases.md has no row for {missing:?}");
    for (id, rows) in &rows {
        assert!(ids.contains(id), "{id} is no case");
        assert_eq!(rows.len(), 1, "{id} has several rows");
        let [class, seen, _] = &rows[0];
        assert!(["same", "fixed", "translated"].contains(&class.as_str()), "{id}: `{class}` is no class");
        assert!(seen.ends_with('.'), "{id}: what the user sees is a sentence");
    }
}

#[test]
fn every_test_that_the_document_names_exists_and_bears_the_id() {
    for (id, rows) in rows() {
        let number = id.to_lowercase().replace('-', "_");
        let tests = &rows[0][2];
        if tests == "no test yet" {
            continue;
        }
        for named in tests.split("<br>").map(|text| text.trim().trim_matches('`')) {
            let (file, test) = named.split_once("::").unwrap_or_else(|| panic!("{id}: {named} names no test"));
            let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
            assert!(text.contains(&format!("fn {test}(")), "{id}: {file} has no test {test}");
            assert!(test.contains(&number) || is_in_range(test, &number), "{id}: {test} does not say which case it is");
        }
    }
}

/// `ks_02_to_07_...` is about `ks_03` too.
fn is_in_range(test: &str, number: &str) -> bool {
    let Some((system, number)) = number.split_once('_') else { return false };
    let words: Vec<&str> = test.split('_').collect();
    words.windows(4).any(|w| w[0] == system && w[2] == "to" && (w[1]..=w[3]).contains(&number))
}

//! docs/compat-cases.md: what it says of this crate's tests is so.

use std::fs;
use std::path::Path;

#[test]
fn every_test_of_this_crate_that_the_document_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/compat-cases.md")).unwrap();
    let mut found = 0;
    for named in document.split('`').filter(|text| text.starts_with("crates/dialects/")) {
        let (file, test) = named.split_once("::").unwrap_or_else(|| panic!("{named} names no test"));
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
        found += 1;
    }
    assert!(found > 40, "only {found} tests are named");
}

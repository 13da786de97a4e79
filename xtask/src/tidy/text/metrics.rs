//! Metrics are documented once, under the names that the code gives them.

use std::collections::BTreeSet;

use crate::tidy::source::{Kind, pieces, shipped};
use crate::tidy::{files, none, rust_files};

/// The page that lists them.
const PAGE: &str = "docs/reference/metrics.md";

#[test]
fn every_metric_is_listed_in_one_page_and_every_listed_one_is_in_the_code() {
    let (mut listed, mut broken) = (BTreeSet::new(), Vec::new());
    for file in files().iter().filter(|file| file.ends_with(".md")) {
        for (number, name) in rows(&file.text) {
            if file.path != PAGE {
                broken.push(format!("{}:{number}: {name} is listed outside of {PAGE}", file.path));
            } else if !listed.insert(name.trim_end_matches("_total").to_owned()) {
                broken.push(format!("{PAGE}:{number}: {name} is listed twice"));
            }
        }
    }
    let told = told();
    assert!(told.len() > 40, "the code's metrics are not found any more: {told:?}");
    broken.extend(told.difference(&listed).map(|name| format!("{name} is in the code, and not in {PAGE}")));
    broken.extend(listed.difference(&told).map(|name| format!("{name} is in {PAGE}, and not in the code")));
    none(&broken, &format!("List each metric in a row of {PAGE} as /metrics shows it (counters end in _total)."));
}

/// First cells of tables that are the name of a metric of ours.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        is_metric(name).then_some((index + 1, name))
    })
}

/// What the programs register: string literals that are nothing but a metric's name. Readers of other people's pages name the
/// exposed form, with `_total`.
fn told() -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    for file in rust_files().filter(|file| file.path.starts_with("crates/") && !file.is_test()) {
        let strings = pieces(shipped(&file.text)).into_iter().filter(|piece| piece.kind == Kind::String);
        let names = strings.map(|piece| piece.text.trim_matches('"')).filter(|name| is_metric(name));
        told.extend(names.map(|name| name.trim_end_matches("_total").to_owned()));
    }
    told
}

fn is_metric(text: &str) -> bool {
    text.starts_with("divvy_") && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn rows_are_told_from_prose() {
    let page = "`divvy_a` is fine\n| `divvy_b_total` | c |\n| d | `divvy_e` |\n| `divvy_f{g}` | |\n";
    assert_eq!(rows(page).collect::<Vec<_>>(), [(2, "divvy_b_total")]);
}

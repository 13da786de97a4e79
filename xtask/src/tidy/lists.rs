//! Lists of exceptions: `xtask/tidy/NAME.txt`, one `place: reason` per line. A list only shrinks by itself: a place that keeps the
//! rule again must leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::root;

/// A list of exceptions.
pub(super) struct List {
    file: String,
    /// Place -> reason.
    entries: BTreeMap<String, String>,
}

impl List {
    /// The list of that name.
    pub(super) fn read(name: &str) -> List {
        let file = format!("xtask/tidy/{name}.txt");
        let text = fs::read_to_string(root().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        List::parse(file, &text).unwrap_or_else(|mistakes| panic!("\n{}\n", mistakes.join("\n")))
    }

    fn parse(file: String, text: &str) -> Result<List, Vec<String>> {
        let (mut entries, mut mistakes) = (BTreeMap::new(), Vec::new());
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        for (index, line) in lines {
            match line.split_once(": ") {
                Some((place, reason)) if !reason.trim().is_empty() => {
                    if entries.insert(place.to_owned(), reason.to_owned()).is_some() {
                        mistakes.push(format!("{file}:{}: {place} is listed twice", index + 1));
                    }
                }
                _ => mistakes.push(format!("{file}:{}: '{line}' is not 'place: reason'", index + 1)),
            }
        }
        if mistakes.is_empty() { Ok(List { file, entries }) } else { Err(mistakes) }
    }

    /// The reason for a place that is listed.
    pub(super) fn reason(&self, place: &str) -> Option<&str> {
        self.entries.get(place).map(String::as_str)
    }

    /// All places and reasons.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(place, reason)| (&**place, &**reason))
    }

    /// What is wrong with `found`, place -> fault: faults that are not listed, and places that are listed without a fault.
    pub(super) fn compare(&self, found: &BTreeMap<String, String>) -> Vec<String> {
        let new = found.iter().filter(|(place, _)| !self.entries.contains_key(*place));
        let listed: BTreeSet<&String> = self.entries.keys().collect();
        let stale = listed.into_iter().filter(|place| !found.contains_key(*place));
        new.map(|(place, fault)| format!("{place}: {fault}"))
            .chain(
                stale
                    .map(|place| format!("{place}: listed in {} and no longer at fault: take the line out", self.file)),
            )
            .collect()
    }
}

#[test]
fn a_list_names_each_place_once_with_its_reason() {
    let read = |text: &str| List::parse("l".into(), text);
    assert_eq!(read("# a comment\n\na.rs::b: c: d\n").unwrap().reason("a.rs::b"), Some("c: d"));
    assert_eq!(
        read("a: b\na: c\nd\ne: \n").err().unwrap(),
        ["l:2: a is listed twice", "l:3: 'd' is not 'place: reason'", "l:4: 'e: ' is not 'place: reason'"]
    );
}

#[test]
fn a_fault_is_listed_and_what_is_listed_is_at_fault() {
    let list = List::parse("l".into(), "a: known\nb: mended since\n").unwrap();
    let found = [("a", "long"), ("c", "long")].map(|(place, fault)| (place.to_owned(), fault.to_owned()));
    let expected = ["c: long", "b: listed in l and no longer at fault: take the line out"];
    assert_eq!(list.compare(&found.into()), expected);
}

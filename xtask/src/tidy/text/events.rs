//! Events and conditions that the documentation lists are written by the code.

use std::collections::BTreeSet;

use crate::tidy::source::{Kind, pieces, shipped};
use crate::tidy::{files, none, rust_files};

/// The page that lists them.
const PAGE: &str = "docs/reference/events.md";

#[test]
fn every_listed_event_is_in_the_code_and_every_event_of_the_code_is_listed() {
    let page = files().iter().find(|file| file.path == PAGE).unwrap();
    let listed: BTreeSet<String> = page.text.lines().flat_map(words).collect();
    let mut strings = BTreeSet::new();
    let mut sent = BTreeSet::new();
    for file in rust_files().filter(|file| file.path.starts_with("crates/") && !file.is_test()) {
        let pieces = pieces(shipped(&file.text));
        for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.kind == Kind::String) {
            let text = piece.text.trim_matches('"').to_owned();
            let before = if at == 0 { "" } else { pieces[at - 1].text };
            if is_reason(&text) && SENDERS.iter().any(|sender| is_argument_of(before, sender)) {
                sent.insert(text.clone());
            }
            strings.insert(text);
        }
    }
    assert!(sent.len() > 8, "events are not found in the code any more: {sent:?}");
    let mut broken: Vec<String> = listed
        .iter()
        .filter(|name| !strings.contains(*name))
        .map(|name| format!("{name} is listed, and not in the code"))
        .collect();
    broken.extend(sent.difference(&listed).map(|name| format!("{name} is in the code, and not listed")));
    none(&broken, &format!("List each event and condition in {PAGE}."));
}

/// What is written right before the reason of an event.
const SENDERS: &[&str] =
    &["warn_pod(", "tell_pod(", "events.node(", ".evict(", "Event { about, reason:", "tell(effects,"];

/// Whether nothing but other arguments stands between the sender and the end of `code`.
fn is_argument_of(code: &str, sender: &str) -> bool {
    code.rfind(sender).is_some_and(|at| !code[at + sender.len()..].contains([')', ';', '{']))
}

/// Reasons are written as Kubernetes writes them.
fn is_reason(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphabetic())
}

/// The names in code quotes in the first two cells of a row.
fn words(line: &str) -> Vec<String> {
    let Some(row) = line.strip_prefix("| ") else { return Vec::new() };
    let cells = row.split(" | ").take(2).collect::<Vec<_>>().join(" ");
    let quoted = cells.split('`').skip(1).step_by(2).map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
    quoted.filter(|word| is_reason(word) && !["True", "False"].contains(&word.as_str())).collect()
}

#[test]
fn reasons_are_found_in_rows_and_calls() {
    assert_eq!(words("| `example.org/Resized` | `True`, `Applied` | agent |"), ["Resized", "Applied"]);
    assert!(words("prose about `Followed`").is_empty());
    assert!(is_argument_of("self.events.warn_pod(&pod, ", "warn_pod("));
    assert!(!is_argument_of("warn_pod(&pod); let x = ", "warn_pod("));
}

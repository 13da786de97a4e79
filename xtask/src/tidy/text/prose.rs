//! Plain English in comments and documents, as STYLE.md asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::tidy::lists::List;
use crate::tidy::source::comments::{Paragraph, of_comments, of_markdown, sentences};
use crate::tidy::{File, files, none, root};

/// A sentence of more words is two.
const WORDS: usize = 35;
/// A line of a document that is longer is not read side by side with another.
const COLUMNS: usize = 170;
/// The words that begin a sentence about nobody in particular.
const FREE: &[&str] = &["Who", "Whoever", "Whatever"];
const GLOSSARY: &str = "docs/reference/glossary.md";

/// Documents of others, and those that programs write.
const NOT_OURS: &[&str] = &["docs/reference/api.md", "crates/sim/data/"];

/// A place that breaks a rule of STYLE.md.
#[derive(Debug, PartialEq)]
struct Fault {
    line: usize,
    rule: &'static str,
    what: String,
}

#[test]
fn prose_is_plain_but_in_the_files_that_are_listed() {
    let (list, coined) = (List::read("unclean-prose"), coined());
    let mut stale: BTreeSet<&str> = list.entries().map(|(path, _)| path).collect();
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| is_ours(file)) {
        let faults = faults(file, &coined);
        let known = list.reason(&file.path).unwrap_or_default();
        if !faults.is_empty() {
            stale.remove(&*file.path);
        }
        let new = faults.iter().filter(|fault| !known.contains(fault.rule));
        broken.extend(new.map(|fault| format!("{}:{}: {}: {}", file.path, fault.line, fault.rule, fault.what)));
    }
    broken.extend(
        stale.iter().map(|path| format!("{path} is plain now: take its line out of xtask/tidy/unclean-prose.txt")),
    );
    none(
        &broken,
        "STYLE.md has the rules on one screen. What is left to rewrite is listed in xtask/tidy/unclean-prose.txt.",
    );
}

#[test]
fn coined_words_are_not_in_the_glossary() {
    let glossary = fs::read_to_string(root().join(GLOSSARY)).unwrap();
    let defined = |word: &str| glossary.lines().any(|line| line.starts_with(&format!("| {word} |")));
    let broken: Vec<String> = coined().into_keys().filter(|word| defined(word)).collect();
    none(&broken, &format!("A word is defined in {GLOSSARY} or refused by xtask/tidy/coined-words.txt, not both."));
}

fn coined() -> BTreeMap<String, String> {
    let list = List::read("coined-words");
    list.entries().map(|(word, plain)| (word.to_owned(), plain.to_owned())).collect()
}

fn is_ours(file: &File) -> bool {
    let written = file.ends_with(".rs") || file.ends_with(".md");
    written && !file.is_generated() && !NOT_OURS.iter().any(|place| file.path.starts_with(place))
}

fn faults(file: &File, coined: &BTreeMap<String, String>) -> Vec<Fault> {
    if file.ends_with(".rs") {
        return of_comments(&file.text).iter().flat_map(|paragraph| of_paragraph(paragraph, coined)).collect();
    }
    let long =
        file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && !line.starts_with('|'));
    let long = long.map(|(index, line)| Fault {
        line: index + 1,
        rule: "long line",
        what: format!("{} columns, {COLUMNS} are allowed", line.chars().count()),
    });
    long.chain(of_markdown(&file.text).iter().flat_map(|paragraph| of_paragraph(paragraph, coined))).collect()
}

fn of_paragraph(paragraph: &Paragraph, coined: &BTreeMap<String, String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut push = |rule, what| faults.push(Fault { line: paragraph.line, rule, what });
    for sentence in sentences(&paragraph.text) {
        let words: Vec<&str> = sentence.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).collect();
        let begins = words.iter().take(6).copied().collect::<Vec<_>>().join(" ");
        if words.len() > WORDS {
            push("long sentence", format!("{} words, {WORDS} are allowed: \"{begins} ...\"", words.len()));
        }
        if is_about_nobody(sentence) && (!paragraph.is_title || sentence.ends_with('.')) {
            push("free subject", format!("name the thing: \"{begins} ...\""));
        }
        for word in words {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            let bare = bare.trim_end_matches("'s");
            if let Some(plain) = coined.get(bare) {
                push("coined word", format!("'{bare}': write {plain}"));
            }
        }
    }
    faults
}

/// Whether the subject is a free relative. A question is not, nor "Whatever it says, ...".
fn is_about_nobody(sentence: &str) -> bool {
    let first = sentence.split_whitespace().next().unwrap_or_default();
    let concedes = first == "Whatever" && sentence.contains(',');
    FREE.contains(&first) && !concedes && !sentence.ends_with('?')
}

#[test]
fn each_rule_finds_its_fault() {
    let coined = BTreeMap::from([("grievance".to_owned(), "shortfall".to_owned())]);
    let check = |path: &str, text: &str| {
        faults(&File::new(path, text), &coined)
            .iter()
            .map(|fault| format!("{}: {}", fault.line, fault.rule))
            .collect::<Vec<_>>()
    };
    let long = format!("It is{}.", " so".repeat(WORDS));
    assert_eq!(check("a.rs", &format!("\n// {long}\nfn f() {{}}")), ["2: long sentence"]);
    assert_eq!(
        check("a.rs", "/// Whoever computes waits. Who waits? Whatever it asks, it waits.\n"),
        ["1: free subject"]
    );
    assert_eq!(check("a.rs", "// The tenant's *grievance* grows.\nlet grievance = 1;"), ["1: coined word"]);
    assert_eq!(check("a.md", &format!("# Who\n{}\n", "a".repeat(COLUMNS + 1))), ["2: long line"]);
    assert_eq!(check("a.md", &format!("It is{}.\n\n`grievance`", " so".repeat(WORDS - 2))), [""; 0]);
}

//! Links in the documentation lead somewhere.

use std::path::{Component, Path, PathBuf};

use super::{files, none, root};

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| file.ends_with(".md")) {
        for (number, line) in prose(&file.text) {
            for target in targets(line) {
                let path = target.split('#').next().unwrap_or_default();
                let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
                let at = if let Some(absolute) = path.strip_prefix('/') {
                    PathBuf::from(absolute)
                } else {
                    folder.join(path)
                };
                if !path.is_empty() && !root().join(plain(&at)).exists() {
                    broken.push(format!("{}:{number}: {target}", file.path));
                }
            }
        }
    }
    none(&broken, "Mend the link or write the document.");
}

/// Lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            code = !code;
            return None;
        }
        (!code).then_some((index + 1, line))
    })
}

/// What `[text](target)` points to, as far as it is in this repository.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.match_indices("](").map(|(at, mark)| &line[at + mark.len()..]);
    let targets = after.filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The path without `..`, so that a link may climb out of a folder that is itself missing.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn targets_are_found_in_a_line() {
    let line = "see [a](b.md#c), [d](https://example.com) and ![e](/f/g.svg \"h\")";
    assert_eq!(targets(line).collect::<Vec<_>>(), ["b.md#c", "/f/g.svg"]);
}

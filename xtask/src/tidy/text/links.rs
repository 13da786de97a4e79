//! Links in the documentation lead somewhere, and every page is in the index.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::tidy::{files, none, root};

/// The page that has a line for each of the others.
const INDEX: &str = "docs/README.md";

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
                let at = if path.is_empty() { PathBuf::from(&file.path) } else { plain(&at) };
                let anchor = target.split_once('#').map(|(_, anchor)| anchor);
                if !root().join(&at).exists() || anchor.is_some_and(|anchor| !has(&at, anchor)) {
                    broken.push(format!("{}:{number}: {target}", file.path));
                }
            }
        }
    }
    none(&broken, "Mend the link, or write the document or the heading.");
}

#[test]
fn every_page_of_the_documentation_is_in_its_index() {
    let index = fs::read_to_string(root().join(INDEX)).unwrap();
    let linked: Vec<PathBuf> = prose(&index)
        .flat_map(|(_, line)| targets(line))
        .map(|target| plain(&Path::new("docs").join(target.split('#').next().unwrap_or_default())))
        .collect();
    let pages =
        files().iter().filter(|file| file.path.starts_with("docs/") && file.ends_with(".md") && file.path != INDEX);
    let lost = pages.filter(|page| !linked.contains(&PathBuf::from(&page.path)));
    none(&lost.map(|page| page.path.clone()).collect::<Vec<_>>(), &format!("Give the page a line in {INDEX}."));
}

/// Whether the document has the heading that an anchor names; files that are no documents have lines, which nobody counts here.
fn has(document: &Path, anchor: &str) -> bool {
    let Ok(text) = fs::read_to_string(root().join(document)) else { return true };
    document.extension().is_none_or(|end| end != "md") || anchors(&text).iter().any(|known| known == anchor)
}

/// The anchors of a document's headings, as Git forges make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let name = line.trim_start_matches('#');
        (name.len() < line.len()).then(|| name.strip_prefix(' ')).flatten()
    });
    let mut anchors: Vec<String> = Vec::new();
    for heading in headings {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let before = anchors.iter().filter(|known| **known == anchor).count();
        anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    anchors
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

#[test]
fn anchors_are_made_from_headings() {
    let text = "# A walk, `step` by step\n```\n# no heading\n```\n## A card fails\n## A card fails\n#hash\n";
    assert_eq!(anchors(text), ["a-walk-step-by-step", "a-card-fails", "a-card-fails-1"]);
}

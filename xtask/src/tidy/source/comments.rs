//! What comments and Markdown pages say, paragraph by paragraph and sentence by sentence.

use super::{Kind, pieces};

/// Text without a break: a paragraph, an item of a list, a heading, a cell of a table.
#[derive(Debug, PartialEq)]
pub(crate) struct Paragraph {
    /// The line it begins on, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// A heading or a cell names a thing and need not be a sentence.
    pub(crate) is_title: bool,
}

/// The paragraphs of all comments of a Rust file.
pub(crate) fn of_comments(text: &str) -> Vec<Paragraph> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    // The line that goes on with the last block, and the marks that its lines begin with.
    let mut goes_on = (0, "");
    for piece in pieces(text).iter().filter(|piece| piece.kind == Kind::Comment) {
        let Some(marks) = ["///", "//!", "//"].into_iter().find(|marks| piece.text.starts_with(marks)) else {
            let inner = piece.text.trim_start_matches(['/', '*', '!']).trim_end_matches(['*', '/']);
            blocks.push((piece.line, inner.to_owned()));
            continue;
        };
        let said = &piece.text[marks.len()..];
        let said = said.strip_prefix(' ').unwrap_or(said);
        match blocks.last_mut().filter(|_| goes_on == (piece.line, marks)) {
            Some((_, block)) => {
                block.push('\n');
                block.push_str(said);
            }
            None => blocks.push((piece.line, said.to_owned())),
        }
        goes_on = (piece.line + 1, marks);
    }
    let within = |(line, block): (usize, String)| of_markdown(&block).into_iter().map(move |p| (line, p));
    blocks.into_iter().flat_map(within).map(|(line, p)| Paragraph { line: line + p.line - 1, ..p }).collect()
}

/// The paragraphs of a Markdown page, without its code.
pub(crate) fn of_markdown(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut open, mut in_code, mut in_comment) = (false, false, false);
    for (index, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let was_in_comment = in_comment;
        in_comment = (in_comment || line.starts_with("<!--")) && !line.contains("-->");
        let fence = line.starts_with("```");
        in_code ^= fence;
        let is_code = !open && raw.starts_with("    ");
        if fence || in_code || is_code || line.is_empty() || was_in_comment || line.starts_with("<!--") {
            open = false;
            continue;
        }
        let new = |text: &str, is_title| Paragraph { line: index + 1, text: text.to_owned(), is_title };
        if line.starts_with('#') {
            found.push(new(line.trim_start_matches('#').trim(), true));
            open = false;
        } else if line.starts_with('|') {
            let cells = line.trim_matches('|').split('|').map(str::trim).filter(|cell| !is_rule(cell));
            found.extend(cells.map(|cell| new(cell, true)));
            open = false;
        } else if let Some(item) = item(line) {
            found.push(new(item, false));
            open = true;
        } else if open && let Some(last) = found.last_mut() {
            last.text.push(' ');
            last.text.push_str(line);
        } else {
            found.push(new(line, false));
            open = true;
        }
    }
    found.iter_mut().for_each(|paragraph| paragraph.text = plain(&paragraph.text));
    found.retain(|paragraph| !paragraph.text.is_empty());
    found
}

/// Whether a cell is part of the line under a table's head.
fn is_rule(cell: &str) -> bool {
    cell.chars().all(|c| matches!(c, '-' | ':'))
}

/// The text of a list's item.
fn item(line: &str) -> Option<&str> {
    let unnumbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = unnumbered.len() < line.len();
    let bullets: &[&str] = if numbered { &[". ", ") "] } else { &["- ", "* ", "> "] };
    bullets.iter().find_map(|bullet| unnumbered.strip_prefix(bullet)).map(str::trim_start)
}

/// The text as it is read: code is one word, a link is its text, nothing is bold.
fn plain(text: &str) -> String {
    let mut read = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 {
            read.push_str(part)
        } else if !part.is_empty() {
            read.push_str("CODE")
        }
    }
    while let Some(middle) = read.find("](") {
        let Some(end) = read[middle..].find(')') else { break };
        read.replace_range(middle..=middle + end, "");
        if let Some(start) = read[..middle].rfind('[') {
            read.remove(start);
        }
    }
    read.replace("**", "").replace(" *", " ").replace("* ", " ").trim().to_owned()
}

/// The sentences of a paragraph's text.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(['.', '!', '?']) {
        let end = at + 1 + text[at + 1..].len() - text[at + 1..].trim_start_matches([')', '"', '\'', '.']).len();
        let rest = &text[end..];
        let begins_anew = rest.starts_with(' ')
            && rest.trim_start().starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || "\"'([".contains(c));
        let shortened = ["e.g.", "i.e.", "cf.", "vs.", "etc."].iter().any(|short| text[..end].ends_with(short));
        if end > from && (rest.is_empty() || begins_anew && !shortened) {
            found.push(text[from..end].trim());
            from = end;
        }
    }
    found.push(text[from..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(paragraphs: &[Paragraph]) -> Vec<(usize, &str, bool)> {
        paragraphs.iter().map(|p| (p.line, &*p.text, p.is_title)).collect()
    }

    #[test]
    fn comments_are_joined_to_paragraphs() {
        let text = "//! A\n//! b.\n//!\n//! C.\nfn f() {} // d\n/// - e\n///   f\n/// ```\n/// g\n/// ```\nlet x = \"// h\"; /* i */";
        let expected = [(1, "A b.", false), (4, "C.", false), (5, "d", false), (6, "e f", false), (11, "i", false)];
        assert_eq!(texts(&of_comments(text)), expected);
    }

    #[test]
    fn pages_are_read_without_code_and_marks() {
        let text =
            "# A `b c`\n\nD [e](f.md) **g**\nh.\n1. i\n\n    code\n| j | k |\n|---|:-:|\n| l | |\n<!-- m\nn -->\n";
        let expected = [
            (1, "A CODE", true),
            (3, "D e g h.", false),
            (5, "i", false),
            (8, "j", true),
            (8, "k", true),
            (10, "l", true),
        ];
        assert_eq!(texts(&of_markdown(text)), expected);
    }

    #[test]
    fn sentences_end_where_another_begins() {
        let text = "A b (c.). D 1.5, e.g. F g.h? \"I j!\" 2 k. l";
        assert_eq!(sentences(text), ["A b (c.).", "D 1.5, e.g. F g.h?", "\"I j!\"", "2 k. l"]);
    }
}

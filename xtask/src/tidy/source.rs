//! Just enough of Rust's grammar to tell code, strings and comments apart.

pub(super) mod comments;
pub(super) mod items;
pub(super) mod paths;

/// A stretch of a source file.
#[derive(Debug, PartialEq)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Line it begins on, from 1.
    pub(super) line: usize,
}

#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) enum Kind {
    Code,
    /// A string literal with its quotes.
    String,
    Comment,
}

/// The pieces of a source file, in order.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut at, mut code, mut line) = (0, 0, 1);
    let mut push = |kind, from: usize, to: usize| {
        let text = &text[from..to];
        if !text.is_empty() {
            pieces.push(Piece { kind, text, line });
        }
        line += text.matches('\n').count();
    };
    while let Some(next) = text[at..].find(['/', '"', '\'']).map(|found| at + found) {
        let rest = &text[next..];
        let (kind, from, to) = match rest.as_bytes()[0] {
            b'"' => {
                let (from, to) = string(text, next);
                (Kind::String, from, to)
            }
            b'/' if rest.starts_with("//") => (Kind::Comment, next, next + rest.find('\n').unwrap_or(rest.len())),
            b'/' if rest.starts_with("/*") => (Kind::Comment, next, next + block_comment(rest)),
            _ => {
                at = next + character(rest);
                continue;
            }
        };
        push(Kind::Code, code, from);
        push(kind, from, to);
        (at, code) = (to, to);
    }
    push(Kind::Code, code, text.len());
    pieces
}

/// The code alone: strings, characters and comments are blanks, so that each line stays where it is.
pub(super) fn bare(text: &str) -> String {
    let blank = |text: &str| text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect::<String>();
    let mut bare = String::with_capacity(text.len());
    for piece in pieces(text) {
        if piece.kind != Kind::Code {
            bare.push_str(&blank(piece.text));
            continue;
        }
        let mut code = piece.text;
        while let Some(quote) = code.find('\'') {
            let end = quote + character(&code[quote..]);
            bare.push_str(&code[..quote]);
            let literal = end > quote + 1;
            bare.push_str(&if literal { blank(&code[quote..end]) } else { code[quote..end].to_owned() });
            code = &code[end..];
        }
        bare.push_str(code);
    }
    bare
}

/// The part of a file that ships: what stands before its module of tests.
pub(super) fn shipped(text: &str) -> &str {
    let tests = text.match_indices("#[cfg(test)]").find(|(at, mark)| {
        let after = text[at + mark.len()..].trim_start();
        after.starts_with("mod ") && after.find(['{', ';']).is_some_and(|end| after[end..].starts_with('{'))
    });
    tests.map_or(text, |(at, _)| &text[..at])
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += first_length(&rest[at..]);
        }
    }
    rest.len()
}

/// Where the string literal begins and ends that has its first quote at `quote`.
fn string(text: &str, quote: usize) -> (usize, usize) {
    let unhashed = text[..quote].trim_end_matches('#');
    let hashes = quote - unhashed.len();
    let word = &unhashed[unhashed.trim_end_matches(items::is_of_word).len()..];
    if ["r", "br", "cr"].contains(&word) {
        let close = format!("\"{}", "#".repeat(hashes));
        let end = text[quote + 1..].find(&close).map_or(text.len(), |at| quote + 1 + at + close.len());
        return (unhashed.len() - word.len(), end);
    }
    let from = if hashes == 0 && ["b", "c"].contains(&word) { quote - 1 } else { quote };
    let mut at = quote + 1;
    while let Some(found) = text[at..].find(['"', '\\']) {
        at += found;
        if text.as_bytes()[at] == b'"' {
            return (from, at + 1);
        }
        at += 1 + first_length(&text[at + 1..]);
    }
    (from, text.len())
}

/// Length of the next bit of code; a character literal is taken whole, for it may be a quote.
fn character(rest: &str) -> usize {
    if let Some(escaped) = rest.strip_prefix("'\\") {
        return escaped.find('\'').map_or(2, |end| {
            // The escaped character may itself be a quote: '\''.
            if end == 0 { 4.min(rest.len()) } else { end + 3 }
        });
    }
    let mut characters = rest.chars();
    if characters.next() == Some('\'') {
        let inner = characters.next().map_or(0, char::len_utf8);
        if characters.next() == Some('\'') {
            return inner + 2;
        }
    }
    first_length(rest)
}

fn first_length(rest: &str) -> usize {
    rest.chars().next().map_or(1, char::len_utf8)
}

#[test]
fn strings_and_comments_are_told_from_code() {
    let text = "a /* b /* c */ */ \"d \\\" // e\" // f\nr#\"g\"h\"# '\"' 'i' '\\'' <'j> b\"k\" bar\"l\"";
    let kinds: Vec<(Kind, &str)> = pieces(text).iter().map(|piece| (piece.kind, piece.text.trim())).collect();
    use Kind::{Code, Comment, String};
    let expected = [
        (Code, "a"),
        (Comment, "/* b /* c */ */"),
        (Code, ""),
        (String, "\"d \\\" // e\""),
        (Code, ""),
        (Comment, "// f"),
        (Code, ""),
        (String, "r#\"g\"h\"#"),
        (Code, "'\"' 'i' '\\'' <'j>"),
        (String, "b\"k\""),
        (Code, "bar"),
        (String, "\"l\""),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(pieces(text).last().map(|piece| piece.line), Some(2));
}

#[test]
fn a_module_of_tests_does_not_ship() {
    assert_eq!(shipped("a\n#[cfg(test)]\nmod tests {\n b }"), "a\n");
    assert_eq!(shipped("#[cfg(test)]\nmod tests;\nb"), "#[cfg(test)]\nmod tests;\nb");
}

#[test]
fn bare_code_keeps_its_lines() {
    let kept = bare("a/*{\n*/'{'\"}\n\"<'b>//c\nd");
    assert_eq!(kept.lines().map(str::trim).collect::<Vec<_>>(), ["a", "", "<'b>", "d"]);
}

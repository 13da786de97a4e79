//! Just enough of Rust's grammar to tell code, strings and comments apart.

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
    while at < text.len() {
        let rest = &text[at..];
        let special = if rest.starts_with("//") {
            Some((Kind::Comment, rest.find('\n').unwrap_or(rest.len())))
        } else if rest.starts_with("/*") {
            Some((Kind::Comment, block_comment(rest)))
        } else {
            string(rest, text[..at].chars().next_back()).map(|length| (Kind::String, length))
        };
        if let Some((kind, length)) = special {
            push(Kind::Code, code, at);
            push(kind, at, at + length);
            at += length;
            code = at;
        } else {
            at += character(rest);
        }
    }
    push(Kind::Code, code, text.len());
    pieces
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

/// Length of the string literal that begins here, if one does.
fn string(rest: &str, before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix =
        ["br", "cr", "b", "c", "r"].iter().find(|prefix| !in_word && rest.starts_with(**prefix)).map_or(0, |p| p.len());
    let raw = rest[..prefix].ends_with('r');
    let hashes = if raw { rest[prefix..].len() - rest[prefix..].trim_start_matches('#').len() } else { 0 };
    let open = prefix + hashes;
    if !rest[open..].starts_with('"') {
        return None;
    }
    if raw {
        let close = format!("\"{}", "#".repeat(hashes));
        return Some(rest[open + 1..].find(&close).map_or(rest.len(), |at| open + 1 + at + close.len()));
    }
    let mut at = open + 1;
    while at < rest.len() {
        match rest.as_bytes()[at] {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += first_length(&rest[at..]),
        }
    }
    Some(rest.len())
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

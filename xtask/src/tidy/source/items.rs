//! Functions and types of a source file, found in its bare code.

/// A function with a body.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of its name, from 1.
    pub(crate) line: usize,
    /// Lines from its name to its closing brace.
    pub(crate) lines: usize,
}

/// The functions with a body in bare `code`, those within others too.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, name) in named(code, "fn") {
        let Some(open) = body(&code[at..]).map(|open| at + open) else { continue };
        let close = open + matching(&code[open..]);
        let line = code[..at].matches('\n').count() + 1;
        found.push(Function { name: name.to_owned(), line, lines: code[at..close].matches('\n').count() + 1 });
    }
    found
}

/// The names of structs, enums, unions and traits that bare `code` declares, and of types that it renames outside of a block.
pub(crate) fn types(code: &str) -> Vec<&str> {
    let declared = ["struct", "enum", "union", "trait"].iter().flat_map(|word| named(code, word));
    let renamed = named(code, "type").filter(|(at, _)| {
        let line = code[..*at].rfind('\n').map_or(0, |newline| newline + 1);
        code[line..].starts_with("type") || code[line..].starts_with("pub")
    });
    declared.chain(renamed).map(|(_, name)| name).collect()
}

/// Where the keyword `word` stands before a name, with that name.
fn named<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.match_indices(word).filter_map(move |(at, _)| {
        let after = &code[at + word.len()..];
        let alone = !code[..at].ends_with(is_of_word) && after.starts_with(char::is_whitespace);
        let name = after.trim_start().split(|c| !is_of_word(c)).next()?;
        (alone && name.starts_with(|c: char| c.is_alphabetic() || c == '_')).then_some((at, name))
    })
}

pub(crate) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the body of the function begins whose `fn` the code starts with; nothing where it has none.
fn body(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Just behind the brace that closes the one which the code starts with.
pub(crate) fn matching(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + c.len_utf8();
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::super::bare;
    use super::*;

    #[test]
    fn functions_are_measured_from_name_to_closing_brace() {
        let text = "fn a(b: [u8; 2]) -> fn(u8) { // }\n '{'; \"{\"\n fn c() {}\n}\ntrait T { fn d();\n fn e()\n where Self: U { } }";
        let found = functions(&bare(text));
        let found: Vec<(&str, usize, usize)> = found.iter().map(|f| (&*f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a", 1, 4), ("c", 3, 1), ("e", 6, 2)]);
    }

    #[test]
    fn types_are_found_where_they_are_declared() {
        let text = "pub struct A;\nenum B { }\npub(crate) type C = u8;\nimpl T for A {\n type D = u8; }\nunion E {}\nlet structure = 1; // struct F";
        assert_eq!(types(&bare(text)), ["A", "B", "E", "C"]);
    }
}

//! Paths in bare code that lead to other modules of the same crate.

use super::items::is_of_word;

/// Paths that begin with `crate`, `self` or `super`, in `use` lines and elsewhere, each with its line.
pub(crate) fn used(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for word in ["crate", "self", "super"] {
        for (at, _) in code.match_indices(word) {
            let before = &code[..at];
            let alone = !before.ends_with(|c| is_of_word(c) || c == ':' || c == '$');
            if alone && code[at + word.len()..].trim_start().starts_with("::") {
                let line = before.matches('\n').count() + 1;
                let mut paths = Vec::new();
                tree(&code[at..], &[], &mut paths);
                found.extend(paths.into_iter().map(|(_, path)| (line, path)));
            }
        }
    }
    found.sort();
    found
}

/// The names that `use` lines outside of functions give, and the paths they stand for.
pub(crate) fn imported(code: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = &code[code[..at].rfind('\n').map_or(0, |newline| newline + 1)..at];
        let outside = line.is_empty() || line.starts_with("pub") || line.trim_end().ends_with([';', '}', '{']);
        if outside && !code[..at].ends_with(is_of_word) {
            tree(&code[at + "use ".len()..], &[], &mut found);
        }
    }
    found.retain(|(name, path)| name != "*" && name != "_" && !path.is_empty());
    found
}

/// Reads `a::b::{c, d as e}`; adds each name with its path, and returns how much it read.
fn tree(code: &str, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if code[at..].starts_with('{') {
            at += 1;
            while at < code.len() && !code[at..].starts_with('}') {
                let read = tree(&code[at..], &path, found);
                at += read;
                at += code[at..].len() - code[at..].trim_start_matches(|c: char| c.is_whitespace() || c == ',').len();
                if read == 0 && !code[at..].starts_with('}') {
                    return at;
                }
            }
            return (at + 1).min(code.len());
        }
        let length = code[at..].find(|c| !is_of_word(c)).unwrap_or(code.len() - at);
        if length == 0 {
            // `a::*`, or the `::<` of a generic.
            let star = code[at..].starts_with('*');
            found.push((if star { "*" } else { "_" }.to_owned(), path));
            return at + usize::from(star);
        }
        path.push(code[at..at + length].to_owned());
        at += length;
        if code[at..].starts_with("::") {
            at += 2;
            continue;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if name == "self" && path.len() > 1 {
            path.pop();
            name = path.last().cloned().unwrap_or_default();
        }
        if let Some(renamed) = code[at..].trim_start().strip_prefix("as ") {
            at = code.len() - renamed.len();
            let length = renamed.find(|c| !is_of_word(c)).unwrap_or(renamed.len());
            name = renamed[..length].to_owned();
            at += length;
        }
        found.push((name, path));
        return at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let code = "use crate::{a::{self, B}, c::*};\nfn f() { super::d::g::<u8>(self::h); other::crate_::x }\npub(crate) fn i() {}";
        let found: Vec<(usize, String)> = used(code).into_iter().map(|(line, path)| (line, path.join("::"))).collect();
        let expected = [(1, "crate::a"), (1, "crate::a::B"), (1, "crate::c"), (2, "self::h"), (2, "super::d::g")];
        assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn names_of_imports_are_found() {
        let found: Vec<String> = imported("pub(crate) use a::{B as C, d};\nuse e::*;\n  let x = y_use (z);\n")
            .into_iter()
            .map(|(name, path)| format!("{name}={}", path.join("::")))
            .collect();
        assert_eq!(found, ["C=a::B", "d=a::d"]);
    }
}

//! What can be read from PTX text: the entries with their parameters, the variables.

use std::ffi::c_void;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// Names, and the sizes of their parameters in bytes.
    pub(crate) entries: Vec<(String, Vec<usize>)>,
    /// Names and sizes in bytes.
    pub(crate) variables: Vec<(String, u64)>,
}

/// Reads an image, if it is PTX.
pub(crate) fn read(image: *const c_void) -> Option<Ptx> {
    // SAFETY: an image is at least four bytes long; only a text is read on, up to its end.
    let text = unsafe {
        let first = image.cast::<[u8; 4]>().read_unaligned();
        if !first.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
            return None;
        }
        std::ffi::CStr::from_ptr(image.cast()).to_str().ok()?
    };
    parse(text)
}

fn parse(text: &str) -> Option<Ptx> {
    if !text.contains(".version") {
        return None;
    }
    let mut ptx = Ptx::default();
    for rest in text.split(".entry").skip(1) {
        let name = word(rest);
        if !name.is_empty() {
            let list = rest[rest.find(&name)? + name.len()..].trim_start();
            let inside = list.strip_prefix('(').and_then(|l| l.split(')').next()).unwrap_or("");
            ptx.entries
                .push((name, inside.split(',').filter_map(size_of_declaration).map(|(_, s)| s as usize).collect()));
        }
    }
    for line in text.lines().map(str::trim).filter(|l| l.contains(".global ") || l.contains(".const ")) {
        let declares = !line.starts_with("ld") && !line.starts_with("st") && line.contains(';');
        ptx.variables.extend(size_of_declaration(line.split(['=', ';']).next()?).filter(|_| declares));
    }
    Some(ptx)
}

fn word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || "_$%".contains(*c)).collect()
}

/// Name and bytes of `.param .align 8 .b8 name[16]` or `.global .u32 name`.
fn size_of_declaration(text: &str) -> Option<(String, u64)> {
    let kinds = [("8", 1), ("16", 2), ("32", 4), ("64", 8)];
    let words: Vec<&str> = text.split_whitespace().collect();
    let element = words.iter().find_map(|w| {
        let kind = w.strip_prefix('.')?;
        let bits = kind.strip_prefix(['b', 'u', 's', 'f'])?;
        kinds.iter().find(|(b, _)| *b == bits).map(|(_, bytes)| *bytes)
    })?;
    let last = *words.last()?;
    let (name, count) = match last.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse::<u64>().ok()?),
        None => (last, 1),
    };
    Some((word(name), element * count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_parameters_and_variables_are_read() {
        let text = ".version 8.0\n.target sm_90\n.visible .global .align 4 .u32 answer = 42;\n.const .align 8 .b8 table[64];\n\
            .visible .entry add(\n .param .u64 a,\n .param .align 8 .b8 pair[16],\n .param .f32 c\n)\n{\n ld.global .u32 %r1, [x];\n ret;\n}\n.entry empty() { ret; }";
        let ptx = parse(text).unwrap();
        assert_eq!(ptx.entries, [("add".into(), vec![8, 16, 4]), ("empty".into(), vec![])]);
        assert_eq!(ptx.variables, [("answer".into(), 4), ("table".into(), 64)]);
        assert_eq!(parse("just some text"), None);
    }
}

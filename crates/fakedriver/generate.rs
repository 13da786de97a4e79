//! A part of the build scripts of the two libraries: turns a table into exported functions.
//!
//! A symbol is implemented if `src/api/` has a function of that name; its exported wrapper is typed by the table, so that an
//! implementation with other arguments does not compile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The lines of a table, in columns.
pub(crate) fn lines(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let rows = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    rows.map(|l| l.split('\t').map(str::to_owned).collect()).collect()
}

/// The arguments of a column: type and name.
pub(crate) fn arguments(column: &str) -> Vec<(String, String)> {
    let split = |text: &str| {
        let (kind, name) = text.rsplit_once(' ').expect("a type and a name");
        (kind.to_owned(), name.to_owned())
    };
    column.split(", ").filter(|a| !a.is_empty()).map(split).collect()
}

/// The types of `types.tsv` in Rust, and the sizes of those that are structures.
pub(crate) struct Types {
    pub(crate) rust: BTreeMap<String, String>,
    pub(crate) sizes: BTreeMap<String, usize>,
}

pub(crate) fn types(path: &Path) -> Types {
    let known = [
        ("char", "core::ffi::c_char"),
        ("int", "i32"),
        ("CUdevice", "i32"),
        ("CUdevice_v1", "i32"),
        ("float", "f32"),
        ("void", "core::ffi::c_void"),
    ];
    let mut rust: BTreeMap<String, String> = known.into_iter().map(|(c, r)| (c.to_owned(), r.to_owned())).collect();
    let mut sizes = BTreeMap::new();
    for line in lines(path) {
        let name = match (line[1].as_str(), line[2].as_str()) {
            ("int", "1") => "u8".to_owned(),
            ("int", "2") => "u16".to_owned(),
            ("int", "4") => "u32".to_owned(),
            ("int", "8") if line[0] == "size_t" => "usize".to_owned(),
            ("int", "8") | ("pointer", _) => "u64".to_owned(),
            ("float", _) => "f32".to_owned(),
            _ => {
                sizes.extend(line[2].parse().ok().map(|size: usize| (line[0].clone(), size)));
                format!("crate::abi::{}", line[0])
            }
        };
        rust.entry(line[0].clone()).or_insert(name);
    }
    Types { rust, sizes }
}

impl Types {
    pub(crate) fn of(&self, c: &str) -> String {
        let stars = c.chars().rev().take_while(|&ch| ch == '*').count();
        let base = c.trim_end_matches('*').trim();
        let (constant, base) = base.strip_prefix("const ").map_or((false, base), |b| (true, b));
        let inner = self.rust.get(base).unwrap_or_else(|| panic!("types.tsv has no {base}")).clone();
        (0..stars)
            .fold(inner, |t, depth| if depth == 0 && constant { format!("*const {t}") } else { format!("*mut {t}") })
    }

    /// Checks, in the generated code, that a structure is as large as the table says.
    pub(crate) fn assertions(&self, used: &[(String, String)], text: &mut String, seen: &mut Vec<String>) {
        for (kind, _) in used {
            let base = kind.trim_end_matches('*').trim().trim_start_matches("const ").to_owned();
            if let (Some(size), false) = (self.sizes.get(&base), seen.contains(&base)) {
                let _ = writeln!(text, "const _: () = assert!(size_of::<crate::abi::{base}>() == {size});");
                seen.push(base);
            }
        }
    }
}

/// The functions of `src/api/*.rs` that bear a symbol's name, with the file they are in.
pub(crate) fn implemented(folder: &Path, prefix: &str) -> BTreeMap<String, String> {
    let is_symbol =
        |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("src/api") {
        let path = entry.expect("src/api").path();
        let module = path.file_stem().expect("a file").to_string_lossy().into_owned();
        for line in std::fs::read_to_string(&path).expect("readable").lines() {
            if let Some(rest) = line.strip_prefix("pub(crate) fn ").filter(|r| is_symbol(r)) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(found.insert(name.clone(), module.clone()).is_none(), "src/api has {name} twice");
            }
        }
    }
    found
}

/// Where the crate, the tables and the output are; tells cargo what the output depends on, and the linker the library's name.
pub(crate) fn folders(soname: &str, tables: &[&str]) -> (PathBuf, PathBuf, PathBuf) {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let table_folder = here.join("../../tables");
    for table in tables {
        println!("cargo::rerun-if-changed={}", table_folder.join(table).display());
    }
    println!("cargo::rerun-if-changed={}", here.join("src/api").display());
    println!("cargo::rerun-if-changed={}", here.join("../fakedriver/generate.rs").display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The library's own references to its functions stay its own, whatever is preloaded; and it is never unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));
    (here, table_folder, out)
}

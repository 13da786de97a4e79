//! Generates the hooks from the tables.
//!
//! `tables/cuda.tsv` and `tables/nvml.tsv` say what exists, `tables/types.tsv` what the arguments are, and `hooks.tsv` beside
//! this file what is done about each symbol. Out come, for either library: a table of names, a typed accessor for every real
//! function we call, and one exported function for every symbol we hook.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// One exported function of the real library.
struct Symbol {
    name: String,
    /// The name given to cuGetProcAddress, the version from which it means this symbol, and its stream variant. CUDA only.
    lookup: Option<(String, u32, String)>,
    /// What the table says is to be done: CUDA's class or NVML's action.
    class: String,
    arguments: Vec<(String, String)>,
}

/// What `hooks.tsv` says about a symbol.
enum Plan {
    /// Hooked by this expression.
    Hook(String),
    /// Not hooked, but called by us.
    Call,
    /// Known, and left alone.
    Pass,
}

fn main() {
    // Our own functions are what we mean when we name them, even if the program or a tool has others of the same name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let tables = own.join("../../tables");
    let read = |path: &Path| {
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let kinds = kinds(&read(&tables.join("types.tsv")));
    let ours: BTreeSet<String> =
        ["src/cuda/types.rs", "src/nvml/types.rs"].iter().flat_map(|f| defined(&read(&own.join(f)))).collect();
    let mut plans = plans(&read(&own.join("hooks.tsv")));
    let types = Types { kinds, ours };

    let cuda = cuda_symbols(&read(&tables.join("cuda.tsv")));
    let nvml = nvml_symbols(&read(&tables.join("nvml.tsv")));
    for symbol in &nvml {
        if symbol.class == "deny" {
            plans.entry(symbol.name.clone()).or_insert(Plan::Hook("deny::setter()".into()));
        }
    }
    let known: BTreeSet<&str> = cuda.iter().chain(&nvml).map(|s| s.name.as_str()).collect();
    let unknown: Vec<&String> = plans.keys().filter(|n| !known.contains(n.as_str())).collect();
    assert!(unknown.is_empty(), "hooks.tsv names symbols the tables do not have: {unknown:?}");

    let cuda_code = library("cuda", "CUresult", &cuda, &plans, &types) + &lookups(&cuda);
    fs::write(out.join("cuda.rs"), cuda_code).expect("the output folder is writable");
    fs::write(out.join("nvml.rs"), library("nvml", "nvmlReturn_t", &nvml, &plans, &types))
        .expect("the output folder is writable");
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).map(|l| l.split('\t').collect())
}

fn kinds(text: &str) -> BTreeMap<String, (String, String)> {
    rows(text).map(|r| (r[0].into(), (r[1].into(), r[2].into()))).collect()
}

/// The names of the types a source file defines.
fn defined(text: &str) -> Vec<String> {
    let start =
        |l: &str| l.strip_prefix("pub(crate) struct ").or(l.strip_prefix("pub(crate) type ")).map(str::to_owned);
    text.lines()
        .filter_map(start)
        .map(|l| l.split([' ', '<', '=', ';', '(']).next().unwrap_or_default().to_owned())
        .collect()
}

fn plans(text: &str) -> BTreeMap<String, Plan> {
    let mut plans = BTreeMap::new();
    for row in rows(text) {
        for name in row[1].split_whitespace() {
            let plan = match row[0] {
                "pass" => Plan::Pass,
                "call" => Plan::Call,
                expression => Plan::Hook(expression.to_owned()),
            };
            assert!(plans.insert(name.to_owned(), plan).is_none(), "hooks.tsv names {name} twice");
        }
    }
    plans
}

fn cuda_symbols(text: &str) -> Vec<Symbol> {
    let symbol = |r: Vec<&str>| Symbol {
        name: r[0].into(),
        lookup: Some((r[1].into(), r[2].parse().expect("a version"), r[3].into())),
        class: r[4].into(),
        arguments: arguments(r.get(5).copied().unwrap_or_default()),
    };
    rows(text).map(symbol).collect()
}

fn nvml_symbols(text: &str) -> Vec<Symbol> {
    let symbol = |r: Vec<&str>| Symbol {
        name: r[0].into(),
        lookup: None,
        class: r[1].into(),
        arguments: arguments(r.get(3).copied().unwrap_or_default()),
    };
    rows(text).map(symbol).collect()
}

/// `const char* a, size_t b` as pairs of type and name.
fn arguments(text: &str) -> Vec<(String, String)> {
    let one = |a: &str| {
        let a = a.trim();
        let cut = a.rfind([' ', '*']).map_or(0, |i| i + 1);
        let name = a[cut..].to_owned();
        let name = if ["type", "fn", "in", "ref", "match", "move", "mod"].contains(&name.as_str()) {
            format!("r#{name}")
        } else {
            name
        };
        (a[..cut].trim().to_owned(), name)
    };
    text.split(',').filter(|a| !a.trim().is_empty()).map(one).collect()
}

struct Types {
    kinds: BTreeMap<String, (String, String)>,
    ours: BTreeSet<String>,
}

impl Types {
    /// A C type in Rust; `None` where it cannot be passed without knowing more (a struct by value).
    fn rust(&self, c: &str) -> Option<String> {
        let c = c.trim();
        if let Some(inner) = c.strip_suffix('*') {
            let inner = inner.trim();
            let (constant, inner) = match inner.strip_prefix("const ") {
                Some(rest) => (true, rest.trim()),
                None => (inner.ends_with("const"), inner.trim_end_matches("const").trim()),
            };
            let target =
                if inner == "void" { "c_void".into() } else { self.rust(inner).unwrap_or_else(|| "c_void".into()) };
            return Some(format!("*{} {target}", if constant { "const" } else { "mut" }));
        }
        let c = c.trim_start_matches("const ");
        if self.ours.contains(c) {
            return Some(c.to_owned());
        }
        let (kind, size) = self.kinds.get(c)?;
        match (kind.as_str(), size.as_str(), c) {
            (_, _, "size_t") => Some("usize".into()),
            (_, _, "char") => Some("c_char".into()),
            (_, _, "int") => Some("i32".into()),
            ("int", "1", _) => Some("u8".into()),
            ("int", "2", _) => Some("u16".into()),
            ("int", "4", _) => Some("u32".into()),
            ("int", "8", _) => Some("u64".into()),
            ("float", "4", _) => Some("f32".into()),
            ("pointer", ..) => Some("*mut c_void".into()),
            _ => None,
        }
    }
}

/// Names, accessors and hooks of one library.
fn library(which: &str, result: &str, symbols: &[Symbol], plans: &BTreeMap<String, Plan>, types: &Types) -> String {
    let mut code = names("NAMES", symbols.iter().map(|s| s.name.as_str()));
    let counts: Vec<usize> = symbols.iter().map(|s| s.arguments.len()).collect();
    writeln!(
        code,
        "/// How many arguments each takes.\npub(crate) static ARGUMENTS: [u8; {}] = {counts:?};\n",
        counts.len()
    )
    .expect("string");
    let mut indices = String::new();
    let mut real = String::new();
    let mut hooks = String::new();
    let mut addresses = String::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let name = &symbol.name;
        writeln!(indices, "    pub(crate) const {name}: usize = {index};").expect("string");
        let plan = plans.get(name).unwrap_or(&Plan::Pass);
        if let Plan::Hook(_) = plan {
            writeln!(addresses, "    super::export::{name} as *const (),").expect("string");
        } else {
            writeln!(addresses, "    core::ptr::null(),").expect("string");
        }
        if matches!(plan, Plan::Pass) {
            continue;
        }
        let typed: Vec<(String, &str)> = symbol
            .arguments
            .iter()
            .map(|(c, n)| {
                (
                    types.rust(c).unwrap_or_else(|| panic!("{name}: type {c} by value: define it in types.rs")),
                    n.as_str(),
                )
            })
            .collect();
        let kinds = typed.iter().map(|(t, _)| t.as_str()).collect::<Vec<_>>().join(", ");
        writeln!(
            real,
            "    #[inline(always)]\n    pub(crate) fn {name}() -> Option<unsafe extern \"C\" fn({kinds}) -> {result}> {{\n        \
             // SAFETY: the address is the real function's, whose type the table has; 0 is None.\n        \
             unsafe {{ transmute::<usize, Option<unsafe extern \"C\" fn({kinds}) -> {result}>>(crate::loader::{}.function(super::at::{name})) }}\n    }}",
            which.to_uppercase(),
        )
        .expect("string");
        if let Plan::Hook(expression) = plan {
            hooks.push_str(&hook(which, result, symbol, expression, &typed));
        }
    }
    write!(
        code,
        "/// The place of each symbol in the table.\npub(crate) mod at {{\n{indices}}}\n\n\
         /// The real functions we call.\npub(crate) mod real {{\n    use super::types::*;\n    use core::ffi::{{c_char, c_void}};\n    use core::mem::transmute;\n\n{real}}}\n\n\
         /// What the program gets instead of the real functions.\nmod export {{\n    use super::types::*;\n    use super::topics::*;\n    use core::ffi::{{c_char, c_void}};\n\n{hooks}}}\n\n\
         /// Our function for each symbol, or null.\nstatic EXPORTS: crate::names::Exports<{}> = crate::names::Exports([\n{}]);\n",
        symbols.len(),
        addresses.replace("super::", ""),
    )
    .expect("string");
    code
}

/// One exported function: finds the real one, and calls the hook with what it asked for and a way to go on.
fn hook(which: &str, result: &str, symbol: &Symbol, expression: &str, typed: &[(String, &str)]) -> String {
    let name = &symbol.name;
    let parameters = typed.iter().map(|(t, n)| format!("{n}: {t}")).collect::<Vec<_>>().join(", ");
    let passed = typed.iter().map(|(_, n)| *n).collect::<Vec<_>>().join(", ");
    let traced = typed
        .iter()
        .map(|(t, n)| if t == "f32" { format!("{n}.to_bits() as u64") } else { format!("{n} as u64") })
        .collect::<Vec<_>>()
        .join(", ");
    let per_thread = symbol.lookup.as_ref().is_some_and(|(_, _, stream)| stream != "-");
    let default = if which == "nvml" {
        String::new()
    } else if per_thread {
        let shadow: String = typed
            .iter()
            .filter(|(t, _)| t == "CUstream")
            .map(|(_, n)| format!("        let {n} = per_thread({n});\n"))
            .collect();
        format!("        const DEFAULT_STREAM: CUstream = PER_THREAD;\n{shadow}")
    } else {
        "        const DEFAULT_STREAM: CUstream = LEGACY;\n".into()
    };
    let (path, arguments) = expression.split_once('(').unwrap_or_else(|| panic!("hooks.tsv: {expression} is no call"));
    let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
    let arguments = if arguments.is_empty() { String::new() } else { format!("{arguments}, ") };
    let name_here = format!("super::NAMES.name(super::at::{name})");
    let body = format!(
        "let Some(real) = super::real::{name}() else {{ return super::absent() }};\n        \
         // SAFETY: the caller's own arguments, unchanged.\n        \
         let go = || unsafe {{ real({passed}) }};\n        \
         let hooked = || {{\n{default}            \
         // SAFETY: the arguments are the caller's, with the meaning the table gives them.\n            \
         unsafe {{ {path}({arguments}go) }}\n        }};\n        "
    );
    // Launches come by the million: for a trace that is off nothing is kept, not even arguments where a closure finds them. For all
    // others the code is not worth having twice.
    let body = if path.starts_with("launch::") {
        format!(
            "#[cold]\n        #[inline(never)]\n        unsafe fn traced({parameters}) -> {result} {{\n        {body}\
             crate::trace::around({name_here}, &[{traced}], hooked)\n        }}\n        \
             if crate::trace::on() {{\n            \
             // SAFETY: the caller's own arguments, unchanged.\n            \
             return unsafe {{ traced({passed}) }};\n        }}\n        {body}hooked()"
        )
    } else {
        format!(
            "{body}let status = hooked();\n        if crate::trace::on() {{\n            \
             crate::trace::call({name_here}, &[{traced}], status);\n        }}\n        status"
        )
    };
    format!(
        "    #[cfg_attr(not(test), unsafe(no_mangle))]\n    pub(super) unsafe extern \"C\" fn {name}({parameters}) -> {result} {{\n        {body}\n    }}\n\n"
    )
}

/// A table of names: one text, offsets into it, and a hash table of indices.
fn names<'a>(constant: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let size = (names.len() * 2).next_power_of_two();
    let mut text = String::new();
    let mut offsets = Vec::new();
    let mut buckets = vec![u16::MAX; size];
    for (index, name) in names.iter().enumerate() {
        offsets.push(u16::try_from(text.len()).expect("the names fit 64 KiB"));
        text.push_str(name);
        text.push_str("\\0");
        let mut at = hash(name.as_bytes()) as usize & (size - 1);
        while buckets[at] != u16::MAX {
            at = (at + 1) & (size - 1);
        }
        buckets[at] = u16::try_from(index).expect("fewer than 65535 names");
    }
    // Offsets were counted with "\\0" as two characters; in the constant it is one.
    let offsets: Vec<u16> = offsets.iter().enumerate().map(|(i, o)| o - u16::try_from(i).expect("few names")).collect();
    format!(
        "/// The names, for looking up and for telling.\npub(crate) static {constant}: crate::names::Names<{}, {size}> = crate::names::Names {{\n    \
         text: b\"{text}\",\n    offsets: {offsets:?},\n    buckets: {buckets:?},\n}};\n\n",
        names.len(),
    )
}

/// FNV-1a, the same as at run time.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// What cuGetProcAddress is asked for: name, version and stream variant to symbol.
fn lookups(symbols: &[Symbol]) -> String {
    let mut by_name: BTreeMap<&str, Vec<(u32, bool, usize)>> = BTreeMap::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let (lookup, since, stream) = symbol.lookup.as_ref().expect("CUDA symbols have one");
        by_name.entry(lookup).or_default().push((*since, stream != "-", index));
    }
    let newest = by_name.values().flatten().map(|r| r.0).max().unwrap_or_default();
    let mut rows = Vec::new();
    let mut starts = Vec::new();
    for list in by_name.values_mut() {
        list.sort_unstable();
        starts.push(u16::try_from(rows.len()).expect("fewer than 65535 rows"));
        rows.extend(list.iter().copied());
    }
    starts.push(u16::try_from(rows.len()).expect("fewer than 65535 rows"));
    let rows: Vec<String> =
        rows.iter().map(|(since, per_thread, symbol)| format!("({since}, {per_thread}, {symbol})")).collect();
    names("LOOKUPS", by_name.keys().copied())
        + &format!(
            "/// Where the rows of each lookup name start.\npub(crate) static STARTS: [u16; {}] = {starts:?};\n\
             /// Since which CUDA version, per-thread default stream or not, symbol.\npub(crate) static ROWS: [(u32, bool, u16); {}] = [{}];\n\
             /// The newest version the table knows.\npub(crate) const NEWEST: u32 = {newest};\n",
            starts.len(),
            rows.len(),
            rows.join(", "),
        )
}

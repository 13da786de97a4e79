//! Generates the exported functions from `tables/cuda.tsv`.
//!
//! A `_ptsz`/`_ptds` variant runs the plain function with the per-thread default stream. A symbol of the same name and
//! arguments as an implemented one of another version is the same function. What is not implemented answers
//! CUDA_ERROR_NOT_SUPPORTED, or CUDA_ERROR_INVALID_CONTEXT where it is a form for 32 bits of something newer.

#[path = "../fakedriver/generate.rs"]
mod generate;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use generate::{Types, arguments, folders, implemented, lines, types};

struct Row {
    symbol: String,
    lookup: String,
    since: String,
    stream: String,
    arguments: Vec<(String, String)>,
}

fn main() {
    let (here, tables, out) = folders("libcuda.so.1", &["cuda.tsv", "types.tsv", "cuda-errors.tsv"]);
    let rows: Vec<Row> = lines(&tables.join("cuda.tsv"))
        .into_iter()
        .map(|l| Row {
            arguments: arguments(&l[5]),
            symbol: l[0].clone(),
            lookup: l[1].clone(),
            since: l[2].clone(),
            stream: l[3].clone(),
        })
        .collect();
    let written = implemented(&here.join("src/api"), "cu");
    std::fs::write(out.join("exports.rs"), exports(&rows, &types(&tables.join("types.tsv")), &written))
        .expect("write exports.rs");
    std::fs::write(out.join("errors.rs"), errors(&tables.join("cuda-errors.tsv"))).expect("write errors.rs");
}

fn plain(symbol: &str) -> &str {
    symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds")
}

fn exports(rows: &[Row], types: &Types, written: &BTreeMap<String, String>) -> String {
    let (mut text, mut symbols, mut checked) = (String::new(), String::new(), Vec::new());
    for name in written.keys() {
        assert!(rows.iter().any(|r| r.symbol == *name), "src/api has {name}, tables/cuda.tsv has not");
    }
    for (index, row) in rows.iter().enumerate() {
        let symbol = &row.symbol;
        let own = Some(plain(symbol)).filter(|s| written.contains_key(*s));
        let same =
            rows.iter().filter(|r| r.lookup == row.lookup && r.arguments == row.arguments).map(|r| plain(&r.symbol));
        let target = own.or_else(|| same.into_iter().find(|s| written.contains_key(*s)));
        if let Some(target) = target {
            types.assertions(&row.arguments, &mut text, &mut checked);
            let module = &written[target];
            let typed: Vec<String> = row.arguments.iter().map(|(t, n)| format!("r#{n}: {}", types.of(t))).collect();
            let passed: Vec<String> = row.arguments.iter().map(|(_, n)| format!("r#{n}")).collect();
            let enter = if row.stream == "-" { "call" } else { "call_per_thread" };
            let _ = writeln!(
                text,
                "#[unsafe(no_mangle)] pub(crate) extern \"C\" fn {symbol}({}) -> u32 {{ crate::call::{enter}({index}, || crate::api::{module}::{target}({})) }}",
                typed.join(", "),
                passed.join(", ")
            );
        } else {
            // Functions for 32 bits know only contexts of their own kind.
            let old = |r: &Row| r.since.parse::<u32>().is_ok_and(|since| since < 3020);
            let outgrown = old(row) && rows.iter().any(|r| r.lookup == row.lookup && !old(r));
            let answer = if outgrown { "no_such_context" } else { "not_supported" };
            let _ = writeln!(
                text,
                "#[unsafe(no_mangle)] pub(crate) extern \"C\" fn {symbol}() -> u32 {{ crate::call::call({index}, crate::call::{answer}) }}"
            );
        }
        let per_thread = row.stream != "-";
        let _ = writeln!(
            symbols,
            "    Symbol {{ name: \"{symbol}\", lookup: \"{}\", since: {}, per_thread: {per_thread}, address: Address({symbol} as *const ()) }},",
            row.lookup, row.since,
        );
    }
    let count = rows.len();
    let _ =
        writeln!(text, "/// The table, in its order.\npub(crate) static SYMBOLS: [Symbol; {count}] = [\n{symbols}];");
    text
}

fn errors(path: &Path) -> String {
    let mut text = String::from(
        "/// Code, name and text of each error.\npub(crate) static ERRORS: &[(u32, &core::ffi::CStr, &core::ffi::CStr)] = &[\n",
    );
    for line in lines(path) {
        let _ = writeln!(text, "    ({}, c\"{}\", c\"{}\"),", line[0], line[1], line[2]);
    }
    text.push_str("];\n");
    text
}

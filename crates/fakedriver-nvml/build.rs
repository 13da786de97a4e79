//! Generates the exported functions from `tables/nvml.tsv`. What is not implemented answers NVML_ERROR_NOT_SUPPORTED.

#[path = "../fakedriver/generate.rs"]
mod generate;

use std::fmt::Write as _;

use generate::{arguments, folders, implemented, lines, types};

fn main() {
    let (here, tables, out) = folders("libnvidia-ml.so.1", &["nvml.tsv", "types.tsv"]);
    let types = types(&tables.join("types.tsv"));
    let written = implemented(&here.join("src/api"), "nvml");
    let (mut text, mut names, mut checked) = (String::new(), String::new(), Vec::new());
    let rows = lines(&tables.join("nvml.tsv"));
    for name in written.keys() {
        assert!(rows.iter().any(|r| r[0] == *name), "src/api has {name}, tables/nvml.tsv has not");
    }
    for (index, row) in rows.iter().enumerate() {
        let (symbol, arguments) = (&row[0], arguments(&row[3]));
        let _ = writeln!(names, "    \"{symbol}\",");
        // The one function that answers no code; written by hand.
        if symbol == "nvmlErrorString" {
            continue;
        }
        if let Some(module) = written.get(symbol) {
            types.assertions(&arguments, &mut text, &mut checked);
            let typed: Vec<String> = arguments.iter().map(|(t, n)| format!("r#{n}: {}", types.of(t))).collect();
            let passed: Vec<String> = arguments.iter().map(|(_, n)| format!("r#{n}")).collect();
            let _ = writeln!(
                text,
                "#[unsafe(no_mangle)] pub(crate) extern \"C\" fn {symbol}({}) -> u32 {{ crate::call::call({index}, || crate::api::{module}::{symbol}({})) }}",
                typed.join(", "),
                passed.join(", ")
            );
        } else {
            let _ = writeln!(
                text,
                "#[unsafe(no_mangle)] pub(crate) extern \"C\" fn {symbol}() -> u32 {{ crate::call::call({index}, crate::call::not_supported) }}"
            );
        }
    }
    let _ = writeln!(
        text,
        "/// The table's symbols, in its order.\npub(crate) static SYMBOLS: [&str; {}] = [\n{names}];",
        rows.len()
    );
    std::fs::write(out.join("exports.rs"), text).expect("write exports.rs");
}

//! `cargo xtask codegen`: all generated code, written anew.
//!
//! Each generator is a test beside what it generates: it fails when the committed code is stale, and with `UPDATE` set it writes it.

use crate::run;

/// Packages and their tests that generate.
const GENERATORS: &[(&str, &str)] = &[("divvy-proto", "generated")];

pub(crate) fn run() -> anyhow::Result<()> {
    for (package, test) in GENERATORS {
        run::run(run::command("cargo", &["test", "--quiet", "--package", package, "--test", test]).env("UPDATE", "1"))?;
    }
    Ok(())
}

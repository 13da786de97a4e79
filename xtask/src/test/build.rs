//! Everything that tests run, built by one call of cargo with one set of features.
//!
//! Cargo turns on the features that the chosen packages want. A call for one package therefore compiles Kubernetes' and Tokio's
//! libraries anew, with a few features less. Here all packages are always chosen.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::program::TestProgram;
use crate::run;

/// What cargo has built.
pub(crate) struct Built {
    pub(crate) programs: Vec<TestProgram>,
    /// The folder with this repository's own programs and libraries.
    pub(crate) folder: PathBuf,
    /// How many crates from outside were compiled: none on a machine that has built this before.
    pub(crate) compiled: usize,
}

/// Builds the test programs of all packages but `without`, all programs and examples, and libdivvy.so as it ships.
pub(crate) fn build(without: &[&str]) -> anyhow::Result<Built> {
    let mut words = vec!["build", "--workspace", "--lib", "--bins", "--tests", "--examples"];
    words.extend(["--quiet", "--message-format=json-render-diagnostics"]);
    words.extend(without.iter().flat_map(|package| ["--exclude", package]));
    let mut command = run::command("cargo", &words);
    let mut child = command.stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let said = child.stdout.take().context("no standard output")?;
    let (mut programs, mut compiled) = (BTreeSet::new(), 0);
    for line in BufReader::new(said).lines() {
        let message: Value = serde_json::from_str(&line?).context("what cargo build printed")?;
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let outside = message["package_id"].as_str().is_some_and(|id| id.starts_with("registry+"));
        compiled += usize::from(outside && message["fresh"] == false);
        programs.extend(program(&message));
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo build failed ({status})");
    run::run(&mut run::command("cargo", &["build", "--quiet", "--profile", "hook", "--package", "divvy-hook"]))?;
    let first: &TestProgram = programs.first().context("cargo built no test programs")?;
    // PROFILE/deps/PROGRAM
    let folder = first.executable.ancestors().nth(2).map(Path::to_path_buf).context("a program that lies nowhere")?;
    Ok(Built { programs: programs.into_iter().collect(), folder, compiled })
}

/// The test program that a message of cargo names.
fn program(message: &Value) -> Option<TestProgram> {
    if message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.strip_prefix(run::root()).ok()?.to_str()?.to_owned();
    let kinds = message["target"]["kind"].as_array()?;
    let is_file = kinds.iter().any(|kind| kind == "test" || kind == "bin");
    let target = if is_file { message["target"]["name"].as_str()?.to_owned() } else { "lib".to_owned() };
    Some(TestProgram { folder, target, executable })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_test_program_is_named_by_its_folder_and_its_target() {
        let manifest = run::root().join("crates/agent/Cargo.toml");
        let message = |kind: &str, name: &str, test: bool| {
            json!({"target": {"kind": [kind], "name": name}, "profile": {"test": test}, "executable": "/t/debug/deps/x-1",
                "manifest_path": manifest})
        };
        assert_eq!(program(&message("test", "gates", true)).unwrap().name(), "crates/agent gates");
        assert_eq!(program(&message("lib", "divvy_agent", true)).unwrap().name(), "crates/agent lib");
        assert_eq!(program(&message("bin", "divvy-agent", false)), None, "a program that ships");
    }
}

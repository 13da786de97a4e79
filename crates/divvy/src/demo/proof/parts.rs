//! What the enforcement needs besides this binary: the fake driver, libdivvy.so, divvy-agent and a program that uses the card. In a
//! checkout they are built from it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use divvy_service::Stop;

/// Where everything is.
pub(super) struct Parts {
    /// The folder with the fake driver's libraries.
    pub(super) driver: PathBuf,
    pub(super) library: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) tenant: PathBuf,
}

/// Builds what is not up to date, saying what; the driver and the program go into `folder`.
pub(super) fn build(folder: &Path, stop: &Stop, say: impl Fn(&str)) -> anyhow::Result<Parts> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = root.join("tests/gpu/c/tenant.c");
    ensure!(
        source.exists(),
        "its parts (fake driver, libdivvy.so, divvy-agent) are built from a checkout, and this binary has none; \
         run `cargo run -p divvy -- demo` in one"
    );
    say("the fake driver");
    divvy_fakedriver::install::install(folder).context("the fake driver does not build")?;
    if stop.is_requested() {
        bail!("stopped");
    }
    say("libdivvy.so");
    let built = divvy_fakedriver::install::built();
    let library = match &built {
        Some(folder) => folder.with_file_name("hook").join("libdivvy.so"),
        None => cargo(&root, &["-p", "divvy-hook", "--profile", "hook"], "/libdivvy.so\"")?,
    };
    if stop.is_requested() {
        bail!("stopped");
    }
    say("divvy-agent");
    let mut words = vec!["-p", "divvy-agent", "--bin", "divvy-agent"];
    if !cfg!(debug_assertions) {
        words.push("--release");
    }
    let agent = match &built {
        Some(folder) => folder.join("divvy-agent"),
        None => cargo(&root, &words, "/divvy-agent\"")?,
    };
    say("a program that uses the card");
    let tenant = folder.join("tenant");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
    let compiled = Command::new(&compiler)
        .args(["-std=gnu11", "-O1", "-o"])
        .arg(&tenant)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .with_context(|| format!("no C compiler ({})", compiler.display()))?;
    let said = String::from_utf8_lossy(&compiled.stderr);
    ensure!(compiled.status.success(), "{} does not compile: {said}", source.display());
    Ok(Parts { driver: folder.to_owned(), library, agent, tenant })
}

/// Has cargo build something, and finds what it made.
fn cargo(root: &Path, words: &[&str], end: &str) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--quiet", "--message-format=json"]).args(words).stdin(Stdio::null());
    // What cargo told us about our own package would make build scripts of dependencies run, and all above them compile, anew.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(&name);
        }
    }
    let built = command.output().context("cargo does not run")?;
    let (said, why) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
    ensure!(built.status.success(), "cargo build {} failed: {}", words.join(" "), why.trim());
    let at = said.find(end).with_context(|| format!("cargo built no {end}"))? + end.len() - 1;
    let start = said[..at].rfind('"').map_or(0, |quote| quote + 1);
    Ok(PathBuf::from(&said[start..at]))
}

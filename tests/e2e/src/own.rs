//! This repository's own programs and libraries, built when a test first asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, ensure};

use crate::image::Image;

/// The agent's program.
pub fn agent() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("divvy-agent", &[])?.join("divvy-agent")))
}

/// A device plugin that is not ours.
pub fn other_plugin() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("divvy-agent", &[])?.join("other-plugin")))
}

/// The control plane's program.
pub fn divvy() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("divvy", &[])?.join("divvy")))
}

/// The command line's program, `kubectl-divvy`.
pub fn kubectl_divvy() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("kubectl-divvy", &[])?.join("kubectl-divvy")))
}

/// libdivvy.so.
pub fn library() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("divvy-hook", &[])?.join("libdivvy.so")))
}

/// The control plane's image: the program and what its loader needs, for a user without rights.
pub fn divvy_image(program: &Path) -> anyhow::Result<Image> {
    Ok(Image::new().program("/divvy", program)?.entrypoint(["/divvy"]).user("65532:65532"))
}

/// The agent's image: the program with libdivvy.so beside it, and what a vendor's management library loads besides.
pub fn agent_image(program: &Path, library: &Path) -> anyhow::Result<Image> {
    let mut image = Image::new().program("/divvy-agent", program)?;
    // Vendors' libraries are linked against these, which newer programs no longer name.
    for name in ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"] {
        let places = ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib"];
        if let Some(found) = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists()) {
            image = image.file(&found.display().to_string(), &found);
        }
    }
    Ok(image
        .file("/usr/local/lib/divvy/libdivvy.so", library)
        .env("DIVVY_LIBRARY", "/usr/local/lib/divvy/libdivvy.so")
        .entrypoint(["/divvy-agent"]))
}

/// A folder with the fake driver's two libraries and its `fake-gpu` tool.
pub fn fake_driver() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || {
        let folder = artifacts()?.join("fake-driver");
        divvy_fakedriver::install::install(&folder)?;
        Ok(folder)
    })
}

/// A CUDA program that does what it is told on its standard input.
pub fn tenant() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, || Ok(build("divvy-fakedriver", &["--example", "tenant"])?.join("examples/tenant")))
}

fn once(
    built: &OnceLock<Result<PathBuf, String>>,
    build: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<PathBuf> {
    built.get_or_init(|| build().map_err(|e| format!("{e:#}"))).clone().map_err(anyhow::Error::msg)
}

/// Builds a package, if it is not built yet, and returns the folder its artifacts are in.
fn build(package: &str, flags: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(folder) = divvy_fakedriver::install::built() {
        return Ok(folder);
    }
    cargo_build(package, flags)?;
    artifacts()
}

/// Builds a package. Cargo does not hold its lock while tests run.
pub fn cargo_build(package: &str, flags: &[&str]) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--package", package]).args(flags).current_dir(&root);
    // What cargo tells a test about its own package. Build scripts of dependencies look at these names, too: left in, everything above
    // such a dependency is compiled again, here and at the next build outside.
    for (name, _) in std::env::vars_os() {
        let told =
            name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        if told {
            command.env_remove(&name);
        }
    }
    let status = command.status().with_context(|| format!("could not build {package}"))?;
    ensure!(status.success(), "could not build {package}");
    Ok(())
}

/// Where cargo puts what it builds.
fn artifacts() -> anyhow::Result<PathBuf> {
    // target/PROFILE/deps/TEST-HASH is this very program.
    let own = std::env::current_exe()?;
    own.ancestors().nth(2).map(PathBuf::from).context("a test that lies nowhere")
}

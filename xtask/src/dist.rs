//! `cargo xtask dist`: everything a cluster is given, made without a container engine.
//!
//! ```text
//! OUT/divvy-VERSION.oci.tar           the control plane's image, in the OCI layout
//! OUT/divvy-agent-VERSION.oci.tar     the agent's, with libdivvy.so in it
//! OUT/bin/kubectl-divvy               the command line, and the other names it goes by
//! OUT/divvy-VERSION.tgz               the Helm chart
//! OUT/divvy.yaml                      the same for kubectl apply
//! OUT/SHA256SUMS
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use divvy_e2e::image::{Packed, digest};
use divvy_e2e::own;
use divvy_e2e::programs::helm;

use crate::run;

/// What is built; package and program have one name.
const PROGRAMS: [&str; 3] = ["divvy", "divvy-agent", "kubectl-divvy"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to put everything
    #[arg(long, default_value = "target/dist")]
    out: PathBuf,
    /// Registry (and path) in the images' names
    #[arg(long, default_value = "")]
    registry: String,
    /// The images' tag; the version where it is not said
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// Cargo's profile for the programs (libdivvy.so has its own)
    #[arg(long, default_value = "release")]
    profile: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let profile = args.profile.as_str();
    let mut build = run::command("cargo", &["build", "--profile", profile]);
    for program in PROGRAMS {
        // The program alone: a package may have others, for tests.
        build.args(["--package", program, "--bin", program]);
    }
    run::run(&mut build)?;
    let hook = if profile == "release" { "hook" } else { profile };
    run::run(&mut run::command("cargo", &["build", "--profile", hook, "-p", "divvy-hook"]))?;
    let target = target()?;
    let folder = |profile: &str| target.join(if profile == "dev" { "debug" } else { profile });
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let bare = args.out.join("stripped");
    for program in PROGRAMS {
        strip(&folder(profile).join(program), &bare)?;
    }
    strip(&folder(hook).join("libdivvy.so"), &bare)?;

    let mut written = Vec::new();
    let images = [
        ("divvy", own::divvy_image(&bare.join("divvy"))?),
        ("divvy-agent", own::agent_image(&bare.join("divvy-agent"), &bare.join("libdivvy.so"))?),
    ];
    for (name, image) in images {
        let packed: Packed = image.pack()?;
        let slash = if args.registry.is_empty() { "" } else { "/" };
        let full = format!("{}{slash}{name}:{}", args.registry, args.tag);
        let file = args.out.join(format!("{name}-{}.oci.tar", args.tag));
        fs::write(&file, packed.archive(&full)?)?;
        println!("{full}  {}  {} MiB", digest(&packed.manifest), packed.layer.len() >> 20);
        written.push(file);
    }
    written.push(command_line(&bare, &args.out)?);
    fs::remove_dir_all(&bare)?;
    written.extend(chart(args)?);
    let line = |file: &PathBuf| -> anyhow::Result<String> {
        let name = file.strip_prefix(&args.out)?.display().to_string();
        Ok(format!("{}  {name}\n", digest(&fs::read(file)?).trim_start_matches("sha256:")))
    };
    let sums: String = written.iter().map(line).collect::<anyhow::Result<_>>()?;
    fs::write(args.out.join("SHA256SUMS"), &sums)?;
    print!("{sums}");
    Ok(())
}

/// A copy without debugging information, which is most of a program; names of functions stay, for whoever reads a panic.
fn strip(built: &Path, into: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(into)?;
    let name = built.file_name().context("a program without a name")?;
    run::run(std::process::Command::new("strip").arg("--strip-debug").arg("-o").arg(into.join(name)).arg(built))
}

/// The command line under all its names.
fn command_line(built: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let bin = out.join("bin");
    fs::create_dir_all(&bin)?;
    let program = bin.join("kubectl-divvy");
    fs::copy(built.join("kubectl-divvy"), &program)?;
    for name in ["kubectl-inspect-gpushare", "kubectl_complete-divvy"] {
        let link = bin.join(name);
        let _ = fs::remove_file(&link);
        symlink("kubectl-divvy", &link)?;
    }
    Ok(program)
}

/// The chart as one file, and rendered for `kubectl apply`.
fn chart(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let chart = run::root().join("charts/divvy");
    let words = [
        "package".to_owned(),
        chart.display().to_string(),
        format!("--app-version={}", args.tag),
        format!("--destination={}", args.out.display()),
    ];
    let packed = std::process::Command::new(helm()?).args(words).output()?;
    ensure!(packed.status.success(), "helm package: {}", String::from_utf8_lossy(&packed.stderr));
    let rendered = args.out.join("divvy.yaml");
    fs::copy(run::root().join("deploy/divvy.yaml"), &rendered)?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(vec![args.out.join(format!("divvy-{version}.tgz")), rendered])
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    // target/PROFILE/xtask is this very program.
    let own = std::env::current_exe()?;
    own.ancestors().nth(2).map(PathBuf::from).context("a program that lies nowhere")
}

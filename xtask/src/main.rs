//! Chores of the repository. `cargo xtask --help` lists them; each is one file here.

use clap::{Parser, Subcommand};

mod bench;
mod check;
mod cluster;
mod codegen;
mod dist;
mod fakedriver;
mod run;
mod test;
#[cfg(test)]
mod tidy;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the repository", disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Format, lint and test what your change can reach: minutes instead of the half hour of `test`
    Check(check::Args),
    /// Everything that decides green: format, lints, unit tests, laws, end-to-end
    Test(test::Args),
    /// Write all generated code anew (a test fails where it is stale)
    Codegen,
    /// A real Kubernetes on this machine
    #[command(subcommand)]
    Cluster(cluster::Chore),
    /// Measure something, side by side
    Bench(bench::Args),
    /// Images, command line and chart, ready to be carried elsewhere
    Dist(dist::Args),
    /// The fake NVIDIA driver in a directory, for programs to run on
    Fakedriver(fakedriver::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().chore {
        Chore::Check(args) => check::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Codegen => codegen::run(),
        Chore::Cluster(chore) => cluster::run(&chore),
        Chore::Dist(args) => dist::run(&args),
        Chore::Fakedriver(args) => fakedriver::run(&args),
    }
}

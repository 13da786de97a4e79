//! `cargo xtask bench NAME`: side by side, with and without, in one run.

use crate::run;

/// What can be measured.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Name {
    /// What libdivvy.so adds to single calls and to the start of a program
    Hook,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure
    name: Name,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.name {
        Name::Hook => run::run(&mut run::command("cargo", &["bench", "-p", "divvy-hook", "--bench", "cost"])),
    }
}

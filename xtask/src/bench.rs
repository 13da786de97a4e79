//! `cargo xtask bench NAME`: side by side, with and without, in one run.

use crate::run;

/// What can be measured.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Name {
    /// What libdivvy.so adds to single calls and to the start of a program
    Hook,
    /// Pods bound per second on a real API server: Divvy, kube-scheduler with Divvy's extender, kube-scheduler alone
    ControlPlane,
    /// Resident memory of the scheduler at 5,000 nodes and 50,000 pods
    ControlPlaneMemory,
    /// One pass of the accounting over 1,000 budgets and 10,000 running pods
    Budget,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure
    name: Name,
    /// Words for the benchmark itself
    #[arg(last = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bench = |what: &str| {
        let mut command =
            run::command("cargo", &["run", "--quiet", "--release", "--package", "divvy-bench", "--", what]);
        command.args(&args.words);
        run::run(&mut command)
    };
    match args.name {
        Name::ControlPlane => bench("binds"),
        Name::ControlPlaneMemory => bench("memory"),
        Name::Budget => run::run(&mut run::command("cargo", &["bench", "-p", "divvy-budget", "--bench", "pass"])),
        Name::Hook => run::run(&mut run::command("cargo", &["bench", "-p", "divvy-hook", "--bench", "cost"])),
    }
}

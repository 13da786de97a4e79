//! `cargo xtask bench NAME`: side by side, with and without, in one run.

mod dashboard;

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
    /// How fast pods are placed, and how long "cannot run, because" takes; then an instruction count, where valgrind is installed
    Placement,
    /// What the agent costs a node, and how fast it answers the kubelet
    Agent,
    /// How long the dashboard's first view takes in a real Chromium, at 24 and at 1,000 nodes; `-- PROGRAM` measures one that is built
    Dashboard,
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
        Name::Placement => placement(),
        Name::Dashboard => dashboard::run(&args.words),
        Name::Agent => run::run(&mut run::command("cargo", &["bench", "-p", "divvy-agent", "--bench", "node"])),
    }
}

/// The table of docs/reference/benchmarks.md; and what callgrind counts, which is the same on every machine that runs the same instructions.
fn placement() -> anyhow::Result<()> {
    run::run(&mut run::command("cargo", &["bench", "-p", "divvy-sim", "--bench", "placement"]))?;
    if !run::command("valgrind", &["--version"]).output().is_ok_and(|out| out.status.success()) {
        println!("\nvalgrind is not installed: no instruction count");
        return Ok(());
    }
    let bench = "target=$(cargo bench -p divvy-sim --bench placement --no-run --message-format=json 2>/dev/null \
                 | grep -o '\"executable\":\"[^\"]*placement-[^\"]*\"' | tail -1 | cut -d'\"' -f4) \
                 && valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=placement::measured \
                    \"$target\" --untimed 2000 2>&1 \
                 | awk '/Collected/ { printf \"\\n%d instructions per decision at 1000 nodes\\n\", $4 / 2000; found = 1 } \
                        END { if (!found) { print \"valgrind counted nothing\"; exit 1 } }'";
    run::run(&mut run::command("sh", &["-c", bench]))
}

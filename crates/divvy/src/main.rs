//! `divvy`: the control plane's services, and the tools around them, in one binary.

use clap::{Parser, Subcommand};

mod budget;
mod controller;
mod crds;
mod dashboard;
mod demo;
mod flags;
mod scheduler;
mod sim;
mod simnode;
mod webhook;

/// Where to begin.
const FIRST: &str = "\
Without a cluster or a GPU:
  divvy demo                          a simulated day, on a dashboard
  divvy demo --headless --for 60s     the same, as a summary
On a cluster: `helm install` (docs/guides/install.md), then `kubectl divvy doctor`.";

#[derive(Parser)]
#[command(name = "divvy", version, about = "Shares GPUs on Kubernetes", propagate_version = true, after_help = FIRST)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All services of the control plane in one process
    Controller(Box<controller::Args>),
    /// The scheduler, standalone and as an extender of kube-scheduler
    Scheduler(scheduler::Args),
    /// The admission webhook
    Webhook(webhook::Args),
    /// The dashboard, read-only, by Kubernetes token
    Dashboard(dashboard::Args),
    /// A simulated cluster in this process, with the real control plane: no Kubernetes, no GPU
    Demo(demo::Args),
    /// Budgets and quota: charges, balances, classes
    Budget(budget::Args),
    /// Print the custom resource definitions
    Crds,
    /// Replay the public trace, or your own CSV files, under any policy: no cluster needed
    Sim(sim::Args),
    /// Simulated GPU nodes on any API server, for trials and benchmarks
    Simnode(simnode::Args),
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Command::Controller(args) => flags::block_on(controller::run(*args)),
        Command::Scheduler(args) => flags::block_on(scheduler::run(args)),
        Command::Webhook(args) => flags::block_on(webhook::run(args)),
        Command::Dashboard(args) => flags::block_on(dashboard::run(args)),
        Command::Demo(args) => flags::block_on(demo::run(args)),
        Command::Budget(args) => flags::block_on(budget::run(args)),
        Command::Crds => crds::print(),
        Command::Sim(args) => sim::run(args),
        Command::Simnode(args) => flags::block_on(simnode::run(args)),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("divvy: {error:#}");
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Args as clap::CommandFactory>::command().debug_assert();
    }
}

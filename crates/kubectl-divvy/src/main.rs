//! `kubectl divvy`: what the cluster's GPUs are doing, why a pod waits, and what would change if.
//!
//! Every command that only looks reads a [`cluster::View`], made of a running cluster or of a file that `snapshot` wrote: the same
//! answers on a laptop. Decisions are the core's; nothing here places, refuses or counts on its own.

mod cluster;
mod command;
mod complete;
mod ending;
mod output;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cluster::Source;
use crate::ending::Ending;

/// What people read last.
const AFTER: &str = "\
Exit codes:
  0  done; the answer is yes
  1  the answer is no: it does not fit, it was refused, something is wrong
  2  the command or a file could not be understood
  3  there is no such pod, node or GPU
  4  the cluster does not answer, or does not allow it

Without a cluster:
  kubectl divvy snapshot > cluster.json
  kubectl divvy inspect --snapshot cluster.json
  kubectl divvy whatif --snapshot cluster.json -f pod.yaml";

#[derive(Parser)]
#[command(
    name = "kubectl-divvy",
    bin_name = "kubectl divvy",
    version,
    about = "What the cluster's GPUs are doing, why a pod waits, and what would change if",
    after_help = AFTER,
    propagate_version = true,
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    source: Source,
}

#[derive(Subcommand)]
enum Command {
    /// Nodes and cards: what is allocated, what is free, and to whom it went
    Inspect(command::inspect::Args),
    /// Why a pod waits: what stands in the way, the smallest change that would help, and when it would run
    Why(command::why::Args),
    /// How a pod was (or would be) placed: what every node said, score by score
    Explain(command::explain::Args),
    /// What would happen to pods that do not exist yet
    #[command(long_about = command::whatif::ABOUT)]
    Whatif(command::whatif::Args),
    /// Write the cluster's state into a file, for a colleague or a laptop
    #[command(long_about = command::snapshot::ABOUT)]
    Snapshot(command::snapshot::Args),
    /// Place the waiting pods of a snapshot, here, and print the plan
    Replay(command::replay::Args),
    /// Balances of GPU time: what is left, what is spent, and when it will be gone
    Budget(command::budget::Args),
    /// Limits on what namespaces hold at once
    Quota(command::quota::Args),
    /// Take a GPU out of service: what runs on it stays, nothing new comes
    Cordon(command::cordon::Args),
    /// Put a GPU back into service
    Uncordon(command::cordon::Args),
    /// Change what a running pod holds of its GPUs, without a restart
    #[command(long_about = command::resize::ABOUT)]
    Resize(command::resize::Args),
    /// Watch nodes, cards and pods live
    Top(command::top::Args),
    /// Look for what keeps GPU sharing from working, and say how to mend it
    #[command(long_about = command::doctor::ABOUT)]
    Doctor(command::doctor::Args),
    /// Print a completion script for a shell
    Completion(complete::Args),
}

fn main() -> std::process::ExitCode {
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    match complete::called_as(&words) {
        complete::Name::Divvy => {}
        // `kubectl inspect gpushare`, with its flags as its users know them.
        complete::Name::InspectGpushare => {
            words = complete::from_go(words);
            words.splice(0..1, ["kubectl-divvy".into(), "inspect".into(), "--gpushare".into()]);
        }
        complete::Name::Complete => return complete::candidates(&Args::command(), &words[1..]),
    }
    let args = Args::parse_from(words);
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    ending::exit(outcome)
}

async fn run(args: Args) -> anyhow::Result<Ending> {
    let source = &args.source;
    match args.command {
        Command::Inspect(args) => command::inspect::run(&args, source).await,
        Command::Why(args) => command::why::run(&args, source).await,
        Command::Explain(args) => command::explain::run(&args, source).await,
        Command::Whatif(args) => command::whatif::run(&args, source).await,
        Command::Snapshot(args) => command::snapshot::run(&args, source).await,
        Command::Replay(args) => command::replay::run(&args, source).await,
        Command::Budget(args) => command::budget::run(&args, source).await,
        Command::Quota(args) => command::quota::run(&args, source).await,
        Command::Cordon(args) => command::cordon::run(&args, source, true).await,
        Command::Uncordon(args) => command::cordon::run(&args, source, false).await,
        Command::Resize(args) => command::resize::run(&args, source).await,
        Command::Top(args) => command::top::run(&args, source).await,
        Command::Doctor(args) => command::doctor::run(&args, source).await,
        Command::Completion(args) => {
            complete::print(&args, &mut Args::command());
            Ok(Ending::Yes)
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

//! `divvy simnode`: nodes that exist only in the API server, with an inventory as an agent would write it.
//!
//! `create` makes them; `run` also plays their kubelets: it keeps them ready, says that pods bound to them run, and lets pods go that
//! are deleted. Everything Divvy's control plane does can be tried on them.

mod kubelet;
mod make;

use std::path::PathBuf;

use anyhow::Context;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// The kubeconfig to use; without it what kubectl would use
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Command {
    /// Make nodes and leave
    Create(make::Shape),
    /// Make nodes and play their kubelets until stopped
    Run(make::Shape),
    /// Play the kubelets of nodes made before until stopped
    Keep,
    /// Remove all simulated nodes
    Delete,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    divvy_service::telemetry::init();
    let client = divvy_cluster::client::connect(args.kubeconfig.as_deref()).await.context("could not connect")?;
    match args.command {
        Command::Create(shape) => make::create(&client, &shape).await,
        Command::Run(shape) => {
            make::create(&client, &shape).await?;
            kubelet::keep(client).await
        }
        Command::Keep => kubelet::keep(client).await,
        Command::Delete => make::delete(&client).await,
    }
}

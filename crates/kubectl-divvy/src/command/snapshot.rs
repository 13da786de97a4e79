//! `kubectl divvy snapshot`: the cluster's state into a file.

use std::path::PathBuf;

use anyhow::Context;

use crate::cluster::{Source, gather};
use crate::command::doctor::Facts;
use crate::ending::Ending;
use crate::output;

/// What a snapshot holds, and what it does not.
pub(crate) const ABOUT: &str = "\
Writes what the scheduler knows (nodes and their devices, pods and their grants, policy, quota, budgets, storage) into a file that every \
command that looks reads with --snapshot. Commands, environments and images of containers are not in it; names of pods, namespaces and \
nodes, and labels, are.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write; standard output where it is not said
    file: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let client = source.client().await?;
    let mut cluster = gather(&client).await?;
    cluster.facts = Facts::of_cluster(&client).await?;
    let text = format!("{}\n", serde_json::to_string(&cluster)?);
    match &args.file {
        Some(path) => std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?,
        None => output::show(&text)?,
    }
    Ok(Ending::Yes)
}

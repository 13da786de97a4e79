//! The privileged binary; everything it does is in the library beside it.

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "divvy-agent", version, about = "Turns a grant into a container that has exactly it")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run on a node: discover devices, answer the kubelet, hold containers to their grants
    Run(Box<divvy_agent::run::Args>),
    /// Hold tenants of a folder to their shares of a card's time, without Kubernetes
    Arbiter(Box<divvy_agent::arbiter::standalone::Args>),
    /// Watch over an arbiter's gates, and open them by fixed turns when it is gone
    Keeper(Box<divvy_agent::keeper::Args>),
    /// Stand between kubelet and container runtime and carry grants in there
    CriShim(Box<divvy_agent::shim::Args>),
    /// Print the devices of this machine as JSON, and what stands in the way of others
    Discover(Box<divvy_agent::device::Settings>),
}

fn main() -> anyhow::Result<()> {
    divvy_service::telemetry::init();
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Args::parse().task {
        Task::Run(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(divvy_agent::run::run(*args))
        }
        Task::Arbiter(args) => divvy_agent::arbiter::standalone::run(&args),
        Task::Keeper(args) => divvy_agent::keeper::run(&args),
        Task::CriShim(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(divvy_agent::shim::run(*args))
        }
        Task::Discover(settings) => divvy_agent::device::print(&settings),
    }
}

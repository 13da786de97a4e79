//! Benchmarks of the control plane on a real API server: every contender side by side, in one run. `cargo xtask bench` runs them.

#![expect(clippy::print_stdout, reason = "the table is the point")]

mod binds;
mod ground;
mod memory;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Pods bound per second
    Binds(binds::Args),
    /// Resident memory of the scheduler
    Memory(memory::Args),
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match Args::parse().what {
        What::Binds(args) => runtime.block_on(binds::run(args)),
        What::Memory(args) => runtime.block_on(memory::run(args)),
    }
}

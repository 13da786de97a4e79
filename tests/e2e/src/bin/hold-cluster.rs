//! Starts a cluster with a real node and holds it until it is killed: the victim of the test that says nothing remains.

use std::thread;

use divvy_e2e::{Cluster, Options};

fn main() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::with_node())?;
    println!("{}", cluster.folder().display());
    loop {
        thread::park();
    }
}

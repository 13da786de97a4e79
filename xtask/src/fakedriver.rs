//! `cargo xtask fakedriver DIR`: the fake driver where programs find it.

use std::path::PathBuf;

use anyhow::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where libcuda.so.1, libnvidia-ml.so.1 and the fake-gpu tool go
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    divvy_fakedriver::install::install(&args.dir)
        .with_context(|| format!("failed to install the fake driver in {}", args.dir.display()))?;
    let dir = args.dir.canonicalize()?;
    println!("LD_LIBRARY_PATH={} runs a program on it; {}/fake-gpu shows and breaks it", dir.display(), dir.display());
    Ok(())
}

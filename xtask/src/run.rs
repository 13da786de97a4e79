//! Running other programs: where the repository is, and one way to call a command that says what failed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    // xtask is always run through cargo, which sets this to xtask's own folder.
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).unwrap_or(own)
}

/// A command in the repository's root.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// Runs `command` to its end; a failure names the command line.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = format!("{command:?}").replace('"', "");
    let status = command.status().with_context(|| format!("could not start: {line}"))?;
    ensure!(status.success(), "failed ({status}): {line}");
    Ok(())
}

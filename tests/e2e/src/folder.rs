//! The folder a cluster lives in, and the sweeper that removes the cluster when its owner is gone.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::programs::cache;

/// A cluster's folder. When it is dropped, or its process dies in whatever way, all that belongs to it goes.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held while the owner lives, so that others can tell an abandoned folder.
    _lock: File,
    sweeper: Child,
}

const LOCK: &str = "owner.lock";

impl Folder {
    /// Makes the folder of the cluster `name`. Fails if a cluster of that name runs.
    pub fn create(name: &str) -> anyhow::Result<Self> {
        let all = all()?;
        fs::create_dir_all(&all)?;
        // One at a time: a folder whose owner has not locked it yet must not be taken for an abandoned one.
        let turn = File::create(all.with_extension("lock"))?;
        turn.lock()?;
        sweep_abandoned(&all)?;
        let path = all.join(name);
        if path.exists() {
            bail!("a cluster called {name} runs already; `cargo xtask cluster down {name}` ends it");
        }
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let lock = File::create(path.join(LOCK))?;
        lock.try_lock().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        fs::create_dir(path.join("log"))?;
        let sweeper = sweeper(&path)?;
        Ok(Self { path, _lock: lock, sweeper })
    }

    /// Notes the bridge that the sweeper has to remove.
    pub(crate) fn note_bridge(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.path.join("bridge"), name)?)
    }

    /// Notes a control group that the sweeper has to remove.
    pub(crate) fn note_control_group(&self, name: &str) -> anyhow::Result<()> {
        let mut file = File::options().create(true).append(true).open(self.path.join("cgroups"))?;
        Ok(writeln!(file, "{name}")?)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        // What could be done about a failure here is done at the next start, by `sweep_abandoned`.
        let _ = self.sweeper.wait();
    }
}

/// The folder of a cluster by name.
pub fn of(name: &str) -> anyhow::Result<PathBuf> {
    Ok(all()?.join(name))
}

/// The names of the clusters that run.
pub fn names() -> anyhow::Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(all()?) else { return Ok(Vec::new()) };
    let running = entries.flatten().filter(|entry| !abandoned(&entry.path()));
    let mut names: Vec<String> = running.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn all() -> anyhow::Result<PathBuf> {
    Ok(cache()?.join("clusters"))
}

/// Removes what a lost sweeper (a machine that went down) has left behind.
fn sweep_abandoned(all: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(all)?.flatten() {
        if abandoned(&entry.path()) {
            let mut sweeper = sweeper(&entry.path())?;
            drop(sweeper.stdin.take());
            let status = sweeper.wait()?;
            ensure!(status.success(), "could not remove {} ({status})", entry.path().display());
        }
    }
    Ok(())
}

/// Whether nobody holds the folder's lock. A folder without a lock is being made, or removed, this moment.
fn abandoned(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) && !folder.join("keep").exists()
}

/// Starts the sweeper in a session of its own, so that an interrupt from the terminal does not take it along.
fn sweeper(folder: &Path) -> anyhow::Result<Child> {
    Command::new("setsid")
        .args(["sh", "-c", include_str!("folder/sweep.sh"), "sweep.sh"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .context("could not start the sweeper")
}

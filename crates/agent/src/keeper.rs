//! The keeper: a small process beside the agent that outlives it and sees to it that no stream waits for ever.
//!
//! Tenants cannot open their own gates, for the gate page is read-only to them. When the arbiter's heartbeat stops (killed, stopped,
//! upgraded) with gates closed, somebody else has to: the keeper holds the same pages and gives every container fixed turns by its
//! request, which is no more and no less than it was granted. When the heartbeat is back it does nothing again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use divvy_shm::GateWriter;
use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::Controller;
use divvy_shm::place;

use crate::arbiter::groups;

mod turns;

/// The arbiter is taken to be gone when its heart has not beaten for so long.
const GONE_NS: u64 = 400_000_000;
/// Time between looks while it is there.
const LOOK: Duration = Duration::from_millis(50);
/// Time between looks for new containers.
const SEARCH_NS: u64 = 500_000_000;
/// Told to go, it stays at most so long beside an arbiter that lives.
const STAY_NS: u64 = 15_000_000_000;
/// Containers lie at most so deep in the folder.
const DEPTH: usize = 3;

/// What `divvy-agent keeper` needs to know.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder under which containers' pages are
    #[arg(long)]
    pub dir: PathBuf,
}

/// Keeps until the folder is gone, or until it is told to go.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let told = told_to_go()?;
    // Not in the agent's session, so that what ends the agent does not end us; where we lead one already, that is as well.
    let _ = rustix::process::setsid();
    // Nothing to be paged in when it matters, and small enough not to mind.
    let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE);
    let mut keeper = Keeper::default();
    let mut told_at = None;
    while args.dir.is_dir() {
        let now = monotonic_ns();
        let nap = keeper.look(&args.dir, now);
        if told.load(Ordering::Relaxed) && keeper.lets_go(now, *told_at.get_or_insert(now)) {
            break;
        }
        std::thread::sleep(nap);
    }
    Ok(())
}

/// Becomes true when somebody wants this process to end.
fn told_to_go() -> anyhow::Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signal = {
        let _inside = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(signal.recv());
        tell.store(true, Ordering::Relaxed);
    })?;
    Ok(told)
}

#[derive(Default)]
struct Keeper {
    gates: BTreeMap<PathBuf, GateWriter>,
    searched: Option<u64>,
    /// Since when each group of cards is ours, by its cards.
    ours: BTreeMap<Vec<String>, u64>,
}

impl Keeper {
    /// One look at everything; how long until the next.
    fn look(&mut self, dir: &Path, now: u64) -> Duration {
        if self.searched.is_none_or(|at| now.saturating_sub(at) >= SEARCH_NS) {
            self.search(dir);
            self.searched = Some(now);
        }
        let mut all_beat = true;
        for gate in self.gates.values() {
            gate.beat_keeper(now);
            all_beat &= now.saturating_sub(gate.arbiter_beat()) <= GONE_NS;
        }
        if all_beat {
            self.ours.clear();
            return LOOK;
        }
        let devices = |gate: &GateWriter| gate.config().1.devices.into_iter().map(|d| d.id).collect();
        let held = self.gates.values().map(|gate| (gate, devices(gate)));
        let mut nap = LOOK;
        let mut ours = BTreeMap::new();
        for group in groups::of(held) {
            let gone = group.members.iter().all(|gate| now.saturating_sub(gate.arbiter_beat()) > GONE_NS);
            if !gone {
                continue;
            }
            let since = self.ours.get(&group.devices).copied().unwrap_or(now);
            let weights: Vec<turns::Weight> = group.members.iter().map(|gate| weight(gate)).collect();
            let (open, until) = turns::at(&weights, now - since);
            for (gate, open) in group.members.iter().zip(open) {
                gate.take_control(Controller::Keeper);
                for device in 0..gate.devices() {
                    if gate.set_gate(device, open) && open {
                        gate.wake(device);
                    }
                }
            }
            nap = nap.min(Duration::from_nanos(until));
            ours.insert(group.devices, since);
        }
        self.ours = ours;
        nap
    }

    /// Told to go: may it? When Divvy is removed from a node, arbiter and keeper are told at once. The keeper stays until the arbiter is
    /// gone, and leaves every gate open, for nobody will open one again. An arbiter that stays keeps the gates.
    fn lets_go(&self, now: u64, told_at: u64) -> bool {
        let arbiter_lives = self.gates.values().any(|gate| now.saturating_sub(gate.arbiter_beat()) <= GONE_NS);
        if arbiter_lives {
            return now.saturating_sub(told_at) > STAY_NS;
        }
        for gate in self.gates.values() {
            for device in 0..gate.devices() {
                gate.set_gate(device, true);
                gate.wake(device);
            }
        }
        true
    }

    fn search(&mut self, dir: &Path) {
        let mut found = BTreeMap::new();
        visit(dir, DEPTH, &mut |place| {
            let known = self.gates.remove(place).filter(|gate| !gate.is_broken());
            if let Some(gate) = known.map(Ok).or_else(|| Some(GateWriter::open(place))) {
                match gate {
                    Ok(gate) => drop(found.insert(place.to_owned(), gate)),
                    Err(error) => tracing::debug!(%error, "not a gate, or not yet"),
                }
            }
        });
        self.gates = found;
    }
}

fn weight(gate: &GateWriter) -> turns::Weight {
    let (_, config) = gate.config();
    let gated = || config.devices.iter().filter(|d| d.gated);
    turns::Weight {
        request: gated().map(|d| d.share_request).max().unwrap_or(1000),
        limit: gated().map(|d| d.share_limit).min().unwrap_or(1000),
    }
}

/// Calls `found` with every folder under `dir` that holds a gate file.
fn visit(dir: &Path, depth: usize, found: &mut impl FnMut(&Path)) {
    // The folder to mount over in containers has an empty file of that name. In a container's folder there are no others.
    if std::fs::metadata(dir.join(place::GATE)).is_ok_and(|m| m.len() > 0) {
        return found(dir);
    }
    if depth == 0 {
        return;
    }
    let entries: io::Result<Vec<_>> = std::fs::read_dir(dir).and_then(Iterator::collect);
    for entry in entries.into_iter().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            visit(&entry.path(), depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests;

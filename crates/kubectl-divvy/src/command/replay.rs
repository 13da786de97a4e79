//! `kubectl divvy replay FILE`: the plan a scheduler would make of a snapshot, made here.

use std::path::PathBuf;

use divvy_core::{Engine, Plan, audit};
use serde::Serialize;

use crate::cluster::Source;
use crate::ending::Ending;
use crate::output::{BAD, GOOD, Table, paint};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The snapshot; a running cluster where none is named
    file: Option<PathBuf>,
    /// Place by this policy instead of the cluster's (frag, binpack, spread, ...)
    #[arg(long)]
    policy: Option<String>,
}

/// A plan and its audit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    plan: Plan,
    /// What the audit found wrong with it. Must be empty.
    violations: Vec<String>,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let mut source = source.clone();
    source.snapshot = args.file.clone().or(source.snapshot);
    let mut view = source.view().await?;
    if let Some(name) = &args.policy {
        super::whatif::choose(&mut view.policy.scheduling, name)?;
    }
    let plan = Engine::default().schedule(&mut view.snapshot.clone(), &view.policy.scheduling, view.now);
    let violations = audit(&view.snapshot, &plan).iter().map(ToString::to_string).collect();
    let replayed = Replayed { plan, violations };
    source.output.print(&replayed, |_| text(&replayed))?;
    Ok(if replayed.violations.is_empty() { Ending::Yes } else { Ending::No })
}

fn text(replayed: &Replayed) -> String {
    let Plan { binds, evictions, waits, reservations, proposals, .. } = &replayed.plan;
    let mut table = Table::new(["POD", "WHAT", "WHERE", "HOW, OR WHY NOT"]);
    for bind in binds {
        let devices = bind.grant.as_ref().map(super::explain::devices).unwrap_or_default();
        table.row([bind.key.to_string(), "bind".into(), bind.node.to_string(), devices]);
    }
    for eviction in evictions {
        let why = format!("makes room for {}", eviction.makes_room_for);
        table.row([eviction.key.to_string(), "evict".into(), eviction.node.to_string(), why]);
    }
    for kept in reservations {
        let devices: Vec<&str> = kept.devices.iter().map(|id| id.as_str()).collect();
        table.row([kept.key.to_string(), "reserve".into(), kept.node.to_string(), devices.join(", ")]);
    }
    for wait in waits {
        table.row([wait.key.to_string(), "wait".into(), "-".into(), wait.reason.to_string()]);
    }
    for proposal in proposals {
        let moves: Vec<String> = proposal.moves.iter().map(|m| format!("{} to {}", m.key, m.to)).collect();
        table.row([proposal.key.to_string(), "would fit".into(), proposal.node.to_string(), moves.join(", ")]);
    }
    let mut out = table.text();
    out.push_str(&format!("\n{} bound, {} evicted, {} wait. ", binds.len(), evictions.len(), waits.len()));
    if replayed.violations.is_empty() {
        out.push_str(&format!("{}\n", paint("The audit finds nothing wrong.", GOOD)));
    } else {
        out.push_str(&format!("{}\n", paint("The audit finds the plan wrong:", BAD)));
        for violation in &replayed.violations {
            out.push_str(&format!("  {violation}\n"));
        }
    }
    out
}

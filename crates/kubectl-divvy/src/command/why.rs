//! `kubectl divvy why POD`: what stands in the way.

use std::collections::BTreeMap;

use divvy_core::Engine;
use divvy_core::grant::Grant;
use divvy_core::id::NodeName;
use divvy_core::reason::{NodeReason, Reason};
use divvy_core::schedule::ask_all;
use divvy_core::snapshot::PodState;
use serde::Serialize;

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::{self, BAD, GOOD, QUIET, Table, WARN, paint};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as POD or NAMESPACE/POD
    pod: String,
}

/// Where a pod stands.
#[derive(Debug, Serialize)]
#[serde(tag = "standing", rename_all = "camelCase")]
enum Answer {
    /// It has a node.
    #[serde(rename_all = "camelCase")]
    Placed {
        pod: String,
        node: NodeName,
        since_seconds: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<Grant>,
        /// The node's agent will not have it.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// It would be placed at the scheduler's next look.
    #[serde(rename_all = "camelCase")]
    Fits { pod: String, node: NodeName, waiting_seconds: u64 },
    /// It waits.
    #[serde(rename_all = "camelCase")]
    Waits { pod: String, waiting_seconds: u64, because: String, reason: Reason, nodes: BTreeMap<NodeName, NodeReason> },
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let state = view.pod(source, &args.pod)?;
    let answer = answer(&view, state);
    source.output.print(&answer, |wide| text(&answer, wide))?;
    Ok(match answer {
        Answer::Placed { refused: None, .. } | Answer::Fits { .. } => Ending::Yes,
        Answer::Placed { .. } | Answer::Waits { .. } => Ending::No,
    })
}

fn answer(view: &View, state: &PodState) -> Answer {
    let pod = state.pod();
    let name = pod.key.to_string();
    if let Some(bound) = pod.bound() {
        let refused = view.snapshot.node(&bound.node).and_then(|n| n.node().inventory.refused.get(pod.uid.as_str()));
        return Answer::Placed {
            pod: name,
            node: bound.node.clone(),
            since_seconds: view.now.seconds_since(bound.since),
            grant: bound.grant.as_deref().cloned(),
            refused: refused.cloned(),
        };
    }
    let waiting_seconds = view.now.seconds_since(pod.created);
    let policy = &view.policy.scheduling;
    let Some(ix) = view.snapshot.find_pod(&pod.uid) else {
        let reason = Reason::NoNode(Default::default());
        return Answer::Waits {
            pod: name,
            waiting_seconds,
            because: reason.to_string(),
            reason,
            nodes: BTreeMap::new(),
        };
    };
    // The whole queue, not this pod alone: others may go first, and a gang goes as one.
    let plan = Engine::default().schedule(&mut view.snapshot.clone(), policy, view.now);
    if let Some(bind) = plan.binds.iter().find(|bind| bind.pod == pod.uid) {
        return Answer::Fits { pod: name, node: bind.node.clone(), waiting_seconds };
    }
    let waits = plan.waits.into_iter().find(|wait| wait.pod == pod.uid);
    let reason = waits.map_or(Reason::BehindOthers, |wait| wait.reason);
    let nodes = ask_all(&view.snapshot, policy, ix, view.now).unwrap_or_default();
    Answer::Waits {
        pod: name,
        waiting_seconds,
        because: reason.to_string(),
        reason,
        nodes: nodes.into_iter().filter_map(|(node, said)| Some((node, said.err()?))).collect(),
    }
}

fn text(answer: &Answer, wide: bool) -> String {
    match answer {
        Answer::Placed { pod, node, since_seconds, grant, refused } => {
            let since = output::duration(*since_seconds);
            let mut out = match refused {
                None => format!("{pod} {} on {node} since {since}.\n", paint("has its place", GOOD)),
                Some(why) => format!("{pod} was placed on {node}, and {}: {why}\n", paint("the node refuses it", BAD)),
            };
            if let Some(grant) = grant {
                out.push_str(&super::explain::holdings(grant));
            }
            out
        }
        Answer::Fits { pod, node, waiting_seconds } => format!(
            "{pod} waits since {}, and {} on {node} as things stand: the scheduler's next look should bind it.\n",
            output::duration(*waiting_seconds),
            paint("fits", GOOD)
        ),
        Answer::Waits { pod, waiting_seconds, because, nodes, .. } => {
            let since = output::duration(*waiting_seconds);
            let mut out = format!("{pod} {} since {since}: {because}\n", paint("waits", WARN));
            if wide && !nodes.is_empty() {
                let mut table = Table::new(["NODE", "WHAT IT SAYS"]);
                for (node, reason) in nodes {
                    table.row([node.to_string(), super::explain::sentence(node, reason)]);
                }
                out.push_str(&format!("\n{}", table.text()));
            } else if nodes.len() > 1 {
                out.push_str(&format!("{}\n", paint("(-o wide: what every node says)", QUIET)));
            }
            out
        }
    }
}

//! `kubectl divvy explain POD`: the decision, score by score.

use divvy_core::grant::Grant;
use divvy_core::id::NodeName;
use divvy_core::pod::State;
use divvy_core::reason::{Fold, NodeReason};
use divvy_core::schedule::ask_all;
use divvy_core::snapshot::PodState;
use serde::Serialize;

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::{Cell, GOOD, PLAIN, QUIET, Table, paint};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as POD or NAMESPACE/POD
    pod: String,
}

/// A decision taken apart.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    pod: String,
    /// The policy that decides for it.
    policy: String,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<NodeName>,
    /// Why it is not even tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_tried: Option<String>,
    nodes: Vec<Said>,
}

/// What one node says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    node: NodeName,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<Grant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refuses: Option<NodeReason>,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let state = view.pod(source, &args.pod)?;
    let explained = explain(&view, state);
    source.output.print(&explained, |wide| text(&explained, wide))?;
    Ok(Ending::Yes)
}

fn explain(view: &View, state: &PodState) -> Explained {
    let pod = state.pod();
    let on = pod.bound().map(|bound| bound.node.clone());
    // A pod that has its place is asked about as if it had none: its own room counts as free.
    let mut snapshot = view.snapshot.clone();
    let mut asks = pod.clone();
    asks.state = State::Waiting;
    snapshot.put_pod(asks);
    let policy = &view.policy.scheduling;
    let answers = match snapshot.find_pod(&pod.uid) {
        Some(ix) => ask_all(&snapshot, policy, ix, view.now),
        None => Ok(Default::default()),
    };
    let (answers, not_tried) = match answers {
        Ok(answers) => (answers, None),
        Err(reason) => (Default::default(), Some(reason.to_string())),
    };
    let mut nodes: Vec<Said> = answers
        .into_iter()
        .map(|(node, said)| match said {
            Ok(answer) => Said { node, score: Some(answer.score), grant: answer.grant, refuses: None },
            Err(reason) => Said { node, score: None, grant: None, refuses: Some(reason) },
        })
        .collect();
    nodes.sort_by(|a, b| {
        let score = |said: &Said| said.score.unwrap_or(f64::NEG_INFINITY);
        score(b).total_cmp(&score(a)).then_with(|| a.node.cmp(&b.node))
    });
    let chosen = policy.placement_of(pod).ok().flatten();
    let policy = match (&pod.ask, chosen) {
        (None, _) => "ordinary pod: least loaded".to_owned(),
        (Some(_), Some(placement)) => placement.name().to_owned(),
        (Some(_), None) => policy.placement.name().to_owned(),
    };
    Explained { pod: pod.key.to_string(), policy, on, not_tried, nodes }
}

fn text(explained: &Explained, wide: bool) -> String {
    let mut out = format!("{} is placed by policy {}", explained.pod, explained.policy);
    match &explained.on {
        Some(node) => {
            out.push_str(&format!(" and is on {node}. As nodes would answer now, its own room given back:\n\n"))
        }
        None => out.push_str(" and waits. As nodes answer now:\n\n"),
    }
    if let Some(why) = &explained.not_tried {
        return format!("{out}No node is asked: {why}\n");
    }
    let mut table = Table::new(["", "NODE", "SCORE", "WOULD GIVE, OR WHY NOT"]);
    for (i, said) in explained.nodes.iter().enumerate() {
        let mark = if explained.on.as_ref() == Some(&said.node) {
            "*"
        } else if explained.on.is_none() && i == 0 && said.score.is_some() {
            ">"
        } else {
            ""
        };
        let (text, style) = match (&said.grant, &said.refuses) {
            (Some(grant), _) => (devices(grant), PLAIN),
            (None, Some(reason)) => (sentence(&said.node, reason), QUIET),
            (None, None) => ("room".to_owned(), PLAIN),
        };
        if !wide && i >= 20 && mark.is_empty() {
            continue;
        }
        let score = said.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"));
        table.row([Cell(mark.into(), GOOD), Cell::from(&said.node), Cell::from(score), Cell(text, style)]);
    }
    out.push_str(&table.text());
    if !wide && explained.nodes.len() > 20 {
        out.push_str(&format!("... and {} more nodes (-o wide shows all)\n", explained.nodes.len() - 20));
    }
    out.push_str(&paint("More is better; scores compare within one policy only.\n", QUIET));
    out
}

/// The devices of a grant in one line.
pub(crate) fn devices(grant: &Grant) -> String {
    let slice = |s: &divvy_core::grant::Slice| {
        let what = if s.exclusive { "alone".into() } else { format!("{} + {}", s.share, s.memory) };
        format!("{} ({what})", s.device)
    };
    let container = |c: &divvy_core::grant::ContainerGrant| {
        let slices: Vec<String> = c.slices.iter().map(slice).collect();
        if grant.containers.len() > 1 { format!("{}: {}", c.name, slices.join(", ")) } else { slices.join(", ") }
    };
    grant.containers.iter().map(container).collect::<Vec<_>>().join("; ")
}

/// What a grant holds, a line for each slice.
pub(crate) fn holdings(grant: &Grant) -> String {
    let mut table = Table::new(["CONTAINER", "DEVICE", "SHARE", "UP TO", "MEMORY", "UP TO", "HELD BY"]);
    for container in &grant.containers {
        for s in &container.slices {
            let isolation = serde_json::to_value(s.isolation).ok().and_then(|v| v.as_str().map(str::to_owned));
            table.row([
                container.name.to_string(),
                s.device.to_string(),
                if s.exclusive { "alone".into() } else { s.share.to_string() },
                s.share_limit.to_string(),
                s.memory.to_string(),
                s.memory_limit.to_string(),
                s.partition.clone().or(isolation).unwrap_or_default(),
            ]);
        }
    }
    format!("\n{}", table.text())
}

/// What one node says, as a sentence.
pub(crate) fn sentence(node: &NodeName, reason: &NodeReason) -> String {
    let mut fold = Fold::default();
    fold.add(node, reason);
    fold.finish().groups.into_iter().next().map(|group| group.text).unwrap_or_default()
}

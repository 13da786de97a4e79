//! What happened to a cluster and what was decided, as lines of JSON: recorded once, replayed bit for bit.

use std::sync::Arc;

use divvy_core::grant::Grant;
use divvy_core::id::{NodeName, PodUid};
use divvy_core::node::Node;
use divvy_core::pod::Pod;
use divvy_core::snapshot::{Damaged, Record};
use divvy_core::time::Time;
use divvy_core::{Engine, Plan, Policy, Snapshot};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The cluster as it was when recording began.
    Snapshot(Box<Record>),
    /// The policy from here on.
    Policy(Box<Policy>),
    /// A node came or changed.
    Node(Box<Node>),
    /// A node went.
    NodeGone(NodeName),
    /// A pod came or changed.
    Pod(Box<Pod>),
    /// A pod went.
    PodGone(PodUid),
    /// It was decided what to do, and done.
    Decided(Box<Plan>),
}

/// A cluster that writes down what happens to it.
#[derive(Debug)]
pub struct Recorder {
    snapshot: Snapshot,
    engine: Engine,
    policy: Policy,
    text: String,
}

impl Recorder {
    /// Begins with this cluster.
    pub fn new(snapshot: Snapshot, policy: Policy) -> Recorder {
        let record = snapshot.record();
        // Recorded and restored, so that what follows starts from exactly what a replay starts from; what a snapshot records of itself is
        // whole.
        let snapshot = record.clone().restore().unwrap_or(snapshot);
        let mut recorder = Recorder { snapshot, engine: Engine::default(), policy, text: String::new() };
        recorder.write(&Line::Snapshot(Box::new(record)));
        let policy = recorder.policy.clone();
        recorder.write(&Line::Policy(Box::new(policy)));
        recorder
    }

    fn write(&mut self, line: &Line) {
        if let Ok(line) = serde_json::to_string(line) {
            self.text += &line;
            self.text.push('\n');
        }
    }

    /// Something happened.
    pub fn tell(&mut self, line: Line) -> Result<(), Damaged> {
        self.write(&line);
        apply(&mut self.snapshot, &mut self.policy, line)
    }

    /// Decides, and does what was decided.
    pub fn decide(&mut self, now: Time) -> Plan {
        let plan = decide(&mut self.snapshot, &mut self.engine, &self.policy, now);
        self.write(&Line::Decided(Box::new(plan.clone())));
        plan
    }

    /// Everything so far.
    pub fn finish(self) -> String {
        self.text
    }
}

fn decide(snapshot: &mut Snapshot, engine: &mut Engine, policy: &Policy, now: Time) -> Plan {
    let plan = engine.schedule(snapshot, policy, now);
    for eviction in &plan.evictions {
        snapshot.remove_pod(&eviction.pod);
    }
    for bind in &plan.binds {
        let grant: Option<Arc<Grant>> = bind.grant.clone().map(Arc::new);
        let placed = snapshot.place(&bind.pod, &bind.node, grant, now);
        debug_assert_eq!(placed, Ok(()));
    }
    plan
}

fn apply(snapshot: &mut Snapshot, policy: &mut Policy, line: Line) -> Result<(), Damaged> {
    match line {
        Line::Snapshot(record) => *snapshot = record.restore()?,
        Line::Policy(new) => *policy = *new,
        Line::Node(node) => snapshot.put_node(*node),
        Line::NodeGone(name) => snapshot.remove_node(&name),
        Line::Pod(pod) => snapshot.put_pod(*pod),
        Line::PodGone(uid) => snapshot.remove_pod(&uid),
        Line::Decided(_) => {}
    }
    Ok(())
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Decisions made again.
    pub decisions: usize,
    /// Pods bound in them.
    pub binds: usize,
}

/// Decides everything in a journal again. The error names the line that cannot be read, or the first decision that came out otherwise.
pub fn replay(text: &str) -> Result<Replayed, String> {
    let (mut snapshot, mut engine, mut policy) = (Snapshot::new(), Engine::default(), Policy::default());
    let mut found = Replayed { decisions: 0, binds: 0 };
    for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let at = number + 1;
        let line: Line = serde_json::from_str(text).map_err(|error| format!("line {at}: {error}"))?;
        if let Line::Decided(recorded) = &line {
            let plan = decide(&mut snapshot, &mut engine, &policy, recorded.at);
            let again =
                serde_json::to_string(&Line::Decided(Box::new(plan.clone()))).map_err(|e| format!("line {at}: {e}"))?;
            if again != text.trim_end() {
                return Err(format!(
                    "line {at}: another decision than the one recorded:\nrecorded {text}\nnow      {again}"
                ));
            }
            found.decisions += 1;
            found.binds += plan.binds.len();
        }
        apply(&mut snapshot, &mut policy, line).map_err(|damaged| format!("line {at}: {damaged}"))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster, trace};

    fn recorded() -> String {
        let nodes: Vec<_> = trace::nodes().into_iter().step_by(60).collect();
        let mut pods = cluster::Pods::on(&nodes);
        let mut recorder = Recorder::new(cluster::snapshot(&nodes), Policy::default());
        let mut uids = Vec::new();
        for (i, request) in trace::list("gpuspec33").unwrap().iter().step_by(30).enumerate() {
            let pod = pods.pod(&format!("p{i}"), request);
            uids.push(pod.uid.clone());
            recorder.tell(Line::Pod(Box::new(pod))).unwrap();
            if i % 5 == 4 {
                recorder.decide(Time::seconds(i as u64));
            }
            if i % 7 == 6 {
                recorder.tell(Line::PodGone(uids.remove(i % uids.len()))).unwrap();
            }
        }
        recorder.finish()
    }

    #[test]
    fn a_journal_is_replayed_bit_for_bit() {
        let text = recorded();
        let found = replay(&text).unwrap();
        assert!(found.decisions > 40 && found.binds > 80, "{found:?}");
        assert_eq!(text, recorded());
    }

    #[test]
    fn another_decision_is_noticed_and_named() {
        let text = recorded();
        let lines: Vec<&str> = text.lines().collect();
        let at =
            lines.iter().rposition(|line| line.contains("\"decided\"") && line.contains("\"node\":\"openb")).unwrap();
        let changed = lines[at].replacen("\"node\":\"openb", "\"node\":\"other", 1);
        let mut lines: Vec<&str> = lines;
        lines[at] = &changed;
        let error = replay(&lines.join("\n")).unwrap_err();
        assert!(error.starts_with(&format!("line {}:", at + 1)), "{error}");
        assert!(replay("{\"pod\":").unwrap_err().starts_with("line 1: "));
    }
}

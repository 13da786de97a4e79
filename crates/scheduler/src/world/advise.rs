//! Advice to another scheduler (kube-scheduler's extender protocol): which nodes, how good, and the bind itself. Nothing is changed
//! before the bind, except that a gang's places are kept once all of them were found. Pods are known from the API server alone: a question
//! names one of them by its uid.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::convert::PodSeen;
use divvy_core::device::{Device, DeviceKind};
use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::node::Node;
use divvy_core::pod::Pod;
use divvy_core::reason::{Fold, NodeReason, Obstacle};
use divvy_core::schedule::ask_some;
use divvy_core::snapshot::NodeIx;
use divvy_core::time::Time;

use super::World;
use super::entry::Stand;
use crate::extender::{Victims, Wanted};

/// What is said about a list of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// Nodes that will do, in the order in which they were asked about.
    pub fit: Vec<String>,
    /// Nodes that will not.
    pub refused: BTreeMap<String, Refused>,
}

/// Why a node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// In words.
    pub text: String,
    /// In kind.
    pub why: Why,
}

/// Kinds of refusal that the emulated systems have words of their own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The node is not known.
    Unknown,
    /// It has no device of the kind asked for.
    NoDevice,
    /// Its devices might do if somebody left.
    Full,
    /// Something else than its devices is short, and might not be if somebody left.
    Short,
    /// It never will.
    Never,
    /// The pod has a place on another node.
    Elsewhere,
}

impl Advice {
    /// None of these nodes, for this reason.
    fn none(nodes: &[String], text: &str, why: Why) -> Advice {
        let refused = nodes.iter().map(|node| (node.clone(), Refused { text: text.to_owned(), why })).collect();
        Advice { fit: Vec::new(), refused }
    }

    /// A pod that asks for no device may go anywhere, as far as we are concerned; one whose ask cannot be read, nowhere.
    pub fn of_no_device(pod: &Pod, nodes: Vec<String>) -> Advice {
        match pod.mistakes.is_empty() {
            true => Advice { fit: nodes, ..Advice::default() },
            false => Advice::none(&nodes, &pod.mistakes.join("; "), Why::Never),
        }
    }

    /// Only this one of the nodes that will do; the others are refused because the pod goes there.
    pub fn only(&mut self, best: &str, text: &str) {
        for node in std::mem::take(&mut self.fit) {
            if node == best {
                self.fit.push(node);
            } else {
                self.refused.insert(node, Refused { text: text.to_owned(), why: Why::Elsewhere });
            }
        }
    }
}

/// A node as the emulated systems' users inspect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its name.
    pub name: String,
    /// Its devices.
    pub devices: Vec<InspectedDevice>,
}

/// A device as the emulated systems' users inspect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedDevice {
    /// Its place.
    pub index: u32,
    /// Its memory in the node's units.
    pub total: u64,
    /// Who holds how much of it: namespace, name, units.
    pub pods: Vec<(String, String, u64)>,
}

/// What one node said, as a sentence.
pub(super) fn sentence(node: &NodeName, reason: &NodeReason) -> String {
    let mut fold = Fold::default();
    fold.add(node, reason);
    fold.finish().groups.into_iter().next().map(|group| group.text).unwrap_or_default()
}

/// What kind of refusal it is: could it be otherwise if pods left?
fn kind(reason: &NodeReason) -> Why {
    let full = |obstacle: &Obstacle| {
        use Obstacle::{HeldAlone, InUse, Memory, Partition, Share, Tasks};
        matches!(obstacle, Memory { .. } | Share { .. } | InUse { .. } | HeldAlone | Tasks { .. } | Partition { .. })
    };
    match reason {
        NodeReason::Devices(short) if short.fitting == 0 && short.obstacles.is_empty() => Why::NoDevice,
        NodeReason::Devices(short) if short.obstacles.iter().any(|(_, obstacle)| full(obstacle)) => Why::Full,
        NodeReason::Devices(_)
        | NodeReason::Unschedulable
        | NodeReason::NotReady
        | NodeReason::Taint { .. }
        | NodeReason::Affinity
        | NodeReason::Feature { .. }
        | NodeReason::NoDomain { .. } => Why::Never,
        _ => Why::Short,
    }
}

impl World {
    /// Did the API server tell us of this pod?
    pub fn knows(&self, uid: &PodUid) -> bool {
        self.snapshot.pod(uid).is_some()
    }

    /// Which of these nodes will do for a pod.
    pub fn filter(&mut self, uid: &PodUid, nodes: Vec<String>, wanted: Wanted, now: Time) -> Advice {
        let Some(state) = self.snapshot.pod(uid) else {
            return Advice::none(&nodes, "the pod is not known", Why::Never);
        };
        if state.pod().gang().is_some() && state.pod().bound().is_none() && !self.promise_gang(uid, now) {
            let reason = self.entries.get(uid).and_then(|e| e.due.as_ref().map(|d| d.reason.to_string()));
            let text = reason.unwrap_or_else(|| "its gang does not fit as a whole".into());
            return Advice::none(&nodes, &text, Why::Short);
        }
        if let Some(kept) = self.snapshot.pod(uid).and_then(|s| s.pod().bound()).map(|b| b.node.clone()) {
            let mut advice = Advice { fit: nodes, ..Advice::default() };
            advice.only(kept.as_str(), &format!("its place is kept on {kept}"));
            self.advice.put(uid, vec![(kept, 1.0)]);
            return advice;
        }
        let Some(ix) = self.snapshot.find_pod(uid) else {
            return Advice::none(&nodes, "the pod is not known", Why::Never);
        };
        let mut advice = Advice::default();
        let mut known: Vec<NodeIx> = Vec::with_capacity(nodes.len());
        for name in &nodes {
            match self.snapshot.find_node(&NodeName::from(name.as_str())) {
                Some(node) => known.push(node),
                None => {
                    let refused = Refused { text: "the node is not known".into(), why: Why::Unknown };
                    advice.refused.insert(name.clone(), refused);
                }
            }
        }
        if self.snapshot.is_worth_stale() {
            self.snapshot.reckon_worth();
        }
        let scheduling = &self.policy.scheduling;
        if wanted == Wanted::Best
            && let Some(spot) = self.engine.find_among(&self.snapshot, scheduling, ix, known.clone(), now)
            && let Some(best) = self.snapshot.node_at(spot.node).map(|state| state.node().name.clone())
        {
            let fit = vec![best.to_string()];
            self.advice.put(uid, vec![(best, 1.0)]);
            return Advice { fit, ..Advice::default() };
        }
        let answers = match ask_some(&self.snapshot, scheduling, ix, known, now) {
            Ok(answers) => answers,
            Err(reason) => return Advice::none(&nodes, &reason.to_string(), Why::Never),
        };
        let mut scores = Vec::with_capacity(answers.len());
        for (node, answer) in answers {
            let Some(state) = self.snapshot.node_at(node) else { continue };
            let name = &state.node().name;
            match answer {
                Ok(answer) => {
                    advice.fit.push(name.to_string());
                    scores.push((name.clone(), answer.score));
                }
                Err(reason) => {
                    let refused = Refused { text: sentence(name, &reason), why: kind(&reason) };
                    advice.refused.insert(name.to_string(), refused);
                }
            }
        }
        self.advice.put(uid, scores);
        advice
    }

    /// Those of these nodes that are not of this cluster.
    pub fn strangers(&self, mut nodes: Vec<String>) -> Vec<String> {
        nodes.retain(|name| self.snapshot.find_node(&NodeName::from(name.as_str())).is_none());
        nodes
    }

    /// Which of these nodes would be best for a pod, if these existed, too. It is tried out on a copy: neither the nodes nor the pod,
    /// which may be made up as well, are remembered.
    pub fn imagine(&self, seen: PodSeen, nodes: Vec<String>, templates: Vec<Node>, now: Time) -> Advice {
        if seen.pod.ask.is_none() {
            return Advice::of_no_device(&seen.pod, nodes);
        }
        let mut copy = self.snapshot.clone();
        for mut node in templates {
            self.keep_to_policy(&mut node);
            copy.put_node(node);
        }
        let uid = seen.pod.uid.clone();
        if copy.pod(&uid).is_none() {
            copy.put_pod(seen.pod);
        }
        let Some(ix) = copy.find_pod(&uid) else { return Advice::none(&nodes, "the pod is not known", Why::Never) };
        let known: Vec<NodeIx> =
            nodes.iter().filter_map(|name| copy.find_node(&NodeName::from(name.as_str()))).collect();
        let answers = match ask_some(&copy, &self.policy.scheduling, ix, known, now) {
            Ok(answers) => answers,
            Err(reason) => return Advice::none(&nodes, &reason.to_string(), Why::Never),
        };
        let (mut advice, mut best) = (Advice::default(), None::<(f64, String)>);
        for (node, answer) in answers {
            let Some(name) = copy.node_at(node).map(|state| state.node().name.clone()) else { continue };
            match answer {
                Ok(answer) if best.as_ref().is_none_or(|(score, _)| answer.score > *score) => {
                    best = Some((answer.score, name.to_string()));
                }
                Ok(_) => {}
                Err(reason) => {
                    let refused = Refused { text: sentence(&name, &reason), why: kind(&reason) };
                    advice.refused.insert(name.to_string(), refused);
                }
            }
        }
        if let Some((_, best)) = best {
            return Advice { fit: vec![best], ..Advice::default() };
        }
        for name in nodes.into_iter().filter(|name| copy.find_node(&NodeName::from(name.as_str())).is_none()) {
            advice.refused.insert(name, Refused { text: "the node cannot be read".into(), why: Why::Unknown });
        }
        advice
    }

    /// How good each of these nodes is for a pod that was asked about before, from 0 to `most`.
    pub fn prioritize(&self, uid: &PodUid, nodes: &[String], most: i64) -> Vec<i64> {
        let none = Vec::new();
        let scores: BTreeMap<&str, f64> =
            self.advice.get(uid).unwrap_or(&none).iter().map(|(node, score)| (node.as_str(), *score)).collect();
        let of = |node: &String| scores.get(node.as_str()).copied();
        let known: Vec<f64> = nodes.iter().filter_map(of).collect();
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let scaled = |score: f64| {
            if greatest > least { ((score - least) / (greatest - least) * most as f64).floor() as i64 } else { most }
        };
        nodes.iter().map(|node| of(node).map_or(0, scaled)).collect()
    }

    /// Was a pod asked about before?
    pub fn has_advice(&self, uid: &PodUid) -> bool {
        self.advice.get(uid).is_some()
    }

    /// The waiting pod of a name.
    pub fn find(&self, key: &PodKey) -> Option<PodUid> {
        self.entries.values().find(|entry| entry.target.pod == *key).map(|entry| entry.target.uid.clone())
    }

    /// On which of these nodes a pod fits once these victims are gone.
    pub fn preempt(&mut self, uid: &PodUid, nodes: Victims, now: Time) -> Victims {
        let Some(ix) = self.snapshot.find_pod(uid) else { return Vec::new() };
        let mut helps = Vec::new();
        for (name, victims) in nodes {
            let Some(node) = self.snapshot.find_node(&NodeName::from(name.as_str())) else { continue };
            let checkpoint = self.snapshot.checkpoint();
            for victim in &victims {
                self.snapshot.evict(victim);
            }
            let fits = ask_some(&self.snapshot, &self.policy.scheduling, ix, [node], now)
                .is_ok_and(|answers| answers.iter().any(|(_, answer)| answer.is_ok()));
            self.snapshot.rollback(checkpoint);
            if fits {
                helps.push((name, victims));
            }
        }
        helps
    }

    /// The best of the nodes a pod was told would do.
    pub fn best(&self, uid: &PodUid) -> Option<&NodeName> {
        let scores = self.advice.get(uid)?;
        // Of equals the first by name: this is asked by gpu-admission's users, whose nodes were sorted so.
        let better =
            |next: &(NodeName, f64), best: &(NodeName, f64)| next.1 > best.1 || (next.1 == best.1 && next.0 < best.0);
        let best = scores.iter().reduce(|best, next| if better(next, best) { next } else { best })?;
        Some(&best.0)
    }

    /// Begins to bind a pod where another scheduler wants it. The effect carries its grant; an error says why there is none.
    pub fn bind_for(&mut self, uid: &PodUid, node: &NodeName, now: Time) -> Result<(), String> {
        let Some(entry) = self.entries.get(uid) else {
            return Err("the pod is not known here, or is bound already".into());
        };
        if let Stand::Promised { .. } = entry.stand {
            let bound = self.snapshot.pod(uid).and_then(|s| s.pod().bound()).cloned();
            let Some(bound) = bound else { return Err("its place was lost".into()) };
            if bound.node != *node {
                return Err(format!("its place is kept on {}, not on {node}", bound.node));
            }
            self.fly(uid, node, bound.grant.as_deref(), Vec::new(), now);
            return Ok(());
        }
        if let Stand::Flying { .. } = entry.stand {
            return Err("its bind is under way".into());
        }
        let Some((pod, target)) = self.snapshot.find_pod(uid).zip(self.snapshot.find_node(node)) else {
            return Err("the pod or the node is not known".into());
        };
        self.counts.attempts += 1;
        let answers =
            ask_some(&self.snapshot, &self.policy.scheduling, pod, [target], now).map_err(|r| r.to_string())?;
        let Some((_, answer)) = answers.into_iter().next() else { return Err("the node is not known".into()) };
        let grant = answer.map_err(|reason| sentence(node, &reason))?.grant.map(std::sync::Arc::new);
        self.snapshot.place(uid, node, grant.clone(), now).map_err(|refusal| format!("{refusal:?}"))?;
        self.counts.placed += 1;
        self.awake.remove(uid);
        self.advice.forget(uid);
        self.fly(uid, node, grant.as_deref(), Vec::new(), now);
        Ok(())
    }

    /// The nodes' GPUs and who holds them, by name: those of all nodes that have any, or of the one that is named, whatever it has.
    pub fn inspect(&self, only: Option<&str>) -> Vec<Inspected> {
        let mut nodes = Vec::new();
        for (_, state) in self.snapshot.nodes() {
            let node = state.node();
            let wanted = only.map_or_else(|| state.has(DeviceKind::Gpu), |only| only == node.name.as_str());
            if !wanted {
                continue;
            }
            let unit = node.inventory.memory_unit.of(1).0.max(1);
            let gpus = node.inventory.devices.iter().enumerate().filter(|(_, d)| d.kind == DeviceKind::Gpu);
            let fresh =
                |d: &Device| InspectedDevice { index: d.index, total: d.bookable_memory().0 / unit, pods: Vec::new() };
            let mut devices: BTreeMap<usize, InspectedDevice> = gpus.map(|(place, d)| (place, fresh(d))).collect();
            let pods: BTreeSet<_> = state.pods().iter().copied().collect();
            for pod in pods.into_iter().filter_map(|ix| self.snapshot.pod_at(ix)) {
                for (device, charge) in pod.charges() {
                    if let Some(device) = devices.get_mut(&(*device as usize)) {
                        let key = &pod.pod().key;
                        device.pods.push((key.namespace.to_string(), key.name.to_string(), charge.memory.0 / unit));
                    }
                }
            }
            let mut devices: Vec<InspectedDevice> = devices.into_values().collect();
            devices.sort_by_key(|device| device.index);
            nodes.push(Inspected { name: node.name.to_string(), devices });
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }
}

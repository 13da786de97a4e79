//! Folding the answers of all nodes into one sentence.

use std::collections::BTreeMap;

use super::{DeviceShortfall, Folded, Group, NodeReason, Obstacle, kind_word};
use crate::model::id::NodeName;
use crate::model::units::{Bytes, Share};

/// Gathers node after node; like answers are counted together, and the one closest to fitting is kept as the example.
#[derive(Debug, Default)]
pub struct Fold {
    nodes: u32,
    groups: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    nodes: u32,
    example: NodeName,
    /// How close the example is to fitting; more is closer.
    closeness: u64,
    detail: String,
}

impl Fold {
    /// Adds one node's answer.
    pub fn add(&mut self, node: &NodeName, reason: &NodeReason) {
        self.nodes += 1;
        let (text, closeness) = describe(reason);
        let entry = self.groups.entry(text).or_insert_with(|| Entry {
            nodes: 0,
            example: node.clone(),
            closeness,
            detail: detail(reason),
        });
        entry.nodes += 1;
        if closeness > entry.closeness {
            (entry.example, entry.closeness, entry.detail) = (node.clone(), closeness, detail(reason));
        }
    }

    /// The folded answer, most frequent first.
    pub fn finish(self) -> Folded {
        let word = |nodes| if nodes == 1 { "has" } else { "have" };
        let mut groups: Vec<Group> = self
            .groups
            .into_iter()
            .map(|(text, entry)| {
                let text = text.replace("{have}", word(entry.nodes));
                let text = if entry.detail.is_empty() {
                    text
                } else {
                    format!("{text} ({}: {})", entry.example, entry.detail)
                };
                Group { nodes: entry.nodes, text, example: entry.example }
            })
            .collect();
        groups.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.text.cmp(&b.text)));
        Folded { nodes: self.nodes, groups }
    }
}

/// What a node said, without what is particular to it, and how close it is to fitting.
fn describe(reason: &NodeReason) -> (String, u64) {
    let text = match reason {
        NodeReason::Unschedulable => "cordoned".into(),
        NodeReason::NotReady => "not ready".into(),
        NodeReason::Taint { key, value } if value.is_empty() => format!("tainted {key}"),
        NodeReason::Taint { key, value } => format!("tainted {key}={value}"),
        NodeReason::Affinity => "not matching the node selector or affinity".into(),
        NodeReason::Short(shortage) => return (format!("short of {}", shortage.resource), shortage.free),
        NodeReason::TooManyPods => "running as many pods as they may".into(),
        NodeReason::Port { port } => format!("with host port {port} taken"),
        NodeReason::NotNear => "not near the pods wanted near".into(),
        NodeReason::TooNear => "near pods wanted apart".into(),
        NodeReason::Repelled => "near pods that want this one apart".into(),
        NodeReason::Uneven { topology_key } => format!("would spread unevenly over {topology_key}"),
        NodeReason::NoDomain { topology_key } => format!("without label {topology_key}"),
        NodeReason::Volume(volume) => format!("where {volume}"),
        NodeReason::Feature { name } => format!("without kubelet feature {name}"),
        NodeReason::Devices(shortfall) => return devices(shortfall),
        NodeReason::Reserved { holder } => format!("kept for {holder}, which waits longer"),
        NodeReason::Quota { text, .. } => format!("with room, but over {text}"),
        NodeReason::Pool { name: Some(name) } => format!("of pool {name}, which the quota does not name"),
        NodeReason::Pool { name: None } => "of no pool, which the quota wants".into(),
    };
    (text, 0)
}

fn detail(reason: &NodeReason) -> String {
    match reason {
        NodeReason::Short(s) if &*s.resource == "cpu" => {
            format!("wants {} CPU, {} free", Share(s.want as u32), Share(s.free as u32))
        }
        NodeReason::Short(s) if matches!(&*s.resource, "memory" | "ephemeral-storage") => {
            format!("wants {}, {} free", Bytes(s.want), Bytes(s.free))
        }
        NodeReason::Short(s) => format!("wants {}, {} free", s.want, s.free),
        NodeReason::Devices(shortfall) => match best(shortfall) {
            Some((id, obstacle)) if shortfall.say_which => {
                format!("container {}: {id} {obstacle}", shortfall.container)
            }
            Some((id, obstacle)) => format!("{id} {obstacle}"),
            None => String::new(),
        },
        _ => String::new(),
    }
}

/// The device that came closest: one that only lacks room before one that is ruled out.
fn best(shortfall: &DeviceShortfall) -> Option<&(crate::model::id::DeviceId, Obstacle)> {
    shortfall.obstacles.iter().rev().max_by_key(|(_, obstacle)| (rank(obstacle), room(obstacle)))
}

/// How far a device got before it failed: the order in which things are checked.
fn rank(obstacle: &Obstacle) -> u32 {
    match obstacle {
        Obstacle::Unknown => 0,
        Obstacle::Unhealthy { .. } => 1,
        Obstacle::Cordoned => 2,
        Obstacle::NotNamed => 3,
        Obstacle::Model | Obstacle::NotInQuota => 4,
        Obstacle::Isolation { .. } | Obstacle::CutUp | Obstacle::Profile { .. } => 5,
        Obstacle::HeldAlone => 6,
        Obstacle::InUse { .. } => 7,
        Obstacle::Partition { .. } => 8,
        Obstacle::Tasks { .. } => 9,
        Obstacle::Memory { .. } => 10,
        Obstacle::Share { .. } => 11,
        Obstacle::Reserved { .. } => 12,
        Obstacle::Quantity { .. } => 13,
        Obstacle::Groups | Obstacle::Place { .. } => 14,
    }
}

fn room(obstacle: &Obstacle) -> u64 {
    match obstacle {
        Obstacle::Memory { free, .. } => free.0,
        Obstacle::Share { free, .. } => u64::from(free.0),
        _ => 0,
    }
}

fn devices(shortfall: &DeviceShortfall) -> (String, u64) {
    let kind = kind_word(shortfall.kind);
    let DeviceShortfall { want, fitting, obstacles, .. } = shortfall;
    if obstacles.is_empty() && *fitting == 0 {
        return (format!("without a {kind}"), 0);
    }
    let Some((_, obstacle)) = best(shortfall) else {
        return (format!("with fewer than {want} {kind}s"), u64::from(*fitting));
    };
    let closeness = u64::from(rank(obstacle)) << 48 | room(obstacle).min((1 << 48) - 1);
    let text = match obstacle {
        Obstacle::Unknown | Obstacle::NotNamed => format!("without the {kind}s named"),
        Obstacle::Unhealthy { .. } => format!("with no healthy {kind}"),
        Obstacle::Cordoned => format!("with every suitable {kind} cordoned"),
        Obstacle::Model => format!("without a {kind} of the model wanted"),
        Obstacle::NotInQuota => format!("without a {kind} of a model that the quota names"),
        Obstacle::Isolation { .. } => format!("without a {kind} that can be isolated as wanted"),
        Obstacle::HeldAlone => format!("with every {kind} held alone"),
        Obstacle::InUse { .. } if *want == 1 => format!("without an idle {kind}"),
        Obstacle::InUse { .. } => format!("with fewer than {want} idle {kind}s"),
        Obstacle::CutUp => format!("with every {kind} cut into partitions"),
        Obstacle::Profile { want } => format!("without a {kind} that has {want} partitions"),
        Obstacle::Partition { want: None } => format!("without a free partition of the size on a {kind}"),
        Obstacle::Partition { want: Some(profile) } => format!("without a free {profile} partition on a {kind}"),
        Obstacle::Tasks { .. } => format!("with every {kind} shared by as many as may"),
        Obstacle::Memory { .. } if *want == 1 => format!("without a {kind} with enough free memory"),
        Obstacle::Memory { .. } => format!("with fewer than {want} {kind}s with enough free memory"),
        Obstacle::Share { .. } if *want == 1 => format!("without a {kind} with enough free share"),
        Obstacle::Share { .. } => format!("with fewer than {want} {kind}s with enough free share"),
        Obstacle::Reserved { .. } => format!("whose {kind}s are kept for a pod that waits longer"),
        Obstacle::Quantity { name, .. } => format!("without enough {kind}s that have the {name} wanted"),
        Obstacle::Groups => format!("with enough {kind}s, but not in the groups wanted"),
        Obstacle::Place { .. } => format!("with enough {kind}s, but not connected as wanted"),
    };
    (text, closeness)
}

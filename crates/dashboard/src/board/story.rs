//! One pod's story, from ask to grant to usage.

use std::collections::BTreeSet;

use divvy_core::id::PodKey;
use divvy_core::reason::Fold;
use divvy_core::schedule::ask_some;
use divvy_core::snapshot::PodState;

use super::Board;
use crate::show;
use crate::view::{Answer, Granted, GrantedSlice, Story};

impl Board {
    /// The story of a pod, also of one that ended not long ago.
    pub fn story(&self, key: &PodKey) -> Option<Story> {
        let Some(state) = self.names.get(key).and_then(|uid| self.snapshot.pod(uid)) else {
            return self.past.iter().rev().find(|(past, _)| past == key).map(|(_, story)| story.clone());
        };
        let pod = state.pod();
        let ask = pod.ask.as_deref()?;
        let note = self.notes.get(&pod.uid).cloned().unwrap_or_default();
        let running = match pod.bound() {
            None => "waiting",
            Some(bound) if bound.terminating => "leaving",
            Some(_) => "running",
        };
        Some(Story {
            pod: key.to_string(),
            uid: pod.uid.to_string(),
            state: running.to_owned(),
            dialect: show::word(ask.dialect),
            class: show::class(pod.class()).to_owned(),
            priority: pod.spec.priority,
            ask: show::containers(ask),
            wishes: show::wishes(ask).into_iter().collect(),
            chapters: note.chapters,
            grant: self.granted(state),
            usage: note.usage.into(),
            answers: if pod.bound().is_none() { self.answers(state) } else { Vec::new() },
            neighbours: self.neighbours(state),
        })
    }

    fn granted(&self, state: &PodState) -> Option<Granted> {
        let bound = state.pod().bound()?;
        let grant = bound.grant.as_deref()?;
        let node = self.snapshot.node(&bound.node)?.node();
        let mut slices = Vec::new();
        for container in &grant.containers {
            for slice in &container.slices {
                let device = node.inventory.devices.iter().find(|device| device.id == slice.device);
                slices.push(GrantedSlice {
                    container: container.name.to_string(),
                    device: slice.device.to_string(),
                    index: device.map(|device| device.index).unwrap_or_default(),
                    model: device.map(|device| device.model.to_string()).unwrap_or_default(),
                    card_memory: device.map(|device| device.bookable_memory().0 >> 20).unwrap_or_default(),
                    memory: slice.memory.0 >> 20,
                    memory_limit: slice.memory_limit.0 >> 20,
                    share: slice.share.0,
                    share_limit: slice.share_limit.0,
                });
            }
        }
        Some(Granted { node: bound.node.to_string(), at: grant.at, policy: grant.policy.clone(), slices })
    }

    /// What all nodes say to it, like answers together: the core is asked, as the scheduler would.
    fn answers(&self, state: &PodState) -> Vec<Answer> {
        let Some(ix) = self.snapshot.find_pod(&state.pod().uid) else { return Vec::new() };
        let nodes = self.snapshot.nodes().map(|(node, _)| node);
        let one = |text: String| vec![Answer { nodes: 0, text, example: String::new() }];
        let said = match ask_some(&self.snapshot, &self.policy.scheduling, ix, nodes, self.now) {
            Ok(said) => said,
            Err(reason) => return one(reason.to_string()),
        };
        let mut fold = Fold::default();
        let mut fitting = 0;
        for (node, answer) in said {
            match (answer, self.snapshot.node_at(node)) {
                (Ok(_), _) => fitting += 1,
                (Err(reason), Some(node)) => fold.add(&node.node().name, &reason),
                (Err(_), None) => {}
            }
        }
        let groups = fold.finish().groups.into_iter();
        let mut answers: Vec<Answer> =
            groups.map(|g| Answer { nodes: g.nodes, text: g.text, example: g.example.to_string() }).collect();
        if fitting > 0 {
            let text = "it would fit, alone".to_owned();
            answers.insert(0, Answer { nodes: fitting, text, example: String::new() });
        }
        answers
    }

    fn neighbours(&self, state: &PodState) -> Vec<String> {
        let Some(node) = state.on().and_then(|ix| self.snapshot.node_at(ix)) else { return Vec::new() };
        let mine: BTreeSet<u32> = state.charges().iter().map(|(index, _)| *index).collect();
        let others = node.pods().iter().filter_map(|ix| self.snapshot.pod_at(*ix));
        let near = others
            .filter(|other| other.pod().uid != state.pod().uid)
            .filter(|other| other.charges().iter().any(|(index, _)| mine.contains(index)));
        near.map(|other| other.pod().key.to_string()).collect()
    }
}

//! Pods come, change and go: what they hold, from when to when.

use divvy_core::ask::Class;
use divvy_core::budget::cost::{HeldDevice, held};
use divvy_core::budget::{End, Hold};
use divvy_core::id::PodUid;
use divvy_core::time::Time;

use super::Treasury;
use crate::facts::PodFacts;
use crate::news::NodeSeen;

impl Treasury {
    pub(super) fn pod(&mut self, facts: PodFacts, now: Time) {
        let uid = facts.uid.clone();
        if self.classing.get(&uid).is_some_and(|(class, _)| facts.class == Some(*class)) {
            self.classing.remove(&uid);
        }
        if self.pods.get(&uid) != Some(&facts) {
            self.pods.insert(uid.clone(), facts);
            self.note_pod(&uid, now);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &PodUid, now: Time) {
        self.stopping.remove(uid);
        self.classing.remove(uid);
        let Some(facts) = self.pods.remove(uid) else { return };
        let Some(accounting) = &mut self.accounting else { return };
        let Some(hold) = accounting.hold(uid).filter(|hold| hold.end.is_none()) else { return };
        let at = facts.finished.unwrap_or(now).max(hold.from());
        let namespace = hold.pod.namespace.clone();
        accounting.close(uid, End { at, evicted: facts.evicted });
        self.sheets.touch(&namespace, at, now);
    }

    pub(super) fn node(&mut self, node: NodeSeen, now: Time) {
        let name = node.name.clone();
        let fresh = self.nodes.get(&name).is_none_or(|known| known.inventory != node.inventory);
        self.journals.entry(name.clone()).or_default().begin(node.cut);
        self.nodes.insert(name.clone(), node);
        if fresh {
            let here = self.pods.values().filter(|facts| facts.node.as_ref() == Some(&name));
            let here: Vec<PodUid> = here.map(|facts| facts.uid.clone()).collect();
            here.iter().for_each(|uid| self.note_pod(uid, now));
        }
    }

    /// Takes in what a pod tells. Any number of times.
    pub(super) fn note_pod(&mut self, uid: &PodUid, now: Time) {
        let (Some(facts), Some(accounting)) = (self.pods.get(uid), &mut self.accounting) else { return };
        let (Some(from), Some(node)) = (facts.held_from(), facts.node.clone()) else { return };
        let before = accounting.hold(uid).map(|hold| (hold.spans.len(), hold.end, hold.lost));
        let inventory = self.nodes.get(&node);
        if let Some(node_seen) = inventory {
            let stages = stages(facts, from, node_seen);
            let known = accounting.hold(uid).is_some();
            for (index, (at, devices)) in stages.into_iter().enumerate() {
                if index == 0 && !known {
                    let mut hold = Hold::new(uid.clone(), facts.key.clone(), node.clone(), at, devices);
                    hold.by_choice = facts.wants == Some(Class::Opportunistic);
                    accounting.open(hold);
                } else if index > 0 {
                    let later = accounting.hold(uid).and_then(|h| h.spans.last()).is_none_or(|span| span.from <= at);
                    if later || !known {
                        accounting.change(uid, devices, at);
                    }
                }
            }
        }
        accounting.find(uid);
        if let (Some(finished), true) = (facts.finished, facts.over) {
            accounting.close(uid, End { at: finished.max(from), evicted: facts.evicted });
        }
        let after = accounting.hold(uid).map(|hold| (hold.spans.len(), hold.end, hold.lost));
        if before != after {
            let since = match (&before, accounting.hold(uid)) {
                (Some(_), Some(hold)) => hold.ended().or(hold.spans.last().map(|span| span.from)).unwrap_or(from),
                _ => from,
            };
            let namespace = facts.key.namespace.clone();
            let oldest = Time(now.0.saturating_sub(self.settings.late));
            self.sheets.found(&namespace, uid);
            self.sheets.touch(&namespace, since.max(oldest), now);
        }
    }
}

/// What a pod holds, stage by stage: while its init containers run, after them, and after each change of its grant.
fn stages(facts: &PodFacts, from: Time, node: &NodeSeen) -> Vec<(Time, Vec<HeldDevice>)> {
    let devices = |grant: usize, init_done: bool| held(&facts.grants[grant], &node.inventory, init_done);
    let done = facts.init_done;
    let mut stages = vec![(from, devices(0, done.is_some_and(|at| at <= from)))];
    let mut moments: Vec<(Time, usize)> =
        facts.grants.iter().enumerate().skip(1).map(|(i, g)| (Time(g.at), i)).collect();
    if let Some(at) = done.filter(|at| *at > from) {
        let current = moments.iter().filter(|(changed, _)| *changed <= at).map(|(_, i)| *i).max().unwrap_or(0);
        moments.push((at, current));
    }
    moments.sort_unstable();
    for (at, grant) in moments {
        stages.push((at.max(from), devices(grant, done.is_some_and(|d| d <= at))));
    }
    stages
}

//! Everything the dashboard knows: a fold over what changed in the cluster, with a version, so that a viewer can be told what is new.

mod draw;
mod story;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use divvy_api::convert::PodSeen;
use divvy_api::policy::ClusterPolicy;
use divvy_cluster::change::Change;
use divvy_core::id::{DeviceId, Namespace, NodeName, PodKey, PodUid};
use divvy_core::snapshot::Snapshot;
use divvy_core::time::Time;
use divvy_core::units::Bytes;

use crate::history::{History, totals};
use crate::show;
use crate::usage::Measured;
use crate::view::{Budget, Chapter, Demo, News, Story, Totals, Usage};

/// News remembered.
const NEWS: usize = 300;
/// Stories of pods that are gone.
const STORIES: usize = 500;
/// What a pod used, at so many moments.
const USAGE: usize = 240;

/// What a pod uses of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// The pod.
    pub pod: PodUid,
    /// Its node.
    pub node: NodeName,
    /// The card.
    pub device: DeviceId,
    /// Of the card's time, in thousandths.
    pub share: u32,
    /// Time spent waiting for the card, in thousandths.
    pub throttled: u32,
    /// Memory.
    pub memory: Bytes,
}

/// What is known of a pod besides what the core keeps.
#[derive(Clone, Debug, Default)]
struct Note {
    why: String,
    chapters: Vec<Chapter>,
    usage: VecDeque<Usage>,
}

/// Everything the dashboard knows.
#[derive(Debug, Default)]
pub struct Board {
    snapshot: Snapshot,
    policy: Arc<ClusterPolicy>,
    notes: BTreeMap<PodUid, Note>,
    names: BTreeMap<PodKey, PodUid>,
    spaces: BTreeSet<Namespace>,
    past: VecDeque<(PodKey, Story)>,
    problems: BTreeMap<NodeName, String>,
    used: BTreeMap<PodUid, Vec<Used>>,
    metered: bool,
    budgets: Vec<Budget>,
    news: VecDeque<News>,
    history: History,
    totals: Totals,
    demo: Option<Demo>,
    now: Time,
    version: u64,
    /// When nodes last changed, and which are gone.
    touched: BTreeMap<NodeName, u64>,
    gone: BTreeMap<NodeName, u64>,
    queue_at: u64,
    budgets_at: u64,
}

impl Board {
    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All namespaces; those whose pods ask for devices come first.
    pub fn namespaces(&self) -> Vec<String> {
        let mut all: Vec<&Namespace> = self.names.keys().map(|key| &key.namespace).collect();
        all.dedup();
        let asking: BTreeSet<&Namespace> = all.iter().copied().collect();
        all.extend(self.spaces.iter().filter(|space| !asking.contains(space)));
        all.into_iter().map(ToString::to_string).collect()
    }

    /// Something changed in the cluster.
    pub fn apply(&mut self, change: Change, now: Time) {
        self.version += 1;
        match change {
            Change::Pod(seen) => self.pod(*seen, now),
            Change::PodGone(uid) => self.pod_gone(&uid, now),
            Change::Node(node, problem) => {
                self.touch(&node.name.clone());
                self.gone.remove(&node.name);
                match problem {
                    Some(problem) => self.problems.insert(node.name.clone(), problem.to_string()),
                    None => self.problems.remove(&node.name),
                };
                self.snapshot.put_node(*node);
            }
            Change::NodeGone(name) => {
                self.snapshot.remove_node(&name);
                self.touched.remove(&name);
                self.gone.insert(name, self.version);
            }
            Change::Finished(pod) => drop(self.snapshot.finish(&pod)),
            Change::FinishedGone(uid) => self.snapshot.forget_finished(&uid),
            Change::Policy(_, Ok(policy)) => self.policy = policy,
            Change::Namespace(name, _) => drop(self.spaces.insert(name)),
            Change::NamespaceGone(name) => drop(self.spaces.remove(&name)),
            Change::Budget(_)
            | Change::BudgetGone(..)
            | Change::Storage(_)
            | Change::Quota(..)
            | Change::QuotaGone(..)
            | Change::Policy(_, Err(_))
            | Change::Complete(..) => {}
        }
    }

    fn touch(&mut self, node: &NodeName) {
        self.touched.insert(node.clone(), self.version);
    }

    fn pod(&mut self, seen: PodSeen, now: Time) {
        let pod = seen.pod;
        let uid = pod.uid.clone();
        if pod.ask.is_none() && self.snapshot.pod(&uid).is_none() {
            return;
        }
        let before = self.snapshot.pod(&uid).map(|state| state.pod().clone());
        let known = before.is_some();
        let was_bound = before.as_ref().is_some_and(|pod| pod.bound().is_some());
        let was_leaving = before.as_ref().and_then(|pod| pod.bound()).is_some_and(|bound| bound.terminating);
        let note = self.notes.entry(uid.clone()).or_default();
        let mut chapter = |at: Time, what: &str, text: String| {
            note.chapters.push(Chapter { at: at.0, what: what.to_owned(), text });
        };
        if !known && let Some(ask) = &pod.ask {
            let text = format!("{}, written for {}", show::ask(ask), show::word(ask.dialect));
            chapter(pod.created, "asked", text);
        }
        if let (None, Some(before)) = (pod.bound(), &before)
            && pod.class() != before.class()
        {
            chapter(now, "class", format!("is {} now", show::class(pod.class())));
        }
        if let Some(bound) = pod.bound() {
            if !was_bound {
                let waited = bound.since.seconds_since(pod.created);
                chapter(bound.since, "granted", format!("on {} after {}", bound.node, length(waited)));
            }
            if bound.terminating && !was_leaving {
                chapter(now, "leaving", "told to go".into());
            }
        }
        let why = seen.explained.map(|(_, message)| message).unwrap_or_default();
        if pod.bound().is_none() && !why.is_empty() && why != note.why {
            // The counts in the sentence change all the time; a chapter is for the first, and the last replaces it.
            match note.chapters.last_mut().filter(|last| last.what == "waits") {
                Some(last) => last.text.clone_from(&why),
                None => note.chapters.push(Chapter { at: now.0, what: "waits".into(), text: why.clone() }),
            }
        }
        note.why = why;
        let node = pod.bound().map(|bound| bound.node.clone());
        self.names.insert(pod.key.clone(), uid);
        self.snapshot.put_pod(pod);
        if let Some(node) = &node {
            self.touch(node);
        }
        if !was_bound {
            self.queue_at = self.version;
        }
    }

    fn pod_gone(&mut self, uid: &PodUid, now: Time) {
        let Some(pod) = self.snapshot.pod(uid).map(|state| state.pod().clone()) else { return };
        if let Some(note) = self.notes.get_mut(uid) {
            note.chapters.push(Chapter { at: now.0, what: "ended".into(), text: String::new() });
        }
        if let Some(mut story) = self.story(&pod.key) {
            story.state = "ended".into();
            if self.past.len() == STORIES {
                self.past.pop_front();
            }
            self.past.push_back((pod.key.clone(), story));
        }
        match pod.bound() {
            Some(bound) => self.touch(&bound.node),
            None => self.queue_at = self.version,
        }
        self.notes.remove(uid);
        self.used.remove(uid);
        if self.names.get(&pod.key) == Some(uid) {
            self.names.remove(&pod.key);
        }
        self.snapshot.remove_pod(uid);
    }

    /// What pods use now, all of them.
    pub fn set_used(&mut self, all: Vec<Used>, now: Time) {
        self.version += 1;
        self.metered = true;
        let mut by_pod: BTreeMap<PodUid, Vec<Used>> = BTreeMap::new();
        for used in all {
            by_pod.entry(used.pod.clone()).or_default().push(used);
        }
        let changed: Vec<NodeName> = by_pod
            .iter()
            .filter(|(uid, used)| self.used.get(*uid) != Some(used))
            .filter_map(|(_, used)| used.first().map(|used| used.node.clone()))
            .collect();
        changed.iter().for_each(|node| self.touch(node));
        for (uid, used) in &by_pod {
            let Some(note) = self.notes.get_mut(uid) else { continue };
            if note.usage.len() == USAGE {
                note.usage.pop_front();
            }
            note.usage.push_back(Usage {
                at: now.0,
                share: used.iter().map(|u| u.share).sum(),
                throttled: used.iter().map(|u| u.throttled).max().unwrap_or(0),
                memory: used.iter().map(|u| u.memory.0 >> 20).sum(),
            });
        }
        self.used = by_pod;
    }

    /// The same as agents tell it, who know pods by name; of pods that nobody else told of nothing is kept.
    pub fn set_measured(&mut self, all: &[Measured], now: Time) {
        let known = |measured: &Measured| {
            let pod = self.names.get(&measured.pod)?.clone();
            let Measured { node, device, share, throttled, memory, .. } = measured.clone();
            Some(Used { pod, node, device, share, throttled, memory })
        };
        let used = all.iter().filter_map(known).collect();
        self.set_used(used, now);
    }

    /// How budgets stand.
    pub fn set_budgets(&mut self, budgets: Vec<Budget>) {
        if self.budgets != budgets {
            self.version += 1;
            self.budgets_at = self.version;
            self.budgets = budgets;
        }
    }

    /// What the demo shows besides.
    pub fn set_demo(&mut self, demo: Demo) {
        self.version += 1;
        self.demo = Some(demo);
    }

    /// Something people should see.
    pub fn tell(&mut self, at: Time, kind: &str, about: String, text: String) {
        self.version += 1;
        if self.news.len() == NEWS {
            self.news.pop_front();
        }
        self.news.push_back(News { number: self.version, at: at.0, kind: kind.to_owned(), about, text });
    }

    /// Adds up, and remembers what it adds up to.
    pub fn tick(&mut self, now: Time) {
        self.version += 1;
        self.now = now;
        self.totals = totals(&self.snapshot, self.used.values().flatten(), self.metered, now);
        self.history.note(&self.totals, now);
    }
}

/// A length of time as people say it.
fn length(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests;

//! Sleepers, in lines of pods that get the same answers. The first of a line stands for all of it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use divvy_core::id::PodUid;
use divvy_core::pod::Pod;
use divvy_core::reason::Reason;
use divvy_core::time::Time;

/// Sleepers by shape.
#[derive(Clone, Debug, Default)]
pub struct Lines(HashMap<u64, Line>);

/// Sleepers of one shape, oldest first.
#[derive(Clone, Debug)]
pub struct Line {
    members: BTreeSet<(Time, PodUid)>,
    /// What the first of them was told.
    pub reason: Reason,
    /// What nodes said to it depended on each node alone. Where it did not, more has changed than the nodes that changed when what
    /// bound them together (a quota, a pod that keeps others off) is gone.
    pub local: bool,
}

impl Line {
    /// The one that stands for all.
    pub fn first(&self) -> Option<&PodUid> {
        self.members.first().map(|(_, uid)| uid)
    }
}

impl Lines {
    /// A pod was tried in vain.
    pub fn join(&mut self, shape: u64, created: Time, uid: &PodUid, reason: Reason, local: bool) {
        let empty = || Line { members: BTreeSet::new(), reason: reason.clone(), local };
        let line = self.0.entry(shape).or_insert_with(empty);
        line.reason = reason;
        line.local &= local;
        line.members.insert((created, uid.clone()));
    }

    /// A pod is woken, or gone.
    pub fn leave(&mut self, shape: u64, created: Time, uid: &PodUid) {
        if let Some(line) = self.0.get_mut(&shape) {
            line.members.remove(&(created, uid.clone()));
            if line.members.is_empty() {
                self.0.remove(&shape);
            }
        }
    }

    /// The first of a line was asked about every node, in vain.
    pub fn asked(&mut self, shape: u64, local: bool) {
        if let Some(line) = self.0.get_mut(&shape) {
            line.local = local;
        }
    }

    /// The line of a shape.
    pub fn get(&self, shape: u64) -> Option<&Line> {
        self.0.get(&shape)
    }

    /// All lines.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Line)> {
        self.0.iter().map(|(shape, line)| (*shape, line))
    }

    /// How many pods sleep.
    pub fn len(&self) -> usize {
        self.0.values().map(|line| line.members.len()).sum()
    }

    /// Does nobody sleep?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Pods of the same shape get the same answers from every node, and are worth the same.
pub(super) fn shape(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    pod.spec.hash(&mut hasher);
    pod.key.namespace.hash(&mut hasher);
    pod.labels.hash(&mut hasher);
    pod.class.hash(&mut hasher);
    pod.mistakes.hash(&mut hasher);
    if let Some(ask) = &pod.ask {
        serde_json::to_string(&**ask).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

//! Everything the scheduler knows, and what it wants done. No async, no clock: time is an argument.

mod adopt;
mod advise;
mod apply;
mod decide;
mod entry;
mod evict;
mod explain;
mod lines;
mod outcome;
mod ports;
mod promise;
mod resize;
mod scores;
mod share;
mod standing;
mod torn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use divvy_api::policy::ClusterPolicy;
use divvy_cluster::Effect;
use divvy_cluster::change::Kind;
use divvy_cluster::effect::Target;
use divvy_core::id::{GangKey, NodeName, PodUid};
use divvy_core::schedule::FairShare;
use divvy_core::snapshot::{NodeIx, Position, Snapshot};
use divvy_core::time::Time;
use divvy_core::{Engine, keys};

pub use advise::{Advice, Inspected, InspectedDevice, Refused, Why};
pub use entry::{Entry, Stand};
pub use evict::Evicting;
pub use lines::Lines;
pub use standing::{Standing, Sums};

/// Everything the scheduler knows.
#[derive(Clone, Debug)]
pub struct World {
    snapshot: Snapshot,
    engine: Engine,
    policy: Arc<ClusterPolicy>,
    /// Our own scheduler name; the policy knows its aliases.
    name: Arc<str>,
    /// Pods that wait, and those whose bind is under way.
    entries: HashMap<PodUid, Entry>,
    /// Those that wait and may be tried now.
    awake: BTreeSet<PodUid>,
    /// Those that wait and were tried in vain.
    lines: Lines,
    /// Pods that have to go.
    evicting: BTreeMap<PodUid, Evicting>,
    /// Gangs that are bound in part, and since when.
    torn: HashMap<GangKey, Time>,
    /// Pods that somebody bound without a grant, and what [`Entry::manifest`] is of those that wait.
    orphans: BTreeMap<PodUid, Option<Arc<serde_json::Value>>>,
    /// Pods for which somebody wishes other amounts than they have.
    wishes: BTreeMap<PodUid, resize::Wish>,
    /// Ports that users of an emulated system find on pods.
    ports: ports::Ports,
    /// What nodes last said to pods that another scheduler asks about.
    advice: scores::Scores,
    notes: HashMap<NodeName, NodeNotes>,
    /// Up to where changes of nodes were looked at for sleepers.
    looked: Position,
    /// Nodes that changed up to there and were not looked at yet.
    changed: Vec<NodeIx>,
    /// More changed than is known: everybody is looked at.
    everything: bool,
    /// Something changed that may matter to pods whose answer does not depend on one node alone.
    stirred: bool,
    /// Somebody may be made to leave who could not be before.
    loosened: bool,
    shared: share::Shared,
    /// What is noticed is done by us.
    leads: bool,
    complete: BTreeSet<Kind>,
    tracked: BTreeMap<Arc<str>, bool>,
    capacities: BTreeMap<String, divvy_core::volume::StorageCapacity>,
    effects: Vec<Effect>,
    looks: Vec<Target>,
    relist: bool,
    /// What was counted since it was last taken.
    pub counts: Counts,
}

/// What the scheduler remembers of a node besides what the snapshot does.
#[derive(Clone, Debug, Default)]
struct NodeNotes {
    /// The newest inventory seen.
    generation: u64,
    /// What was last said to be wrong with its inventory.
    problem: Option<String>,
    /// How many volumes it can attach.
    limits: BTreeMap<Arc<str>, u32>,
}

/// What is counted. The shell turns these into metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that were tried.
    pub attempts: u64,
    /// Pods that got a place.
    pub placed: u64,
    /// Pods that had to wait.
    pub waits: u64,
    /// Binds that succeeded.
    pub bound: u64,
    /// Binds that met a conflict.
    pub conflicts: u64,
    /// Binds that were refused.
    pub refused: u64,
    /// Pods that were evicted.
    pub evictions: u64,
    /// Plans that the audit threw away. Must stay zero.
    pub violations: u64,
    /// Pods bound by somebody else that were given a grant afterwards.
    pub adopted: u64,
    /// Pods woken because a change concerned them.
    pub woken: u64,
}

impl World {
    /// An empty cluster, to be placed by a scheduler of this name.
    pub fn new(name: &str) -> World {
        World {
            snapshot: Snapshot::new(),
            engine: Engine::default(),
            policy: Arc::default(),
            name: name.into(),
            entries: HashMap::new(),
            awake: BTreeSet::new(),
            lines: Lines::default(),
            evicting: BTreeMap::new(),
            torn: HashMap::new(),
            orphans: BTreeMap::new(),
            wishes: BTreeMap::new(),
            ports: ports::Ports::default(),
            advice: scores::Scores::default(),
            notes: HashMap::new(),
            looked: Snapshot::new().position(),
            changed: Vec::new(),
            everything: false,
            stirred: false,
            loosened: false,
            shared: share::Shared::default(),
            leads: false,
            complete: BTreeSet::new(),
            tracked: BTreeMap::new(),
            capacities: BTreeMap::new(),
            effects: Vec::new(),
            looks: Vec::new(),
            relist: false,
            counts: Counts::default(),
        }
    }

    /// What namespaces have used until now.
    pub fn used(&mut self, now: Time) -> FairShare {
        self.engine.used(&self.snapshot, &self.policy.scheduling, now).clone()
    }

    /// What the leader before us remembered of what namespaces have used.
    pub fn recall(&mut self, used: FairShare, now: Time) {
        self.engine.fair.recall(used, self.policy.scheduling.queue.half_life, now);
    }

    /// The cluster as known now.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<ClusterPolicy> {
        &self.policy
    }

    /// Has everything been told at least once?
    pub fn is_complete(&self) -> bool {
        self.complete.len() == Kind::ALL.len()
    }

    /// The pods that wait or are being bound.
    pub fn entries(&self) -> &HashMap<PodUid, Entry> {
        &self.entries
    }

    /// Is there anybody to try?
    pub fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// What is to be done, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Pods to look at: their last answer left doubts.
    pub fn take_looks(&mut self) -> Vec<Target> {
        std::mem::take(&mut self.looks)
    }

    /// Do pods and nodes have to be read anew, because the way of reading them changed?
    pub fn take_relist(&mut self) -> bool {
        std::mem::take(&mut self.relist)
    }

    /// Is it this scheduler's to place pods that name this one?
    pub fn is_ours(&self, scheduler: &str) -> bool {
        scheduler == &*self.name || (&*self.name == keys::SCHEDULER && self.policy.dialects.is_our_scheduler(scheduler))
    }

    /// The lead is ours now: whatever a follower noticed and did not do is to be done.
    pub fn take_lead(&mut self, now: Time) {
        self.effects.clear();
        self.looks.clear();
        self.evicting.clear();
        self.torn.clear();
        self.leads = true;
        let nodes: Vec<NodeName> = self.snapshot.nodes().map(|(_, state)| state.node().name.clone()).collect();
        for node in nodes {
            self.evict_named(&node, now);
        }
        self.wake_everyone();
    }

    /// Somebody else leads: nothing more is to be done by us. Binds under way end as they end, and the watch tells how.
    pub fn follow(&mut self) {
        self.effects.clear();
        self.looks.clear();
        self.evicting.clear();
        self.torn.clear();
        self.leads = false;
    }
}

#[cfg(test)]
mod tests;

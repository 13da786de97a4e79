//! The day: events in order of their time, and what the control plane makes of each.

mod events;
mod kubelet;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use divvy_cluster::change::Change;
use divvy_cluster::effect::Target;
use divvy_core::budget::What;
use divvy_core::id::{DeviceId, GangKey, NodeName, PodUid};
use divvy_core::time::Time;
use divvy_core::units::Bytes;
use serde_json::{Value, json};

use crate::accounts::Allowance;
use crate::control::ControlPlane;
use crate::fleet;
use crate::random::Random;
use crate::store::{Embedded, Refused};
use crate::teams::{Job, TEAMS};

/// How the day is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// The same seed gives the same day.
    pub seed: u64,
    /// When it begins.
    pub begin: Time,
}

impl Default for Options {
    fn default() -> Options {
        // Monday, 2 March 2026, six in the morning.
        Options { nodes: 24, seed: 7, begin: Time::seconds(1_772_431_200) }
    }
}

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

/// What came of the day so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pods submitted and let in, by the dialect they were written in.
    pub admitted: BTreeMap<String, u64>,
    /// Pods the webhook refused.
    pub refused: u64,
    /// The last of the refusals.
    pub last_refusal: Option<String>,
    /// Pods bound.
    pub bound: u64,
    /// Gangs that were bound as a whole.
    pub gangs: u64,
    /// Pods evicted for others.
    pub evicted: u64,
    /// Pods that ended well.
    pub finished: u64,
    /// Pods whose user gave up waiting.
    pub given_up: u64,
    /// Budgets that had nothing left to spend at some time of the day.
    pub out_of_budget: BTreeSet<String>,
    /// Cards that failed.
    pub failed_cards: u64,
    /// Pods lost with them.
    pub lost: u64,
    /// Devices that were promised beyond what they have, at any moment. Must stay zero.
    pub overcommitted: u64,
    /// Plans the audit threw away. Must stay zero.
    pub violations: u64,
}

/// A pod the simulation plays: which job it belongs to, and what its program does.
#[derive(Clone, Debug)]
struct Played {
    job: u64,
    template: usize,
    seconds: u64,
    running: bool,
    leaving: bool,
}

/// The day.
pub struct Simulation {
    options: Options,
    cluster: Embedded,
    control: ControlPlane,
    now: Time,
    random: Random,
    events: events::Agenda,
    jobs: BTreeMap<u64, Job>,
    pods: BTreeMap<PodUid, Played>,
    usage: usage::Usage,
    summary: Summary,
    heard: Vec<Change>,
    gangs: BTreeSet<GangKey>,
}

impl Simulation {
    /// The cluster at the beginning of its day: nodes, and nobody on them.
    pub fn new(options: Options) -> Simulation {
        let cluster = Embedded::default();
        {
            let mut store = cluster.lock();
            store.set_time(options.begin);
            fleet::nodes(options.nodes).into_iter().for_each(|node| store.put_node(node));
            TEAMS.iter().for_each(|team| store.ensure_namespace(team.namespace, json!({})));
            store.complete();
        }
        let mut control = ControlPlane::new(cluster.clone(), options.begin);
        control.take_lead(options.begin);
        for team in TEAMS {
            if let Some(hours) = team.gpu_hours {
                let hours = (hours * options.nodes as i64 / 24).max(1);
                control.accounts_mut().allow(Allowance { namespace: team.namespace, hours });
            }
        }
        let mut simulation = Simulation {
            options,
            control,
            cluster,
            now: options.begin,
            random: Random::new(options.seed),
            events: events::Agenda::default(),
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            usage: usage::Usage::default(),
            summary: Summary::default(),
            heard: Vec::new(),
            gangs: BTreeSet::new(),
        };
        simulation.settle();
        simulation.plan_the_day();
        simulation
    }

    /// The time in the simulation.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The store, for those who submit manifests of their own.
    pub fn cluster(&self) -> &Embedded {
        &self.cluster
    }

    /// The control plane.
    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    /// What came of the day so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What changed since this was last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.heard)
    }

    /// What pods use now, card by card.
    pub fn used(&self) -> Vec<Used> {
        self.usage.all()
    }

    /// Lets time pass until `to`.
    pub fn advance(&mut self, to: Time) {
        while let Some((at, event)) = self.events.next_until(to) {
            self.now = self.now.max(at);
            self.cluster.lock().set_time(self.now);
            self.happen(event);
            self.settle();
        }
        self.now = self.now.max(to);
        self.cluster.lock().set_time(self.now);
        self.tick();
        self.settle();
    }

    fn tick(&mut self) {
        for happened in self.control.tick(self.now) {
            if happened.what == What::Out {
                self.summary.out_of_budget.insert(happened.account.to_string());
            }
        }
    }

    /// Somebody submits a pod of their own. It runs for as long as it is not deleted.
    pub fn submit(&mut self, pod: Value) -> Result<Target, Refused> {
        let job = Job { pods: vec![pod], seconds: u64::MAX / 4_000, appetite: 600, fill: 800 };
        let number = self.add_job(job);
        let created = self.create(number, 0, u64::MAX / 4_000);
        self.settle();
        created
    }

    /// A card of a node fails now; the name of the card, if there is such a one that worked.
    pub fn fail_card(&mut self, node: &str, index: usize) -> Option<DeviceId> {
        let failed = self.break_card(node, index);
        self.settle();
        failed
    }

    fn settle(&mut self) {
        let mut changes = Vec::new();
        self.control.settle(self.now, |change| changes.push(change.clone()));
        for change in &changes {
            self.react(change);
        }
        self.usage.mark(&changes);
        self.heard.extend(changes);
        self.check();
    }

    /// Is any device promised beyond what it has? Asked after every event: the one promise that may never break.
    fn check(&mut self) {
        let world = self.control.world();
        for (_, state) in world.snapshot().nodes() {
            let over = state.books().iter().filter(|book| book.overcommit().is_some()).count();
            self.summary.overcommitted += over as u64;
        }
        self.summary.violations = world.counts.violations;
        self.summary.bound = world.counts.bound;
        self.summary.evicted = world.counts.evictions;
        self.summary.gangs = self.gangs.len() as u64;
    }
}

#[cfg(test)]
mod tests;

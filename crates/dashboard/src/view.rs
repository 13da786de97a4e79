//! What the API answers, as types. Amounts are integers: memory in MiB, time in thousandths of one card, moments in milliseconds
//! since the epoch. Fields that would say nothing are left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn is_no(b: &bool) -> bool {
    !*b
}

/// The whole picture: what a page needs to draw itself the first time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cluster {
    /// As of this version; later changes are told relative to it.
    pub version: u64,
    /// The moment.
    pub at: u64,
    /// Sums.
    pub totals: Totals,
    /// All nodes, by name.
    pub nodes: Vec<Node>,
    /// Pods that wait.
    pub queue: Queue,
    /// What was seen at regular times, oldest first.
    pub history: Vec<Sample>,
    /// Balances.
    pub budgets: Vec<Budget>,
    /// What happened last, newest first.
    pub news: Vec<News>,
    /// The demo's own part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demo: Option<Demo>,
    /// Only these namespaces are shown by name; absent shows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
}

/// What changed since a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Update {
    /// As of this version now.
    pub version: u64,
    /// The moment.
    pub at: u64,
    /// Sums.
    pub totals: Totals,
    /// Nodes that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Nodes that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The queue, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// New samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Sample>,
    /// Balances, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
    /// News since, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<News>,
    /// The demo's own part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demo: Option<Demo>,
}

/// Sums over the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Nodes with cards.
    pub nodes: u32,
    /// Cards.
    pub cards: u32,
    /// Cards that are not fit for work, or taken out of service.
    pub down: u32,
    /// Time there is, in thousandths of a card.
    pub share: u64,
    /// Time promised to pods.
    pub promised: u64,
    /// Time used now.
    pub used: u64,
    /// Memory there is, in MiB.
    pub memory: u64,
    /// Memory promised.
    pub memory_promised: u64,
    /// Memory used now.
    pub memory_used: u64,
    /// Time nobody holds on cards that somebody holds a part of.
    pub stranded: u64,
    /// Is anything known about use? Without agents that say so, nothing is.
    pub metered: bool,
    /// Pods that hold devices.
    pub running: u32,
    /// Pods that wait for devices.
    pub waiting: u32,
    /// Seconds the longest has waited.
    pub oldest: u64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its pool; empty where none is named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Why no new pods come: `not ready`, `cordoned`, or what is wrong with its inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Its cards, by index.
    pub cards: Vec<Card>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// Its identity.
    pub id: String,
    /// Its model.
    pub model: String,
    /// Memory that may be promised, in MiB.
    pub memory: u64,
    /// Time that may be promised; 1000 unless over-subscribed.
    pub share: u32,
    /// Why it is out of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// Who holds which part, in the order in which they came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// A part of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    /// `namespace/name`; empty for a pod the viewer may not see.
    pub pod: String,
    /// Memory promised, in MiB.
    pub memory: u64,
    /// Time promised.
    pub share: u32,
    /// Memory used now, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<u64>,
    /// Time used now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_used: Option<u32>,
    /// Time spent waiting for the card, in thousandths.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled: u32,
    /// Has the card to itself.
    #[serde(skip_serializing_if = "is_no")]
    pub alone: bool,
    /// Makes room first.
    #[serde(skip_serializing_if = "is_no")]
    pub opportunistic: bool,
    /// Is on its way out.
    #[serde(skip_serializing_if = "is_no")]
    pub leaving: bool,
}

/// Pods that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    /// How many the viewer may see.
    pub all: u32,
    /// The first of them.
    pub pods: Vec<Waiting>,
}

/// A pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Waiting {
    /// `namespace/name`.
    pub pod: String,
    /// Since when.
    pub since: u64,
    /// What it asks for, in a few words.
    pub ask: String,
    /// The dialect it was written in.
    pub dialect: String,
    /// Makes room first, and comes last.
    #[serde(skip_serializing_if = "is_no")]
    pub opportunistic: bool,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// Its gang, and how many members it waits with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    /// Why it waits; empty while nobody said.
    pub why: String,
    /// The smallest change that would let it run now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// When it will run, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<u64>,
    /// Where room is being made for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated: Option<String>,
}

/// How the cluster was at a moment. Parts are in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// When.
    pub at: u64,
    /// Time promised, of what there is.
    pub promised: u32,
    /// Time used, of what there is.
    pub used: u32,
    /// Memory promised, of what there is.
    pub memory: u32,
    /// Of the time nobody holds, what lies in pieces on cards somebody holds a part of.
    pub stranded: u32,
    /// Pods that wait.
    pub waiting: u32,
    /// Pods that hold devices.
    pub running: u32,
    /// Cards out of service.
    pub down: u32,
}

/// A balance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// `namespace/name`, or the name of a budget of the whole cluster.
    pub name: String,
    /// The namespaces it pays for.
    pub namespaces: Vec<String>,
    /// What it is counted in (`GPU hours`, `EUR`).
    pub unit: String,
    /// What there was to spend.
    pub total: f64,
    /// What was spent.
    pub spent: f64,
    /// When its period began.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    /// How it stands: `in budget`, `in grace until ...`, `out of budget`.
    pub state: String,
    /// Is it out?
    #[serde(skip_serializing_if = "is_no")]
    pub out: bool,
    /// When nothing will be left at the present rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_at: Option<u64>,
    /// What was left at moments of the period, oldest first.
    pub burn: Vec<(u64, f64)>,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct News {
    /// Grows from one to the next.
    pub number: u64,
    /// When.
    pub at: u64,
    /// What kind: `placed`, `waits`, `evicted`, `ended`, `failed`, `mended`, `refused`, `budget`.
    pub kind: String,
    /// The pod, or the node.
    pub about: String,
    /// What.
    pub text: String,
}

/// One pod's story.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Story {
    /// `namespace/name`.
    pub pod: String,
    /// Its identity.
    pub uid: String,
    /// `waiting`, `starting`, `running`, `leaving`, `ended`.
    pub state: String,
    /// The dialect it was written in.
    pub dialect: String,
    /// `guarantee` or `opportunistic`.
    pub class: String,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// What it asks for, container by container, as people would say it.
    pub ask: Vec<String>,
    /// What else it asks for, by name.
    pub wishes: BTreeMap<String, String>,
    /// What happened, oldest first.
    pub chapters: Vec<Chapter>,
    /// What it was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Granted>,
    /// What it used, oldest first.
    pub usage: Vec<Usage>,
    /// What nodes say to it while it waits, like answers together.
    pub answers: Vec<Answer>,
    /// The others on its cards.
    pub neighbours: Vec<String>,
}

/// A chapter of a pod's story.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Chapter {
    /// When.
    pub at: u64,
    /// One word: `asked`, `waits`, `granted`, `started`, `leaving`, `ended`.
    pub what: String,
    /// A sentence.
    pub text: String,
}

/// What a pod was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Granted {
    /// Where.
    pub node: String,
    /// When it was decided.
    pub at: u64,
    /// The policy that decided.
    pub policy: String,
    /// The parts.
    pub slices: Vec<GrantedSlice>,
}

/// A part of a card that was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantedSlice {
    /// To which container.
    pub container: String,
    /// Of which card.
    pub device: String,
    /// Its number on the node.
    pub index: u32,
    /// Its model.
    pub model: String,
    /// Memory of the card, in MiB.
    pub card_memory: u64,
    /// Memory guaranteed, in MiB.
    pub memory: u64,
    /// Memory it may use, in MiB.
    pub memory_limit: u64,
    /// Time guaranteed.
    pub share: u32,
    /// Time it may use.
    pub share_limit: u32,
}

/// What a pod used at a moment, over all its cards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// When.
    pub at: u64,
    /// Time, in thousandths of a card.
    pub share: u32,
    /// Time spent waiting for a card, in thousandths.
    pub throttled: u32,
    /// Memory, in MiB.
    pub memory: u64,
}

/// What some nodes say to a pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// How many.
    pub nodes: u32,
    /// What.
    pub text: String,
    /// One of them.
    pub example: String,
}

/// The demo's own part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Demo {
    /// Simulated seconds per second; zero while it is paused.
    pub speed: u32,
    /// Enforcement, before your eyes.
    pub proof: Proof,
}

/// Two real processes on a simulated card, held to what they were granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Proof {
    /// What is going on: `building ...`, `running`, or why it cannot be shown.
    pub state: String,
    /// It runs.
    pub running: bool,
    /// The simulated card.
    pub card: String,
    /// The processes.
    pub tenants: Vec<Tenant>,
}

/// A real process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Time it asked for, in thousandths.
    pub share: u32,
    /// Time it had over the last second, by the card's own counters, in thousandths.
    pub had: u32,
    /// The same second by second, oldest first.
    pub course: Vec<u32>,
    /// Memory it may use, in MiB.
    pub memory: u64,
    /// Memory it holds by the card's own counters, in MiB.
    pub held: u64,
    /// Allocations beyond that which were refused.
    pub refused: u64,
    /// Kernels it ran.
    pub kernels: u64,
}

//! Everything that can happen between two schedulers that both believe to lead, two nodes and three pods, with a crash at every step:
//! no container ever starts over a device's capacity, and whatever happened, things come to rest.
//!
//! The model is the protocol, not the code: a scheduler binds a pod to *any* device that has room in its own, possibly stale, view,
//! which covers every placement policy; the API server keeps a Binding's precondition; a node starts a container only if what runs
//! there leaves room, and says whom it refused. Room is counted by the core's own book. Schedulers and agents may crash and come back
//! at every step, any number of times; one pod is deleted by force at any moment. States are explored breadth first until there is none
//! left; two that differ only in which pod, node or scheduler is which are one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use divvy_core::device::Device;
use divvy_core::ledger::{Book, Charge};
use divvy_core::units::{Bytes, Share};

const PODS: usize = 3;
const NODES: usize = 2;
const SCHEDULERS: usize = 2;

/// What each pod asks for of one device, in thousandths: two fit together, the third does not.
const SHARE: u32 = 500;

/// A pod as the API server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pod {
    exists: bool,
    node: Option<u8>,
}

/// What one scheduler knows and is doing. All of it is lost in a crash, except requests that are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scheduler {
    alive: bool,
    pods: [Pod; PODS],
    /// Whom the nodes said they refused.
    refused: [u8; NODES],
    /// Its request that has not arrived: pod and node. One at a time: what a second one on its way would do, the same
    /// scheduler does by sending it later from the same, by then older, view.
    on_its_way: Option<(u8, u8)>,
}

/// A node: its kubelet's containers, and its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    agent_alive: bool,
    /// Pods whose container runs: this survives the agent.
    running: u8,
    /// Pods the agent refused: it has written so in the node's inventory.
    refused: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    pods: [Pod; PODS],
    schedulers: [Scheduler; SCHEDULERS],
    nodes: [Node; NODES],
    /// A pod was deleted by force.
    deleted: bool,
}

/// What is taken out of the protocol, to see that the model notices.
#[derive(Clone, Copy, Default)]
struct Broken {
    /// The node starts whatever was bound to it.
    no_check_on_the_node: bool,
    /// Pods that a node refused are not evicted.
    no_eviction: bool,
}

fn has(set: u8, pod: usize) -> bool {
    set & (1 << pod) != 0
}

fn charge() -> Charge {
    Charge { share: Share(SHARE), tasks: 1, ..Charge::default() }
}

/// For each set of pods on one device: is it over-committed, and is there room for one more? By the core's own book, once.
static ROOM: LazyLock<[(bool, bool); 1 << PODS]> = LazyLock::new(|| {
    std::array::from_fn(|set| {
        let mut book = Book::open(&Device::gpu("d", 0, "m", Bytes::gib(1)), Bytes::ZERO);
        (0..PODS).filter(|pod| has(set as u8, *pod)).for_each(|_| book.take(&charge()));
        (book.overcommit().is_some(), book.room(&charge()).is_ok())
    })
});

fn is_over(pods: u8) -> bool {
    ROOM[usize::from(pods)].0
}

fn has_room(pods: u8) -> bool {
    ROOM[usize::from(pods)].1
}

fn set(pods: impl Iterator<Item = usize>) -> u8 {
    pods.fold(0, |set, pod| set | 1 << pod)
}

/// Where a pod is, as a number of two bits, with the nodes in this order.
fn place(pod: Pod, nodes: [usize; NODES]) -> u32 {
    match (pod.exists, pod.node) {
        (false, _) => 0,
        (true, None) => 1,
        (true, Some(node)) => 2 + nodes[usize::from(node)] as u32,
    }
}

/// The packed state is well mixed by one multiplication; the default hasher would take most of the time.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only packed states are hashed");
    }

    fn write_u128(&mut self, state: u128) {
        let folded = (state as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((state >> 64) as u64).rotate_left(29);
        let mixed = folded.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.0 = mixed ^ (mixed >> 32);
    }
}

impl State {
    fn start() -> State {
        let mut state = State::default();
        state.pods.iter_mut().for_each(|pod| pod.exists = true);
        state.nodes.iter_mut().for_each(|node| node.agent_alive = true);
        for s in 0..SCHEDULERS {
            state.list(s);
        }
        state
    }

    /// A scheduler starts: it lists everything, and is whole.
    fn list(&mut self, s: usize) {
        let on_its_way = self.schedulers[s].on_its_way;
        let refused = self.nodes.map(|node| node.refused);
        self.schedulers[s] = Scheduler { alive: true, pods: self.pods, refused, on_its_way };
    }

    /// All of it in one number, the same whichever pod, node and scheduler is which.
    fn packed(&self) -> u128 {
        const ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];
        let orders = ORDERS.into_iter().flat_map(|s| ORDERS.into_iter().map(move |n| (s, n)));
        orders.map(|(schedulers, nodes)| self.packed_as(schedulers, nodes)).min().unwrap()
    }

    fn packed_as(&self, schedulers: [usize; SCHEDULERS], nodes: [usize; NODES]) -> u128 {
        let mut columns = [0u32; PODS];
        for (p, column) in columns.iter_mut().enumerate() {
            let mut put = |value: u32, bits: u32| *column = (*column << bits) | value;
            put(place(self.pods[p], nodes), 2);
            for n in nodes {
                put(u32::from(has(self.nodes[n].running, p)), 1);
                put(u32::from(has(self.nodes[n].refused, p)), 1);
            }
            for s in schedulers {
                let scheduler = &self.schedulers[s];
                put(place(scheduler.pods[p], nodes), 2);
                nodes.into_iter().for_each(|n| put(u32::from(has(scheduler.refused[n], p)), 1));
                let on_its_way = scheduler.on_its_way.filter(|(pod, _)| usize::from(*pod) == p);
                put(on_its_way.map_or(0, |(_, node)| 1 + nodes[usize::from(node)] as u32), 2);
            }
        }
        columns.sort_unstable();
        let alive = schedulers.map(|s| self.schedulers[s].alive).into_iter();
        let flags = alive.chain(nodes.map(|n| self.nodes[n].agent_alive)).chain([self.deleted]);
        let flags = flags.fold(0, |flags, flag| (flags << 1) | u128::from(flag));
        columns.into_iter().fold(flags, |all, column| (all << 32) | u128::from(column))
    }

    /// No device has more containers running than it has room for.
    fn is_safe(&self) -> bool {
        self.nodes.iter().all(|node| !is_over(node.running))
    }

    /// At rest: everything that is bound runs where it is bound, and nobody who was refused is still there.
    fn is_at_rest(&self) -> bool {
        (0..PODS).all(|p| {
            let pod = self.pods[p];
            let runs_at = (0..NODES).find(|n| has(self.nodes[*n].running, p));
            match (pod.exists, pod.node) {
                (true, Some(node)) => runs_at == Some(usize::from(node)),
                _ => runs_at.is_none(),
            }
        })
    }

    /// Everything that can happen next. A crash is always among it.
    fn next(&self, broken: Broken) -> Vec<State> {
        let mut next = Vec::new();
        for s in 0..SCHEDULERS {
            self.scheduler_steps(s, broken, &mut next);
        }
        for n in 0..NODES {
            self.node_steps(n, broken, &mut next);
        }
        for p in 0..PODS {
            let mut change = |change: &dyn Fn(&mut State)| {
                let mut state = *self;
                change(&mut state);
                next.push(state);
            };
            let pod = self.pods[p];
            if pod.exists && !self.deleted {
                // `kubectl delete --force`: the object goes, the container stays for now.
                change(&|state| (state.pods[p], state.deleted) = (Pod::default(), true));
            }
        }
        next
    }

    fn scheduler_steps(&self, s: usize, broken: Broken, next: &mut Vec<State>) {
        let mut step = |change: &dyn Fn(&mut State)| {
            let mut state = *self;
            change(&mut state);
            next.push(state);
        };
        let me = &self.schedulers[s];
        // A request arrives, whoever sent it and whether or not that one still lives. It hears what became of it if it does: a lost
        // answer is as if the request were still on its way.
        if let Some((p, node)) = me.on_its_way {
            step(&|state| {
                let (pod, me) = (&mut state.pods[usize::from(p)], &mut state.schedulers[s]);
                me.on_its_way = None;
                if pod.exists && pod.node.is_none() {
                    pod.node = Some(node);
                    if me.alive {
                        me.pods[usize::from(p)] = *pod;
                    }
                }
            });
        }
        if !me.alive {
            step(&|state| state.list(s));
            return;
        }
        step(&|state| {
            state.schedulers[s] = Scheduler { on_its_way: me.on_its_way, ..Scheduler::default() };
        });
        // The watches tell in order what happened, late or soon: up to any moment, which is as much as all of it at that moment.
        let refused = self.nodes.map(|node| node.refused);
        if me.pods != self.pods || me.refused != refused {
            step(&|state| (state.schedulers[s].pods, state.schedulers[s].refused) = (self.pods, refused));
        }
        for p in 0..PODS {
            let seen = me.pods[p];
            let waits = seen.exists && seen.node.is_none();
            if waits && me.on_its_way.is_none() {
                for n in 0..NODES {
                    // The fold of what it sees and what it is doing; what a node refused is void.
                    let held =
                        |q: &usize| me.pods[*q].exists && me.pods[*q].node == Some(n as u8) && !has(me.refused[n], *q);
                    if has_room(set((0..PODS).filter(held))) {
                        step(&|state| state.schedulers[s].on_its_way = Some((p as u8, n as u8)));
                    }
                }
            }
            let refused = seen.exists && seen.node.is_some_and(|n| has(me.refused[usize::from(n)], p));
            if refused && !broken.no_eviction && self.pods[p].exists {
                // The object goes; should its container run by now, it ends a moment later.
                step(&|state| state.pods[p] = Pod::default());
            }
        }
    }

    fn node_steps(&self, n: usize, broken: Broken, next: &mut Vec<State>) {
        let mut step = |change: &dyn Fn(&mut State)| {
            let mut state = *self;
            change(&mut state);
            next.push(state);
        };
        let node = self.nodes[n];
        if node.agent_alive {
            step(&|state| state.nodes[n].agent_alive = false);
        } else {
            // What runs kept running. Whom it refused it may know from its journal, or find out again.
            step(&|state| state.nodes[n].agent_alive = true);
            step(&|state| (state.nodes[n].agent_alive, state.nodes[n].refused) = (true, 0));
        }
        for p in 0..PODS {
            let pod = self.pods[p];
            let mine = pod.exists && pod.node == Some(n as u8);
            if mine && node.agent_alive && !has(node.running, p) && !has(node.refused, p) {
                if broken.no_check_on_the_node || has_room(node.running) {
                    step(&|state| state.nodes[n].running |= 1 << p);
                } else {
                    step(&|state| state.nodes[n].refused |= 1 << p);
                }
            }
            // A container ends some time after its pod is gone.
            if has(node.running, p) && !pod.exists {
                step(&|state| state.nodes[n].running &= !(1 << p));
            }
            // Refusals of pods that are gone are forgotten.
            if node.agent_alive && has(node.refused, p) && !pod.exists {
                step(&|state| state.nodes[n].refused &= !(1 << p));
            }
        }
    }
}

/// Everything reachable, with the way back.
struct Explored {
    states: Vec<State>,
    steps: usize,
    /// For each state, those from which it is one step away, without help from outside.
    before: Vec<Vec<u32>>,
    unsafe_state: Option<State>,
}

fn explore(broken: Broken) -> Explored {
    let start = State::start();
    let mut known: HashMap<u128, u32, BuildHasherDefault<Mix>> = HashMap::from_iter([(start.packed(), 0)]);
    let mut explored = Explored { states: vec![start], steps: 0, before: vec![Vec::new()], unsafe_state: None };
    let mut queue = VecDeque::from([0u32]);
    while let Some(at) = queue.pop_front() {
        let state = explored.states[at as usize];
        if !state.is_safe() {
            explored.unsafe_state = Some(state);
            return explored;
        }
        for next in state.next(broken) {
            let to = *known.entry(next.packed()).or_insert_with(|| {
                explored.states.push(next);
                explored.before.push(Vec::new());
                let new = u32::try_from(explored.states.len() - 1).unwrap();
                queue.push_back(new);
                new
            });
            explored.steps += 1;
            if next.deleted == state.deleted {
                explored.before[to as usize].push(at);
            }
        }
    }
    explored
}

/// States from which there is no way to rest, unless somebody deletes a pod.
fn stuck(explored: &Explored) -> usize {
    let mut reaches = vec![false; explored.states.len()];
    let mut queue: VecDeque<u32> = VecDeque::new();
    for (i, state) in explored.states.iter().enumerate() {
        if state.is_at_rest() {
            reaches[i] = true;
            queue.push_back(u32::try_from(i).unwrap());
        }
    }
    while let Some(at) = queue.pop_front() {
        for before in &explored.before[at as usize] {
            if !std::mem::replace(&mut reaches[*before as usize], true) {
                queue.push_back(*before);
            }
        }
    }
    reaches.iter().filter(|reached| !**reached).count()
}

#[test]
fn no_container_starts_over_capacity_whatever_crashes_and_everything_comes_to_rest() {
    let explored = explore(Broken::default());
    println!("{} states, {} steps", explored.states.len(), explored.steps);
    assert_eq!(explored.unsafe_state, None);
    assert!(explored.states.len() > 10_000, "the model has become too small to mean anything");
    assert_eq!(stuck(&explored), 0, "states from which there is no way to rest");
}

#[test]
fn the_model_notices_when_the_node_does_not_check() {
    let explored = explore(Broken { no_check_on_the_node: true, ..Broken::default() });
    assert!(explored.unsafe_state.is_some());
}

#[test]
fn the_model_notices_when_nobody_who_was_refused_is_evicted() {
    let explored = explore(Broken { no_eviction: true, ..Broken::default() });
    assert!(stuck(&explored) > 0);
}

//! Graphs: operations with an order between them, made by hand or by capturing streams, instantiated and launched.

use std::collections::{HashSet, VecDeque};

use crate::abi::{CUgraphEdgeData, Error};
use crate::handles::Handles;
use crate::op::Op;

mod capture;

pub(crate) use capture::{Capture, exchange_strictness};

#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<u64>,
    pub(crate) edges: Vec<(u64, u64, CUgraphEdgeData)>,
    /// Part of another graph: it goes with it.
    pub(crate) inner: bool,
    /// The graph it was cloned from, and which node became which.
    pub(crate) clone_of: Handles<u64>,
    pub(crate) objects: Handles<u32>,
}

pub(crate) struct Node {
    pub(crate) graph: u64,
    pub(crate) op: Op,
}

/// A graph ready to be launched.
pub(crate) struct Exec {
    pub(crate) flags: u64,
    pub(crate) nodes: Vec<ExecNode>,
    pub(crate) edges: HashSet<(u64, u64)>,
}

pub(crate) struct ExecNode {
    /// The node it was made from.
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) enabled: bool,
}

/// Something of the program's that lives as long as graphs refer to it.
pub(crate) struct Object {
    pub(crate) pointer: u64,
    pub(crate) destroy: u64,
    pub(crate) references: u32,
}

/// All graphs of the process.
#[derive(Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: Handles<Graph>,
    pub(crate) nodes: Handles<Node>,
    pub(crate) execs: Handles<Exec>,
    pub(crate) objects: Handles<Object>,
    pub(crate) conditions: Handles<u32>,
    pub(crate) captures: Handles<Capture>,
    pub(crate) capturing: Handles<u64>,
}

pub(crate) const PLAIN_EDGE: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, kind: 0, reserved: [0; 5] };

/// The number by which the driver calls a type of node.
pub(crate) fn type_of(op: &Op) -> u32 {
    match op {
        Op::Kernel(_) => 0,
        Op::Copy(_) => 1,
        Op::Fill(_) => 2,
        Op::Host { .. } => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::Await(_) => 6,
        Op::Record(_) => 7,
        Op::Allocate { .. } => 10,
        Op::Free(_) => 11,
        Op::Words(_) => 12,
        Op::Conditional { .. } => 13,
    }
}

impl Graphs {
    pub(crate) fn graph(&mut self, id: u64) -> Result<&mut Graph, Error> {
        self.graphs.get_mut(&id).ok_or(Error::INVALID_VALUE)
    }

    pub(crate) fn node(&mut self, id: u64) -> Result<&mut Node, Error> {
        self.nodes.get_mut(&id).ok_or(Error::INVALID_VALUE)
    }

    pub(crate) fn exec(&mut self, id: u64) -> Result<&mut Exec, Error> {
        self.execs.get_mut(&id).ok_or(Error::INVALID_VALUE)
    }

    pub(crate) fn condition(&self, handle: u64) -> u32 {
        self.conditions.get(&handle).copied().unwrap_or(0)
    }

    /// Adds a node after others of the same graph.
    pub(crate) fn add(&mut self, id: u64, graph: u64, op: Op, after: &[(u64, CUgraphEdgeData)]) -> Result<(), Error> {
        let known = self.graphs.get(&graph).ok_or(Error::INVALID_VALUE)?;
        if after.iter().any(|(node, _)| !known.nodes.contains(node)) {
            return Err(Error::INVALID_VALUE);
        }
        let owner = self.graph(graph)?;
        owner.nodes.push(id);
        owner.edges.extend(after.iter().map(|&(from, data)| (from, id, data)));
        self.nodes.insert(id, Node { graph, op });
        Ok(())
    }

    /// The nodes of a graph in an order in which they can run; `None` if they go in a circle.
    pub(crate) fn order(&self, graph: u64) -> Option<Vec<u64>> {
        let graph = self.graphs.get(&graph)?;
        let mut waits: Handles<usize> = graph.nodes.iter().map(|&n| (n, 0)).collect();
        graph.edges.iter().for_each(|(_, to, _)| *waits.entry(*to).or_default() += 1);
        let mut ready: VecDeque<u64> = graph.nodes.iter().copied().filter(|n| waits[n] == 0).collect();
        let mut order = Vec::new();
        while let Some(node) = ready.pop_front() {
            order.push(node);
            for (_, to, _) in graph.edges.iter().filter(|(from, ..)| *from == node) {
                let left = waits.get_mut(to)?;
                *left -= 1;
                if *left == 0 {
                    ready.push_back(*to);
                }
            }
        }
        (order.len() == graph.nodes.len()).then_some(order)
    }

    /// The operations of a graph, in order.
    pub(crate) fn ordered_ops(&self, graph: u64) -> Vec<Op> {
        self.order(graph).unwrap_or_default().iter().filter_map(|n| self.nodes.get(n)).map(|n| n.op.clone()).collect()
    }

    /// Whether one node comes before another.
    pub(crate) fn reaches(&self, graph: u64, from: u64, to: u64) -> bool {
        let Some(graph) = self.graphs.get(&graph) else { return false };
        let mut seen = HashSet::from([from]);
        let mut todo = vec![from];
        while let Some(node) = todo.pop() {
            if node == to {
                return true;
            }
            todo.extend(graph.edges.iter().filter(|(f, t, _)| *f == node && seen.insert(*t)).map(|(_, t, _)| *t));
        }
        false
    }

    /// A copy of a graph, with graphs inside it, under a new handle.
    pub(crate) fn clone_graph(&mut self, graph: u64, next: &mut impl FnMut() -> u64) -> Result<u64, Error> {
        let source = self.graph(graph)?.clone();
        let id = next();
        let mut copy = Graph::default();
        for &node in &source.nodes {
            let fresh = next();
            let op = match &self.node(node)?.op {
                Op::Child(inner) => {
                    let inner = *inner;
                    let clone = self.clone_graph(inner, next)?;
                    self.graph(clone)?.inner = true;
                    Op::Child(clone)
                }
                other => other.clone(),
            };
            copy.nodes.push(fresh);
            copy.clone_of.insert(node, fresh);
            self.nodes.insert(fresh, Node { graph: id, op });
        }
        copy.edges = source.edges.iter().map(|(f, t, d)| (copy.clone_of[f], copy.clone_of[t], *d)).collect();
        self.graphs.insert(id, copy);
        Ok(id)
    }

    /// Forgets a graph and what is inside it. Answers the objects it referred to.
    pub(crate) fn destroy(&mut self, id: u64) -> Result<Handles<u32>, Error> {
        let graph = self.graphs.remove(&id).ok_or(Error::INVALID_VALUE)?;
        for node in &graph.nodes {
            match self.nodes.remove(node).map(|n| n.op) {
                Some(Op::Child(inner)) => drop(self.destroy(inner)),
                Some(Op::Conditional { bodies, .. }) => bodies.into_iter().for_each(|b| drop(self.destroy(b))),
                _ => {}
            }
        }
        Ok(graph.objects)
    }

    /// What a graph does when launched, graphs inside it spread out.
    pub(crate) fn instantiate(&self, graph: u64, flags: u64) -> Result<Exec, Error> {
        let edges =
            self.graphs.get(&graph).ok_or(Error::INVALID_VALUE)?.edges.iter().map(|(f, t, _)| (*f, *t)).collect();
        let order = self.order(graph).ok_or(Error::INVALID_VALUE)?;
        let nodes = order.iter().filter_map(|id| self.nodes.get(id).map(|n| (*id, n)));
        let nodes = nodes.map(|(id, n)| ExecNode { id, op: n.op.clone(), enabled: true }).collect();
        Ok(Exec { flags, nodes, edges })
    }
}

//! Published ways of placing, for comparison: not policies of the product.
//!
//! | name | |
//! |---|---|
//! | `fgd` | fragmentation gradient descent, told the mix: the node where least becomes useless to it, in steps of a hundredth |
//! | `best-fit` | the node with least CPU and GPU left |
//! | `first-fit` | the first node that fits |

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::replay::{Place, Placing};
use crate::rows::{NodeRow, Request};

/// Who.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Fragmentation gradient descent (USENIX ATC '23).
    Fgd,
    /// Least left.
    BestFit,
    /// First that fits.
    FirstFit,
}

impl Rival {
    /// All of them.
    pub const ALL: [Rival; 3] = [Rival::BestFit, Rival::FirstFit, Rival::Fgd];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Rival::Fgd => "fgd",
            Rival::BestFit => "best-fit",
            Rival::FirstFit => "first-fit",
        }
    }
}

/// What is left of a node.
#[derive(Clone, Debug)]
struct Node {
    name: Arc<str>,
    cpu: u64,
    memory: u64,
    model: u32,
    left: Vec<u32>,
}

/// A request with its models as bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Want {
    cpu: u64,
    memory: u64,
    gpus: u32,
    milli: u32,
    models: u64,
}

/// Scores of all nodes for one request, and the best of every block.
struct Scores {
    all: Vec<i64>,
    best: Vec<i64>,
    seen: usize,
}

const BLOCK: usize = 32;

/// A yard of nodes on which a rival places.
pub(crate) struct Yard {
    rival: Rival,
    nodes: Vec<Node>,
    models: Vec<Arc<str>>,
    /// Requests the mix consists of, and how often each comes.
    typical: Vec<(Want, f64)>,
    scores: HashMap<Want, Scores>,
    touched: Vec<usize>,
    held: HashMap<String, (usize, Want, Vec<usize>)>,
}

impl Yard {
    pub(crate) fn of(rival: Rival, rows: &[NodeRow], target: &[Request]) -> Yard {
        let mut models: Vec<Arc<str>> = rows.iter().map(|row| row.model.clone()).collect();
        models.sort();
        models.dedup();
        let node = |row: &NodeRow| Node {
            name: row.name.clone(),
            cpu: row.cpu,
            memory: row.memory,
            model: models.iter().position(|m| *m == row.model).unwrap_or(0) as u32,
            left: vec![1000; row.gpus as usize],
        };
        let nodes = rows.iter().map(node).collect();
        let mut yard = Yard {
            rival,
            nodes,
            models,
            typical: vec![],
            scores: HashMap::new(),
            touched: vec![],
            held: HashMap::new(),
        };
        if rival == Rival::Fgd {
            yard.typical = yard.typical(target);
        }
        yard
    }

    fn want(&self, request: &Request) -> Want {
        let bit = |model: &Arc<str>| self.models.iter().position(|m| m == model).map_or(0, |at| 1 << at);
        let models = if request.models.is_empty() { u64::MAX } else { request.models.iter().map(bit).sum() };
        Want { cpu: request.cpu, memory: request.memory, gpus: request.gpus, milli: request.milli, models }
    }

    /// The commonest requests, until 95 % of the pods are covered; main memory does not count.
    fn typical(&self, target: &[Request]) -> Vec<(Want, f64)> {
        let mut counts = BTreeMap::<Want, u64>::new();
        for request in target {
            *counts.entry(Want { memory: 0, ..self.want(request) }).or_default() += 1;
        }
        let mut order: Vec<(Want, u64)> = counts.into_iter().collect();
        order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut sum = 0;
        let enough = |(_, count): &(Want, u64)| {
            let more = sum * 100 < target.len() as u64 * 95;
            sum += if more { *count } else { 0 };
            more
        };
        let kept: Vec<(Want, u64)> = order.into_iter().take_while(enough).collect();
        let total: u64 = kept.iter().map(|(_, count)| count).sum();
        kept.into_iter().map(|(want, count)| (want, count as f64 / total.max(1) as f64)).collect()
    }

    /// GPU that is of no use to the mix, in thousandths.
    fn fragmented(&self, cpu: u64, model: u32, left: &[u32]) -> f64 {
        let total: u32 = left.iter().sum();
        let (free, most) = (left.iter().filter(|l| **l == 1000).count(), left.iter().max().copied().unwrap_or(0));
        let below = |milli: u32| left.iter().filter(|l| **l < milli).sum::<u32>();
        let lost = |want: &Want| {
            let never = want.gpus == 0 || (want.models >> model) & 1 == 0 || cpu < want.cpu;
            match want.gpus {
                _ if never => total,
                1 if most < want.milli => total,
                1 => below(want.milli),
                gpus if free < gpus as usize => total,
                _ => below(1000),
            }
        };
        if total == 0 { 0.0 } else { self.typical.iter().map(|(want, part)| part * f64::from(lost(want))).sum() }
    }

    fn fits(node: &Node, want: &Want) -> bool {
        node.cpu >= want.cpu
            && node.memory >= want.memory
            && (want.gpus == 0 || (want.models >> node.model) & 1 == 1)
            && node.left.iter().filter(|l| **l >= want.milli.max(1)).count() >= want.gpus as usize
    }

    /// The GPUs a pod takes: the tightest one, or the first free ones; first-fit takes the first that fits.
    fn choose(&self, node: &Node, want: &Want) -> Vec<usize> {
        let fitting = (0..node.left.len()).filter(|g| node.left[*g] >= want.milli.max(1));
        match (want.gpus, self.rival) {
            (0, _) => Vec::new(),
            (1, Rival::BestFit) => fitting.min_by_key(|g| node.left[*g]).into_iter().collect(),
            (1, Rival::Fgd) if want.milli < 1000 => {
                let before = self.fragmented(node.cpu, node.model, &node.left);
                let mut best: Option<(i64, usize)> = None;
                for gpu in fitting {
                    let score = self.descent(node, want, before, &[gpu]);
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, gpu));
                    }
                }
                best.into_iter().map(|(_, gpu)| gpu).collect()
            }
            (count, _) => fitting.take(count as usize).collect(),
        }
    }

    /// FGD's score of a choice: 0..100 along a sigmoid of what is saved, cut to whole numbers.
    fn descent(&self, node: &Node, want: &Want, before: f64, gpus: &[usize]) -> i64 {
        let mut left = node.left.clone();
        gpus.iter().for_each(|gpu| left[*gpu] -= want.milli);
        let saved = (before - self.fragmented(node.cpu - want.cpu, node.model, &left)) / 1000.0;
        (100.0 / (1.0 + (-saved).exp())) as i64
    }

    fn score(&self, node: &Node, want: &Want) -> i64 {
        if !Yard::fits(node, want) {
            return i64::MIN;
        }
        match self.rival {
            Rival::FirstFit => 0,
            Rival::BestFit => {
                let gpu = f64::from(node.left.iter().sum::<u32>()) - f64::from(want.gpus * want.milli);
                let left = (node.cpu - want.cpu) as f64 / 128_000.0 * 0.5 + gpu / 8000.0 * 0.5;
                ((1.0 - left) * 100.0) as i64
            }
            Rival::Fgd => {
                let before = self.fragmented(node.cpu, node.model, &node.left);
                self.descent(node, want, before, &self.choose(node, want))
            }
        }
    }

    /// The first of the best nodes.
    fn best(&mut self, want: &Want) -> Option<usize> {
        let mut scores = self.scores.remove(want);
        let top = |all: &[i64], block: usize| {
            all[block * BLOCK..((block + 1) * BLOCK).min(all.len())].iter().copied().max().unwrap_or(i64::MIN)
        };
        let known = scores.get_or_insert_with(|| {
            let all: Vec<i64> = self.nodes.iter().map(|node| self.score(node, want)).collect();
            let best = (0..all.len().div_ceil(BLOCK)).map(|block| top(&all, block)).collect();
            Scores { all, best, seen: self.touched.len() }
        });
        for node in &self.touched[known.seen..] {
            known.all[*node] = self.score(&self.nodes[*node], want);
            known.best[node / BLOCK] = top(&known.all, node / BLOCK);
        }
        known.seen = self.touched.len();
        let most = known.best.iter().copied().max().filter(|most| *most > i64::MIN);
        let found = most.and_then(|most| {
            let block = known.best.iter().position(|b| *b == most)?;
            Some(block * BLOCK + known.all[block * BLOCK..].iter().position(|s| *s == most)?)
        });
        if let Some(scores) = scores {
            self.scores.insert(want.clone(), scores);
        }
        found
    }
}

impl Placing for Yard {
    fn place(&mut self, name: &str, request: &Request) -> Place {
        let want = self.want(request);
        let at = self.best(&want)?;
        let gpus = self.choose(&self.nodes[at], &want);
        let node = &mut self.nodes[at];
        (node.cpu, node.memory) = (node.cpu - want.cpu, node.memory - want.memory);
        gpus.iter().for_each(|gpu| node.left[*gpu] -= want.milli);
        self.touched.push(at);
        let place = Some((node.name.clone(), gpus.iter().map(|gpu| *gpu as u32).collect()));
        self.held.insert(name.to_owned(), (at, want, gpus));
        place
    }

    fn leave(&mut self, name: &str) {
        let Some((at, want, gpus)) = self.held.remove(name) else { return };
        let node = &mut self.nodes[at];
        (node.cpu, node.memory) = (node.cpu + want.cpu, node.memory + want.memory);
        gpus.iter().for_each(|gpu| node.left[*gpu] += want.milli);
        self.touched.push(at);
    }
}

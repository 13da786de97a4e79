//! What nodes answered, remembered until they change.
//!
//! Pods of one shape get the same answer from a node until something happens on that node. A board keeps, per shape, every node's rating
//! and the best of each block of nodes; a placement touches one node, which is asked again when the shape next comes. It decides
//! exactly as asking all nodes does, and a test holds it to that.

mod seat;
mod shape;

use std::sync::Arc;

use crate::fit::Placer;
use crate::fit::rules::Rules;
use crate::hash::FixedMap;
use crate::ledger::snapshot::{NodeIx, Position, Snapshot};
use crate::ledger::worth::{STEP_BITS, Worth};
use crate::model::pod::Pod;
use crate::model::policy::{Placement, Policy};
use crate::place::attempt::{Attempt, first_best, goes_first, placer};

use seat::Seat;
use shape::{Shape, Simple};

/// Nodes per block.
const BLOCK: usize = 64;
/// Most ratings that are remembered: 64 MiB of them.
const MOST: usize = 1 << 24;
/// Most shapes that are remembered, however few nodes there are: more than a cluster sees of different pods between two looks at the
/// same. Each keeps its pod's request: twice as many keep twice that, for answers that nobody asks for again.
const MOST_LINES: usize = 4096;
/// Longest request that is remembered, in bytes of JSON: all of them together are then 64 MiB at most, as the ratings are. A manifest may
/// have 1.5 MiB; whoever's request is longer is answered by asking all nodes.
const LONGEST: usize = 16 << 10;
/// The rating of a node that cannot take the shape.
const NO: i32 = i32::MIN;

/// Answers that were remembered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    seats: Vec<Option<Seat>>,
    seats_at: Option<Position>,
    /// Seats that are not plain.
    special: usize,
    /// What ratings were made by.
    worth: Option<Arc<Worth>>,
    /// The parts of the policy the answers depend on.
    policy: Option<Policy>,
    by_shape: FixedMap<Shape, usize>,
    lines: Vec<Line>,
    /// The line that is looked at first when one has to go.
    oldest: usize,
    asked: Asked,
}

/// Which nodes were asked already in this round: one that changed often is asked once.
#[derive(Clone, Debug, Default)]
struct Asked {
    round: u32,
    at: Vec<u32>,
}

impl Asked {
    /// Begins a round, among so many nodes.
    fn begin(&mut self, nodes: usize) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 || self.at.len() != nodes {
            (self.round, self.at) = (1, vec![0; nodes]);
        }
    }

    /// Is it the first time in this round?
    fn first(&mut self, node: NodeIx) -> bool {
        let at = &mut self.at[node.0 as usize];
        std::mem::replace(at, self.round) != self.round
    }
}

/// What nodes answered to one shape.
#[derive(Clone, Debug)]
struct Line {
    shape: Shape,
    simple: Option<Simple>,
    /// Up to where changes of nodes are in the ratings; absent where all nodes are to be asked anew.
    at: Option<Position>,
    ratings: Ratings,
    /// It was asked for since it was last its turn to go.
    used: bool,
}

#[derive(Clone, Debug)]
enum Ratings {
    /// Of the default policy: whole numbers, with the best of each block.
    Blocks { all: Vec<i32>, best: Vec<i32> },
    /// Of the others, which may want to see all of them at once.
    Plain(Vec<Option<f64>>),
}

impl Board {
    /// Where the pod goes, of `only` these nodes where some are named: absent where no node takes it, and an error where this cannot be
    /// answered from memory.
    pub(crate) fn find(
        &mut self,
        snapshot: &Snapshot,
        policy: &Policy,
        pod: &Pod,
        attempt: &Attempt<'_>,
        only: Option<&[NodeIx]>,
    ) -> Result<Option<Found>, Unfit> {
        if !Rules::is_local(snapshot, pod) {
            return Err(Unfit);
        }
        let placement = match &attempt.placement {
            Some(placement) => placement,
            None if policy.by_pool.is_empty() => &policy.placement,
            None => return Err(Unfit),
        };
        // KubeShare looks at where the rest of a group is.
        if *placement == Placement::Kubeshare && (pod.gang().is_some() || policy.cells.is_some()) {
            return Err(Unfit);
        }
        self.follow(snapshot, policy);
        let by_worth = *placement == Placement::Frag;
        let at = self.line(policy, pod, by_worth).ok_or(Unfit)?;
        let line = &mut self.lines[at];
        // What is kept for others for a moment must not be remembered for good.
        let kept = &attempt.kept.nodes;
        if !kept.is_empty() && (line.simple.is_none() || self.special > 0) {
            return Err(Unfit);
        }
        let placer = placer(placement, attempt);
        line.catch_up(snapshot, &self.seats, attempt, &*placer, placement, &mut self.asked);
        let goes_first = |node, best| goes_first(snapshot, placement, node, best);
        let best = match only {
            Some(nodes) => line.best_of(nodes, &*placer, goes_first),
            None => line.best(&*placer, goes_first),
        };
        match best {
            Some(best) if kept.contains_key(&best) => Err(Unfit),
            Some(node) => {
                let seat = self.seats[node.0 as usize].as_ref().filter(|seat| seat.plain);
                let device =
                    line.simple.as_ref().zip(seat).and_then(|(simple, seat)| simple.device(seat, snapshot.worth()));
                Ok(Some(Found { node, device }))
            }
            None => Ok(None),
        }
    }

    /// Brings the seats up to date.
    fn follow(&mut self, snapshot: &Snapshot, policy: &Policy) {
        let same = |old: &Policy| {
            old.placement == policy.placement
                && old.by_pool == policy.by_pool
                && old.max_tasks == policy.max_tasks
                && old.model_priority == policy.model_priority
                && old.cells == policy.cells
        };
        if !self.policy.as_ref().is_some_and(same) {
            *self = Board { policy: Some(policy.clone()), ..Board::default() };
        }
        let worth = snapshot.worth();
        if !self.worth.as_ref().is_some_and(|old| Arc::ptr_eq(old, worth)) {
            (self.worth, self.seats_at) = (Some(worth.clone()), None);
            let by_worth = |line: &&mut Line| matches!(line.ratings, Ratings::Blocks { .. });
            self.lines.iter_mut().filter(by_worth).for_each(|line| line.at = None);
        }
        match self.seats_at.and_then(|at| snapshot.changed_since(at)) {
            Some(changed) => {
                self.seats.resize(snapshot.node_places(), None);
                for ix in changed {
                    let seat = &mut self.seats[ix.0 as usize];
                    self.special -= usize::from(seat.as_ref().is_some_and(|seat| !seat.plain));
                    match (&mut *seat, snapshot.node_at(*ix)) {
                        (Some(seat), Some(state)) => seat.refresh(state, worth),
                        (seat, state) => *seat = state.map(|state| Seat::of(state, worth)),
                    }
                    self.special += usize::from(seat.as_ref().is_some_and(|seat| !seat.plain));
                }
            }
            None => {
                let seat = |i: usize| snapshot.node_at(NodeIx(i as u32)).map(|state| Seat::of(state, worth));
                self.seats = (0..snapshot.node_places()).map(seat).collect();
                self.special = self.seats.iter().flatten().filter(|seat| !seat.plain).count();
            }
        }
        self.seats_at = Some(snapshot.position());
    }

    /// The line of the pod's shape; absent where that is too long to be remembered.
    fn line(&mut self, policy: &Policy, pod: &Pod, by_worth: bool) -> Option<usize> {
        let shape = Shape::of(pod, policy);
        if let Some(at) = self.by_shape.get(&shape) {
            self.lines[*at].used = true;
            return Some(*at);
        }
        if shape.is_longer_than(LONGEST) {
            return None;
        }
        let ratings =
            if by_worth { Ratings::Blocks { all: Vec::new(), best: Vec::new() } } else { Ratings::Plain(Vec::new()) };
        let simple = by_worth.then(|| Simple::of(pod, policy)).flatten();
        let line = Line { shape: shape.clone(), simple, at: None, ratings, used: false };
        let at = self.place(line);
        self.by_shape.insert(shape, at);
        Some(at)
    }

    /// Where a new line stands: at the end, or in the place of the oldest of those that nobody asked for lately.
    fn place(&mut self, line: Line) -> usize {
        let most = (MOST / self.seats.len().max(1)).clamp(1, MOST_LINES);
        if self.lines.len() > most {
            // More nodes came: what is to be kept is found out anew.
            self.lines.clear();
            self.by_shape.clear();
        }
        if self.lines.len() < most {
            self.lines.push(line);
            return self.lines.len() - 1;
        }
        self.oldest %= most;
        while std::mem::take(&mut self.lines[self.oldest].used) {
            self.oldest = (self.oldest + 1) % most;
        }
        let at = self.oldest;
        self.oldest += 1;
        let gone = std::mem::replace(&mut self.lines[at], line);
        self.by_shape.remove(&gone.shape);
        at
    }

    /// Asks all nodes again for all shapes it knows: what a new worth costs, paid at a time of the caller's choosing.
    pub(crate) fn prepare(&mut self, snapshot: &Snapshot, policy: &Policy) {
        self.follow(snapshot, policy);
        for line in &mut self.lines {
            if let Some(simple) = &mut line.simple
                && line.at.is_none()
            {
                simple.meet(snapshot.models());
                // What is not plain is left to the next decision, which has the pod at hand.
                let rate = |seat: &Option<Seat>| match seat {
                    Some(seat) if seat.plain => Some(simple.rate(seat, snapshot.worth()).map_or(NO, |rating| rating.0)),
                    None => Some(NO),
                    Some(_) => None,
                };
                let Some(all) = self.seats.iter().map(rate).collect::<Option<Vec<i32>>>() else { continue };
                line.ratings = Ratings::blocks(all);
                line.at = self.seats_at;
            }
        }
    }
}

/// Where a pod goes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) node: NodeIx,
    /// On which device, where it wants one and that is known without asking the node.
    pub(crate) device: Option<usize>,
}

/// Why a board has no answer: the pod's fate depends on more than single nodes.
#[derive(Debug)]
pub(crate) struct Unfit;

impl Ratings {
    fn blocks(all: Vec<i32>) -> Ratings {
        let best = all.chunks(BLOCK).map(|block| block.iter().copied().max().unwrap_or(NO)).collect();
        Ratings::Blocks { all, best }
    }
}

impl Line {
    fn catch_up(
        &mut self,
        snapshot: &Snapshot,
        seats: &[Option<Seat>],
        attempt: &Attempt<'_>,
        placer: &dyn Placer,
        placement: &Placement,
        asked: &mut Asked,
    ) {
        if let Some(simple) = &mut self.simple {
            simple.meet(snapshot.models());
        }
        let changed = self.at.and_then(|at| snapshot.changed_since(at)).filter(|changed| changed.len() < seats.len());
        self.at = Some(snapshot.position());
        asked.begin(seats.len());
        let simple = self.simple.as_ref();
        let ask = |ix: usize| {
            let state = snapshot.node_at(NodeIx(ix as u32))?;
            attempt.ask_with(placer, placement.name(), NodeIx(ix as u32), state).ok().map(|answer| answer.score)
        };
        let rate = |ix: usize| match (simple, &seats[ix]) {
            (Some(simple), Some(seat)) if seat.plain => {
                simple.rate(seat, snapshot.worth()).map_or(NO, |rating| rating.0)
            }
            (_, None) => NO,
            _ => ask(ix).map_or(NO, |score| (score * f64::from(1 << STEP_BITS)) as i32),
        };
        match (&mut self.ratings, changed) {
            (Ratings::Blocks { all, best }, Some(changed)) => {
                all.resize(seats.len(), NO);
                best.resize(seats.len().div_ceil(BLOCK), NO);
                for ix in changed.iter().filter(|ix| asked.first(**ix)) {
                    let (ix, block) = (ix.0 as usize, ix.0 as usize / BLOCK);
                    let (old, new) = (all[ix], rate(ix));
                    all[ix] = new;
                    if new > best[block] {
                        best[block] = new;
                    } else if old == best[block] && new < old {
                        let end = ((block + 1) * BLOCK).min(all.len());
                        best[block] = all[block * BLOCK..end].iter().copied().max().unwrap_or(NO);
                    }
                }
            }
            (ratings @ Ratings::Blocks { .. }, None) => {
                *ratings = Ratings::blocks((0..seats.len()).map(rate).collect())
            }
            (Ratings::Plain(all), Some(changed)) => {
                all.resize(seats.len(), None);
                for ix in changed.iter().filter(|ix| asked.first(**ix)) {
                    all[ix.0 as usize] = ask(ix.0 as usize);
                }
            }
            (Ratings::Plain(all), None) => *all = (0..seats.len()).map(ask).collect(),
        }
    }

    /// The first of the best, by the order in which they came or by what `goes_first` says.
    fn best(&self, placer: &dyn Placer, goes_first: impl Fn(NodeIx, NodeIx) -> bool) -> Option<NodeIx> {
        match &self.ratings {
            Ratings::Blocks { all, best } => {
                let top = best.iter().copied().max().filter(|top| *top != NO)?;
                let block = best.iter().position(|b| *b == top)?;
                let within = all[block * BLOCK..].iter().position(|rating| *rating == top)?;
                Some(NodeIx((block * BLOCK + within) as u32))
            }
            Ratings::Plain(all) => settled(all, (0..all.len() as u32).map(NodeIx), placer, goes_first),
        }
    }

    /// The first of the best of these nodes, which come in their order.
    fn best_of(
        &self,
        nodes: &[NodeIx],
        placer: &dyn Placer,
        goes_first: impl Fn(NodeIx, NodeIx) -> bool,
    ) -> Option<NodeIx> {
        match &self.ratings {
            Ratings::Blocks { all, .. } => {
                let rated = nodes.iter().map(|node| (all.get(node.0 as usize).copied().unwrap_or(NO), *node));
                let best = rated.reduce(|best, next| if next.0 > best.0 { next } else { best });
                best.filter(|(rating, _)| *rating != NO).map(|(_, node)| node)
            }
            Ratings::Plain(all) => settled(all, nodes.iter().copied(), placer, goes_first),
        }
    }
}

/// The first of the best of these nodes, where a policy makes their scores comparable first.
fn settled(
    all: &[Option<f64>],
    nodes: impl Iterator<Item = NodeIx>,
    placer: &dyn Placer,
    goes_first: impl Fn(NodeIx, NodeIx) -> bool,
) -> Option<NodeIx> {
    let scored = |node: NodeIx| Some((node, (*all.get(node.0 as usize)?)?));
    let (nodes, mut scores): (Vec<NodeIx>, Vec<f64>) = nodes.filter_map(scored).unzip();
    placer.settle(&mut scores);
    first_best(&scores, |i, best| goes_first(nodes[i], nodes[best])).map(|at| nodes[at])
}

#[cfg(test)]
mod tests;

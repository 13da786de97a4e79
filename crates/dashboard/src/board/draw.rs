//! The board as a viewer may see it.

use std::cmp::Reverse;

use divvy_core::ask::Class;
use divvy_core::device::Health;
use divvy_core::snapshot::NodeState;

use super::Board;
use crate::access::Sight;
use crate::show;
use crate::view::{Budget, Card, Cluster, News, Node, Queue, Slice, Update, Waiting};

/// Pods shown of the queue.
const SHOWN: usize = 200;

impl Board {
    /// The whole picture.
    pub fn cluster(&self, sight: &Sight) -> Cluster {
        let mut nodes: Vec<Node> = self.snapshot.nodes().map(|(_, state)| self.node(state, sight)).collect();
        nodes.retain(|node| !node.cards.is_empty() || node.closed.is_some());
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Cluster {
            version: self.version,
            at: self.now.0,
            totals: self.totals.clone(),
            nodes,
            queue: self.queue(sight),
            history: self.history.since(0),
            budgets: self.budgets(sight),
            news: self.news(0, sight),
            demo: self.demo.clone(),
            only: sight.only(),
        }
    }

    /// What changed since a version.
    pub fn update(&self, since: u64, since_at: u64, sight: &Sight) -> Update {
        let changed = self.touched.iter().filter(|(_, at)| **at > since);
        let nodes = changed.filter_map(|(name, _)| Some(self.node(self.snapshot.node(name)?, sight)));
        let gone = self.gone.iter().filter(|(_, at)| **at > since).map(|(name, _)| name.to_string());
        Update {
            version: self.version,
            at: self.now.0,
            totals: self.totals.clone(),
            nodes: nodes.collect(),
            gone: gone.collect(),
            queue: (self.queue_at > since).then(|| self.queue(sight)),
            history: self.history.since(since_at),
            budgets: (self.budgets_at > since).then(|| self.budgets(sight)),
            news: self.news(since, sight),
            demo: self.demo.clone(),
        }
    }

    fn budgets(&self, sight: &Sight) -> Vec<Budget> {
        // One of the whole cluster names no namespace: it is for those who see everything.
        let seen =
            |budget: &&Budget| *sight == Sight::All || budget.namespaces.iter().any(|namespace| sight.sees(namespace));
        self.budgets.iter().filter(seen).cloned().collect()
    }

    fn news(&self, since: u64, sight: &Sight) -> Vec<News> {
        let seen = |news: &&News| match news.about.split_once('/') {
            Some((namespace, _)) => sight.sees(namespace),
            None => true,
        };
        self.news.iter().rev().take_while(|news| news.number > since).filter(seen).cloned().collect()
    }

    fn node(&self, state: &NodeState, sight: &Sight) -> Node {
        let node = state.node();
        let closed = match self.problems.get(&node.name) {
            Some(problem) => Some(problem.clone()),
            None if node.unready => Some("not ready".to_owned()),
            None if node.unschedulable => Some("cordoned".to_owned()),
            None => None,
        };
        let mut cards: Vec<Card> = node
            .inventory
            .devices
            .iter()
            .map(|device| Card {
                id: device.id.to_string(),
                model: device.model.to_string(),
                memory: device.bookable_memory().0 >> 20,
                share: device.bookable_share().0,
                down: match &device.health {
                    Health::Unhealthy { reason } => Some(reason.clone()),
                    Health::Healthy => device.cordoned.then(|| "cordoned".to_owned()),
                },
                slices: Vec::new(),
            })
            .collect();
        let mut pods: Vec<_> = state.pods().iter().filter_map(|ix| self.snapshot.pod_at(*ix)).collect();
        pods.sort_by_key(|state| (state.pod().bound().map(|bound| bound.since), state.pod().uid.clone()));
        for pod in pods {
            let used = self.used.get(&pod.pod().uid);
            let seen = sight.sees(pod.pod().key.namespace.as_str());
            for (index, charge) in pod.charges() {
                let Some(card) = cards.get_mut(*index as usize) else { continue };
                let used = used.and_then(|all| all.iter().find(|used| used.device.as_str() == card.id));
                let memory = if charge.exclusive { card.memory } else { charge.memory.0 >> 20 };
                card.slices.push(Slice {
                    pod: if seen { pod.pod().key.to_string() } else { String::new() },
                    memory,
                    share: if charge.exclusive { card.share } else { charge.share.0 },
                    memory_used: used.map(|used| used.memory.0 >> 20),
                    share_used: used.map(|used| used.share),
                    throttled: used.map_or(0, |used| used.throttled),
                    alone: charge.exclusive,
                    opportunistic: pod.pod().class() == Class::Opportunistic,
                    leaving: pod.pod().bound().is_some_and(|bound| bound.terminating),
                });
            }
        }
        let pool = node.labels.get(divvy_core::keys::POOL);
        Node { name: node.name.to_string(), pool: pool.map(|pool| pool.to_string()).unwrap_or_default(), closed, cards }
    }

    fn queue(&self, sight: &Sight) -> Queue {
        let waiting = self.snapshot.waiting().map(|(_, state)| state.pod());
        let mut pods: Vec<_> =
            waiting.filter(|pod| pod.ask.is_some() && sight.sees(pod.key.namespace.as_str())).collect();
        pods.sort_by_key(|pod| (Reverse(pod.class()), Reverse(pod.spec.priority), pod.created, pod.uid.clone()));
        let all = pods.len() as u32;
        let row = |pod: &divvy_core::pod::Pod| {
            let ask = pod.ask.as_deref()?;
            Some(Waiting {
                pod: pod.key.to_string(),
                since: pod.created.0,
                ask: show::ask(ask),
                dialect: show::word(ask.dialect),
                opportunistic: pod.class() == Class::Opportunistic,
                priority: pod.spec.priority,
                gang: ask.gang.as_ref().map(|gang| format!("{} of {}", gang.name, gang.size)),
                why: self.notes.get(&pod.uid).map(|note| note.why.clone()).unwrap_or_default(),
                help: None,
                when: None,
                nominated: None,
            })
        };
        Queue { all, pods: pods.into_iter().filter_map(row).take(SHOWN).collect() }
    }
}

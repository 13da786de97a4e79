//! Who runs by right, who in gaps, and who has to end.

use std::collections::BTreeMap;

use divvy_cluster::effect::Target;
use divvy_core::ask::Class;
use divvy_core::budget::{Accounting, Standing};
use divvy_core::id::Namespace;
use divvy_core::time::Time;

use super::Treasury;
use crate::calendar::stamp;
use crate::facts::PodFacts;
use crate::write::Write;

/// Milliseconds between two requests to end the same pod, or two writes of the same class.
const AGAIN: u64 = 10_000;

impl Treasury {
    /// What is to be done to pods so that they are in the class their budgets give them.
    pub(super) fn classes(&mut self, now: Time) -> Vec<Write> {
        let Some(accounting) = &self.accounting else { return Vec::new() };
        let mut standings: BTreeMap<&Namespace, Standing> = BTreeMap::new();
        let mut writes = Vec::new();
        let (mut classing, mut stopping) = (Vec::new(), Vec::new());
        for facts in self.pods.values().filter(|facts| facts.asks && !facts.over) {
            let namespace = &facts.key.namespace;
            let standing = standings.entry(namespace).or_insert_with(|| accounting.standing(namespace));
            let target = || Target { pod: facts.key.clone(), uid: facts.uid.clone() };
            let because = |what: &str| match &standing.because {
                Some((key, since)) => format!("budget {key} is used up since {}; {what}", stamp(*since)),
                None => "its budget has something left again".to_owned(),
            };
            if standing.stop {
                if self.stopping.get(&facts.uid).is_none_or(|next| *next <= now) {
                    stopping.push(facts.uid.clone());
                    writes.push(Write::Stop { target: target(), because: because("the pod is stopped") });
                }
                continue;
            }
            let wanted = self.wanted(accounting, facts, standing);
            let under_way = self.classing.get(&facts.uid).is_some_and(|(c, next)| *c == wanted && *next > now);
            if facts.class.is_some_and(|class| class != wanted) && !under_way {
                classing.push((facts.uid.clone(), wanted));
                let because = because("the pod runs on as opportunistic");
                writes.push(Write::Class { target: target(), class: wanted, because });
            }
        }
        let next = Time(now.0 + AGAIN);
        self.stopping.extend(stopping.into_iter().map(|uid| (uid, next)));
        self.classing.extend(classing.into_iter().map(|(uid, class)| (uid, (class, next))));
        writes
    }

    /// The class a pod should be in.
    fn wanted(&self, accounting: &Accounting, facts: &PodFacts, standing: &Standing) -> Class {
        let by_right = facts.wants.unwrap_or(self.class);
        if accounting.covering(&facts.key.namespace).is_empty() {
            return by_right;
        }
        // The grace is for pods that run.
        let waits_in_grace = facts.node.is_none() && standing.grace_until.is_some();
        if standing.class == Class::Opportunistic || waits_in_grace { Class::Opportunistic } else { by_right }
    }
}

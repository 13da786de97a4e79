//! Journals of nodes: read page by page, acknowledged when what they told is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::budget::charges::Unaccounted;
use divvy_core::budget::{Cut, Page};
use divvy_core::grant::Grant;
use divvy_core::id::{Namespace, NodeName};
use divvy_core::time::Time;

use super::Treasury;
use super::charges::SheetKey;
use crate::calendar::exact;

/// How long after a record was written the API server may show its pod for the first time, in milliseconds. Until then the journal is not
/// read beyond it. With less a watch that lags would cost a pod's records; with more a journal with records of pods that nobody saw is
/// read later.
const UNTIL_SEEN: u64 = 300_000;

/// How far a node's journal is read, stored and acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Read up to here.
    read: Option<Cut>,
    /// The node was told that it is stored up to here.
    acknowledged: Option<Cut>,
    /// Sheets that must be stored before the next acknowledgement, with how often they had changed.
    touched: BTreeMap<SheetKey, u64>,
    /// To be acknowledged when these are stored.
    waiting: Option<(Cut, BTreeMap<SheetKey, u64>)>,
    /// When something was last heard of it.
    heard: Option<Time>,
}

impl Reading {
    /// Somebody acknowledged up to here before us.
    pub(super) fn begin(&mut self, cut: Option<Cut>) {
        if self.read.is_none() {
            (self.read, self.acknowledged) = (cut, cut);
        }
    }

    /// What may be acknowledged now.
    pub(super) fn due(&mut self, stored: impl Fn(&SheetKey, u64) -> bool) -> Option<Cut> {
        if self.waiting.is_none() && self.read != self.acknowledged {
            self.waiting = self.read.map(|cut| (cut, std::mem::take(&mut self.touched)));
        }
        let (cut, sheets) = self.waiting.as_mut()?;
        sheets.retain(|key, change| !stored(key, *change));
        sheets.is_empty().then_some(*cut)
    }

    /// It was acknowledged.
    pub(super) fn acknowledged(&mut self, cut: Cut) {
        self.acknowledged = Some(cut);
        self.waiting = None;
    }
}

impl Treasury {
    /// From where a node's journal is to be read on.
    pub fn read_from(&self, node: &NodeName) -> Option<Cut> {
        self.journals.get(node).and_then(|reading| reading.read)
    }

    /// The journal of a node that was asked tells what comes after a cut.
    pub(super) fn page(&mut self, asked: &NodeName, after: Option<Cut>, page: &Page, now: Time) {
        let Some(accounting) = &mut self.accounting else { return };
        let reading = self.journals.entry(asked.clone()).or_default();
        if page.node != *asked {
            tracing::warn!(node = %asked, says = %page.node, "a page of another node's journal is not read");
            return;
        }
        // A page was not read to its end, and this one comes after it.
        if reading.read != after {
            return;
        }
        let mut touched: Vec<(Namespace, Time)> = Vec::new();
        for record in &page.records {
            let namespace = &record.pod.namespace;
            let since = record.until.unwrap_or(record.at).min(record.at).min(now);
            let is_named = |grant: &Arc<Grant>| grant.containers.iter().any(|c| c.name == record.container);
            let known = self.pods.get(&record.uid).is_none_or(|facts| facts.grants.iter().any(is_named));
            if known && accounting.report(asked, record, now) {
                if record.until.is_some() {
                    self.sheets.found(namespace, &record.uid);
                }
                let known_from = accounting.hold(&record.uid).map_or(since, |h| h.ended().unwrap_or(since).min(since));
                touched.push((namespace.clone(), known_from));
            } else if known && now.millis_since(record.at) < UNTIL_SEEN {
                break;
            } else if self.sheets.tells_of_strangers(&self.settings.home, asked, record, now) {
                touched.push((Namespace::from(self.settings.home.as_str()), now));
            }
            reading.read = Some(Cut { epoch: page.epoch, sequence: record.sequence });
        }
        reading.heard = Some(now);
        let oldest = Time(now.0.saturating_sub(self.settings.late));
        for (namespace, since) in touched {
            for (key, change) in self.sheets.touch(&namespace, since.max(oldest), now) {
                reading.touched.insert(key, change);
            }
        }
    }

    /// A node is gone, and with it what its journal has not told.
    pub(super) fn node_gone(&mut self, name: &NodeName, now: Time) {
        let Some(node) = self.nodes.remove(name) else { return };
        let reading = self.journals.remove(name).unwrap_or_default();
        if self.accounting.is_none() || node.agent.is_none() {
            return;
        }
        let from = reading.heard.unwrap_or(now);
        self.lost_journal(name, from, now, "its node is gone, and its journal is read up to here");
    }

    fn lost_journal(&mut self, name: &NodeName, from: Time, now: Time, because: &str) {
        let line = Unaccounted {
            pod: None,
            uid: None,
            node: name.to_string(),
            from: exact(from),
            to: exact(now),
            because: because.to_owned(),
        };
        let home = Namespace::from(self.settings.home.as_str());
        self.sheets.unaccounted(&home, now, line);
        self.sheets.touch(&home, now, now);
    }

    /// Nodes on which pods were charged when the books were last written, and which are gone: what ran there since is not known.
    pub(super) fn miss_nodes(&mut self, now: Time) {
        let Some(accounting) = &self.accounting else { return };
        let mut gone: BTreeMap<NodeName, Time> = BTreeMap::new();
        for hold in accounting.holds().filter(|hold| !self.nodes.contains_key(&hold.node)) {
            let last = hold.ended().unwrap_or(now);
            let known = gone.entry(hold.node.clone()).or_insert(last);
            *known = last.max(*known);
        }
        for (node, from) in gone {
            if !self.sheets.tells_of_node(&node) {
                self.lost_journal(&node, from.min(now), now, "its node is gone, and nobody watched it to the end");
            }
        }
    }
}

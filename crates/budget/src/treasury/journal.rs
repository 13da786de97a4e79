//! Journals of nodes: read page by page, acknowledged when what they told is stored.

use std::collections::BTreeMap;

use divvy_api::budget::charges::Unaccounted;
use divvy_core::budget::{Cut, Page};
use divvy_core::id::{Namespace, NodeName};
use divvy_core::time::Time;

use super::Treasury;
use super::charges::SheetKey;
use crate::calendar::exact;

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

    /// A node's journal tells something.
    pub(super) fn page(&mut self, page: &Page, now: Time) {
        let Some(accounting) = &mut self.accounting else { return };
        let mut touched: Vec<(Namespace, Time)> = Vec::new();
        for record in &page.records {
            let namespace = &record.pod.namespace;
            let since = record.until.unwrap_or(record.at).min(record.at).min(now);
            if accounting.report(&page.node, record) {
                if record.until.is_some() {
                    self.sheets.found(namespace, &record.uid);
                }
                let known_from = accounting.hold(&record.uid).map_or(since, |h| h.ended().unwrap_or(since).min(since));
                touched.push((namespace.clone(), known_from));
            } else {
                let line = Unaccounted {
                    pod: Some(record.pod.name.to_string()),
                    uid: Some(record.uid.to_string()),
                    node: page.node.to_string(),
                    from: exact(record.granted),
                    to: exact(record.until.unwrap_or(record.at)),
                    because: "its node told of it after the books of that time were closed".to_owned(),
                };
                self.sheets.unaccounted(namespace, now, line);
                touched.push((namespace.clone(), now));
            }
        }
        let reading = self.journals.entry(page.node.clone()).or_default();
        reading.heard = Some(now);
        if let Some(cut) = page.cut() {
            reading.read = Some(cut);
        }
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

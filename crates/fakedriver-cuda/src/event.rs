//! Events: what was recorded when, and when it was reached.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use crate::abi::CUgraphEdgeData;
use crate::engine::Mark;
use crate::handles::Handles;

pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    /// How often it was recorded.
    records: u64,
    /// How many of those were reached.
    reached: u64,
    /// When the last one was.
    reached_at: u64,
    /// Where the last record stands, for streams that wait for it.
    pub(crate) mark: Option<Mark>,
    /// The capture in which it was last recorded, with the nodes it stands for.
    pub(crate) captured: Option<(u64, Vec<(u64, CUgraphEdgeData)>)>,
    /// Two words shared with other processes: how often it was recorded, and reached.
    shared: Option<&'static [AtomicU32; 2]>,
}

/// All events of the process.
#[derive(Default)]
pub(crate) struct Events(Handles<Event>);

impl Events {
    pub(crate) fn add(&mut self, id: u64, context: u64, flags: u32) {
        let event =
            Event { context, flags, records: 0, reached: 0, reached_at: 0, mark: None, captured: None, shared: None };
        self.0.insert(id, event);
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Event> {
        self.0.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> bool {
        self.0.remove(&id).is_some()
    }

    pub(crate) fn drop_context(&mut self, context: u64) {
        self.0.retain(|_, e| e.context != context);
    }

    /// A new record of an event; its number goes with the work that will reach it.
    pub(crate) fn record(&mut self, id: u64, mark: Mark) -> u64 {
        let Some(event) = self.0.get_mut(&id) else { return 0 };
        event.records += 1;
        event.mark = Some(mark);
        event.captured = None;
        if let Some([records, _]) = event.shared {
            return u64::from(records.fetch_add(1, SeqCst) + 1);
        }
        event.records
    }

    pub(crate) fn reached(&mut self, id: u64, number: u64, at: u64) {
        let Some(event) = self.0.get_mut(&id) else { return };
        if let Some([_, reached]) = event.shared {
            reached.fetch_max(u32::try_from(number).unwrap_or(0), SeqCst);
            return;
        }
        if event.reached < number {
            event.reached = number;
            event.reached_at = at;
        }
    }
}

impl Event {
    pub(crate) fn is_recorded(&self) -> bool {
        self.records > 0
    }

    pub(crate) fn is_reached(&self) -> bool {
        match self.shared {
            Some([records, reached]) => reached.load(SeqCst) >= records.load(SeqCst),
            None => self.reached == self.records,
        }
    }

    /// The words other processes see, if there are any.
    pub(crate) fn shared(&self) -> Option<&'static [AtomicU32; 2]> {
        self.shared
    }

    /// Shares what is known of it from now on through two words.
    pub(crate) fn share(&mut self, words: &'static [AtomicU32; 2]) {
        words[0].fetch_max(u32::try_from(self.records).unwrap_or(0), SeqCst);
        words[1].fetch_max(u32::try_from(self.reached).unwrap_or(0), SeqCst);
        self.shared = Some(words);
    }

    pub(crate) fn at(&self) -> u64 {
        self.reached_at
    }
}

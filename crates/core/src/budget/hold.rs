//! What a pod held, from when to when, and at what cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::account::AccountKey;
use crate::budget::amount::Amount;
use crate::budget::cost::{Basis, HeldDevice, Tariff};
use crate::budget::report::{Counters, Record};
use crate::id::{ContainerName, DeviceId, NodeName, PodKey, PodUid};
use crate::time::Time;

/// A pod that holds devices, or held some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The pod's identity.
    pub uid: PodUid,
    /// Its name.
    pub pod: PodKey,
    /// Its node.
    pub node: NodeName,
    /// What it held, in order of time: a span lasts until the next begins, the last until the hold ends.
    pub spans: Vec<Span>,
    /// Its owner wanted it opportunistic, whatever the budget says.
    pub by_choice: bool,
    /// When it ended, as the API server knows it.
    pub end: Option<End>,
    /// When it left its node, as the node knows it. Counts where the API server knows nothing.
    pub left: Option<Time>,
    /// When it was last known to be there, where nobody knows more.
    pub lost: Option<Time>,
    /// How busy its containers kept their devices.
    pub busy: Counters,
    /// What its node reported that it holds, for a pod nobody else knew.
    pub reported: BTreeMap<(ContainerName, DeviceId), HeldDevice>,
}

/// The end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The first moment at which it held nothing.
    pub at: Time,
    /// Divvy evicted it to make room for others: its work was lost through no fault of its own.
    pub evicted: bool,
}

/// A stretch of a hold during which nothing about its cost changed, but for the pod's class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first moment.
    pub from: Time,
    /// What was held.
    pub devices: Arc<[HeldDevice]>,
    /// Who pays, and at what rates. The pod is in budget while all of them are.
    pub tariffs: Vec<(AccountKey, Tariff)>,
}

impl Span {
    /// What an account charges for it.
    pub fn tariff(&self, account: &AccountKey) -> Option<&Tariff> {
        self.tariffs.iter().find(|(key, _)| key == account).map(|(_, tariff)| tariff)
    }
}

/// A stretch of one span in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The span's place.
    pub span: usize,
    /// Its first moment.
    pub from: Time,
    /// The first moment after it.
    pub to: Time,
    /// The pod was opportunistic.
    pub opportunistic: bool,
}

impl Hold {
    /// A hold that begins and goes on.
    pub fn new(uid: PodUid, pod: PodKey, node: NodeName, from: Time, devices: Vec<HeldDevice>) -> Hold {
        let spans = vec![Span { from, devices: devices.into(), tariffs: Vec::new() }];
        Hold {
            uid,
            pod,
            node,
            spans,
            by_choice: false,
            end: None,
            left: None,
            lost: None,
            busy: Counters::new(),
            reported: BTreeMap::new(),
        }
    }

    /// A hold nobody but its node knew of.
    pub fn reported(record: &Record, node: &NodeName) -> Hold {
        Hold::new(record.uid.clone(), record.pod.clone(), node.clone(), record.granted, Vec::new())
    }

    /// When it began.
    pub fn from(&self) -> Time {
        self.spans.first().map(|span| span.from).unwrap_or_default()
    }

    /// When it ended, by the best that is known; absent while it goes on.
    pub fn ended(&self) -> Option<Time> {
        let at = self.end.map(|end| end.at).or(self.left).or(self.lost)?;
        Some(at.max(self.from()))
    }

    /// Divvy evicted it.
    pub fn evicted(&self) -> bool {
        self.end.is_some_and(|end| end.evicted)
    }

    /// Takes in a node's record about it. Any order, any number of times: the outcome is the same.
    pub fn tell(&mut self, record: &Record) {
        let key = (record.container.clone(), record.held.device.clone());
        self.busy.entry(key.clone()).or_default().tell(record.at, record.busy);
        self.left = self.left.max(record.until);
        // Reported only: begin and devices are known from records alone.
        if !self.reported.is_empty() || self.spans.iter().all(|span| span.devices.is_empty()) {
            self.reported.insert(key, record.held.clone());
            let from = self.from().min(record.granted);
            let tariffs = Vec::new();
            self.spans = vec![Span { from, devices: together(self.reported.values()).into(), tariffs }];
        }
    }

    /// Its stretches between `from` and `to`, cut where a span ends and where its class changed.
    pub fn pieces(&self, from: Time, to: Time, standings: &impl Standings) -> Vec<Piece> {
        let to = self.ended().map_or(to, |end| end.min(to));
        let mut pieces = Vec::new();
        for (index, span) in self.spans.iter().enumerate() {
            let until = self.spans.get(index + 1).map_or(to, |next| next.from.min(to));
            let mut start = span.from.max(from);
            if start >= until {
                continue;
            }
            let mut out = standings.is_out(span, start);
            for change in standings.changes(span, start, until) {
                let now = standings.is_out(span, change);
                if now != out {
                    pieces.push(self.piece(index, start, change, out));
                    (start, out) = (change, now);
                }
            }
            pieces.push(self.piece(index, start, until, out));
        }
        pieces
    }

    fn piece(&self, span: usize, from: Time, to: Time, out: bool) -> Piece {
        Piece { span, from, to, opportunistic: out || self.by_choice }
    }

    /// What a piece costs an account.
    pub fn cost(&self, piece: &Piece, account: &AccountKey) -> Amount {
        let span = &self.spans[piece.span];
        let Some(tariff) = span.tariff(account) else { return Amount::ZERO };
        match tariff.basis {
            Basis::Held => tariff.rate(piece.opportunistic).over(piece.to.millis_since(piece.from)),
            Basis::Busy => {
                let device = |(key, counter): (&(ContainerName, DeviceId), &crate::budget::report::Counter)| {
                    let index = span.devices.iter().position(|held| held.device == key.1)?;
                    // What the node counted last it may have written after the end.
                    let to = if self.ended() == Some(piece.to) { Time(u64::MAX) } else { piece.to };
                    let busy = counter.until(self.from(), to) - counter.until(self.from(), piece.from);
                    Some(tariff.busy_rate(index, piece.opportunistic).over(busy))
                };
                self.busy.iter().filter_map(device).sum()
            }
        }
    }
}

/// Whoever knows when accounts were out of budget.
pub trait Standings {
    /// Was any of the span's accounts out of budget at this moment?
    fn is_out(&self, span: &Span, at: Time) -> bool;

    /// Moments between `from` and `to` at which that may have changed, in order.
    fn changes(&self, span: &Span, from: Time, to: Time) -> Vec<Time>;
}

/// What several containers hold, device by device.
fn together<'a>(held: impl Iterator<Item = &'a HeldDevice>) -> Vec<HeldDevice> {
    let mut devices: BTreeMap<DeviceId, HeldDevice> = BTreeMap::new();
    for one in held {
        let device = one.device.clone();
        devices
            .entry(device)
            .and_modify(|sum| {
                sum.share.0 = sum.share.0.saturating_add(one.share.0);
                sum.memory.0 = sum.memory.0.saturating_add(one.memory.0);
                sum.alone |= one.alone;
            })
            .or_insert_with(|| one.clone());
    }
    devices.into_values().collect()
}

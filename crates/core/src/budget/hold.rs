//! What a pod held, from when to when, and at what cost.

use std::sync::Arc;

use crate::budget::amount::Amount;
use crate::budget::cost::{Basis, HeldDevice, Tariff};
use crate::budget::report::{Counter, Counters, Record};
use crate::model::id::{AccountKey, DeviceId, NodeName, PodKey, PodUid};
use crate::model::time::Time;

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
}

/// The most counters a node may tell about a pod: containers times devices. Kubernetes' own users have a dozen containers, and a node 16
/// devices; with more, a node that lies could make its pods' books grow without end.
const MOST_COUNTERS: usize = 1024;

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
        Hold { uid, pod, node, spans, by_choice: false, end: None, left: None, lost: None, busy: Counters::new() }
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

    /// Takes in a node's record about it. Any order, any number of times: the outcome is the same. What it holds, and from when on, the
    /// API server has said: of that a record changes nothing.
    pub fn tell(&mut self, record: &Record) {
        self.left = self.left.max(record.until);
        let key = (record.container.clone(), record.held.device.clone());
        let is_held = self.spans.iter().any(|span| span.devices.iter().any(|held| held.device == key.1));
        if is_held && (self.busy.len() < MOST_COUNTERS || self.busy.contains_key(&key)) {
            let at = record.at.max(self.from());
            self.busy.entry(key).or_default().tell(at, record.busy);
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
                let cost = |(index, held): (usize, &HeldDevice)| {
                    tariff.busy_rate(index, piece.opportunistic).over(self.busy_in(piece, &held.device))
                };
                span.devices.iter().enumerate().map(cost).sum()
            }
        }
    }

    /// For how long its containers kept a device busy during a piece, in milliseconds.
    fn busy_in(&self, piece: &Piece, device: &DeviceId) -> u64 {
        // What the node counted last it may have written after the end.
        let to = if self.ended() == Some(piece.to) { Time(u64::MAX) } else { piece.to };
        let busy = |counter: &Counter| counter.until(self.from(), to) - counter.until(self.from(), piece.from);
        let of_device = self.busy.iter().filter(|((_, of), _)| of == device);
        of_device.fold(0, |sum, (_, counter)| sum.saturating_add(busy(counter)))
    }
}

/// Whoever knows when accounts were out of budget.
pub trait Standings {
    /// Was any of the span's accounts out of budget at this moment?
    fn is_out(&self, span: &Span, at: Time) -> bool;

    /// Moments between `from` and `to` at which that may have changed, in order.
    fn changes(&self, span: &Span, from: Time, to: Time) -> Vec<Time>;
}

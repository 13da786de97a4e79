//! The audit trail: who was charged for what, from when to when, and how much.

use std::sync::Arc;

use crate::budget::accounting::Accounting;
use crate::budget::amount::Amount;
use crate::budget::cost::HeldDevice;
use crate::budget::hold::{Hold, Piece};
use crate::model::id::{AccountKey, Namespace, NodeName, PodKey, PodUid};
use crate::model::time::Time;

/// One charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The pod.
    pub pod: PodKey,
    /// Its identity.
    pub uid: PodUid,
    /// Where it ran.
    pub node: NodeName,
    /// What it held.
    pub devices: Arc<[HeldDevice]>,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
    /// It ran opportunistically.
    pub opportunistic: bool,
    /// Who paid how much, in whole millionths; lines of one pod add up.
    pub charged: Vec<(AccountKey, Amount)>,
    /// Who gave back how much: on the last line of a pod that Divvy evicted.
    pub refunded: Vec<(AccountKey, Amount)>,
}

impl Accounting {
    /// The charges for a namespace's pods between two moments.
    pub fn lines(&self, namespace: &Namespace, from: Time, to: Time) -> Vec<Line> {
        let holds = self.holds().filter(|hold| hold.pod.namespace == *namespace);
        holds.flat_map(|hold| self.lines_of(hold, from, to.min(self.at()))).collect()
    }

    /// The charges for one pod between two moments.
    pub fn lines_of(&self, hold: &Hold, from: Time, to: Time) -> Vec<Line> {
        let mut sums: Vec<(AccountKey, Amount)> = Vec::new();
        let mut lines = Vec::new();
        // From the pod's beginning: what is rounded down in one line is made up for in the next.
        for piece in self.pieces_between(hold, hold.from(), to) {
            let cuts = if piece.from < from && from < piece.to { vec![piece.from, from] } else { vec![piece.from] };
            for (index, start) in cuts.iter().enumerate() {
                let end = cuts.get(index + 1).copied().unwrap_or(piece.to);
                let part = Piece { from: *start, to: end, ..piece };
                let span = &hold.spans[piece.span];
                let mut charged = Vec::new();
                for (key, _) in &span.tariffs {
                    let at = sums.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
                        sums.push((key.clone(), Amount::ZERO));
                        sums.len() - 1
                    });
                    let before = sums[at].1;
                    sums[at].1 += hold.cost(&part, key);
                    charged.push((key.clone(), Amount::micros(sums[at].1.floor_micros() - before.floor_micros())));
                }
                if *start >= from {
                    lines.push(Line {
                        pod: hold.pod.clone(),
                        uid: hold.uid.clone(),
                        node: hold.node.clone(),
                        devices: span.devices.clone(),
                        from: *start,
                        to: end,
                        opportunistic: piece.opportunistic,
                        charged,
                        refunded: Vec::new(),
                    });
                }
            }
        }
        if let Some(last) = lines.last_mut()
            && hold.ended() == Some(last.to)
        {
            let refunds = sums.iter().map(|(key, _)| (key.clone(), self.refund(hold, key)));
            last.refunded = refunds.filter(|(_, amount)| *amount > Amount::ZERO).collect();
        }
        lines
    }
}

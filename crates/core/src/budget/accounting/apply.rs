//! What a hold adds to the buckets of the accounts that pay for it.

use crate::budget::account::Account;
use crate::budget::accounting::Accounting;
use crate::budget::amount::Amount;
use crate::budget::hold::{Hold, Piece};
use crate::model::id::{AccountKey, PodUid};
use crate::model::time::Time;

/// What a hold adds to one bucket.
struct Part {
    /// A moment in the bucket.
    at: Time,
    spent: Amount,
    refunded: Amount,
}

impl Accounting {
    /// Changes what is known of a hold: takes out what it added, changes it, adds it again.
    pub(super) fn amend(&mut self, uid: &PodUid, change: impl FnOnce(&Accounting, &mut Hold)) {
        let Some(mut hold) = self.holds.get(uid).cloned() else { return };
        self.apply(uid, false);
        change(self, &mut hold);
        // What ended before the sums were drawn is in them; it cannot end there any more.
        let drawn = hold.spans.iter().flat_map(|s| &s.tariffs).filter_map(|(key, _)| self.account(key));
        if let (Some(drawn), Some(end)) = (drawn.map(|account| account.through).max(), hold.ended())
            && end < drawn
        {
            let evicted = hold.evicted();
            hold.end = Some(crate::budget::hold::End { at: drawn, evicted });
        }
        self.holds.insert(uid.clone(), hold);
        self.apply(uid, true);
    }

    /// Adds what a hold has cost until now to the buckets, or takes it out again.
    pub(super) fn apply(&mut self, uid: &PodUid, add: bool) {
        let Some(hold) = self.holds.get(uid) else { return };
        for key in payers(hold) {
            let Some(account) = self.accounts.0.get(&key) else { continue };
            let parts = self.parts(hold, &key, account);
            let Some(account) = self.accounts.0.get_mut(&key) else { continue };
            for part in parts {
                if let Some(bucket) = account.bucket_at(part.at) {
                    if add {
                        bucket.spent += part.spent;
                        bucket.refunded += part.refunded;
                    } else {
                        bucket.spent -= part.spent;
                        bucket.refunded -= part.refunded;
                    }
                }
            }
        }
    }

    /// What a hold adds to an account's buckets, one part per bucket and piece.
    fn parts(&self, hold: &Hold, key: &AccountKey, account: &Account) -> Vec<Part> {
        if account.has_folded(hold) {
            return Vec::new();
        }
        let mut parts = Vec::new();
        for piece in self.pieces(hold, account) {
            for bucket in &account.buckets {
                let (from, to) = (piece.from.max(bucket.start), piece.to.min(bucket.end));
                if from < to {
                    let spent = hold.cost(&Piece { from, to, ..piece }, key);
                    parts.push(Part { at: from, spent, refunded: Amount::ZERO });
                }
            }
        }
        let refunded = self.refund(hold, key);
        if refunded > Amount::ZERO
            && let Some(end) = hold.ended()
        {
            parts.push(Part { at: last(end), spent: Amount::ZERO, refunded });
        }
        parts
    }

    fn pieces(&self, hold: &Hold, account: &Account) -> Vec<Piece> {
        let oldest = account.buckets.front().map_or(Time(0), |bucket| bucket.start);
        self.pieces_between(hold, oldest, self.at)
    }

    /// A hold's stretches between two moments, cut where its cost or class changed.
    pub(in crate::budget) fn pieces_between(&self, hold: &Hold, from: Time, to: Time) -> Vec<Piece> {
        hold.pieces(from, to, &self.accounts)
    }

    /// What an account gives back for a hold: a part of what it charged for the last stretch before an eviction.
    pub fn refund(&self, hold: &Hold, key: &AccountKey) -> Amount {
        let Some(account) = self.account(key) else { return Amount::ZERO };
        let (Some(end), true) = (hold.ended().filter(|end| *end <= self.at), hold.evicted()) else {
            return Amount::ZERO;
        };
        let Some(from) = account.refunds_from(end) else { return Amount::ZERO };
        let pieces = self.pieces_between(hold, from, end);
        let charged: Amount = pieces.iter().map(|piece| hold.cost(piece, key)).sum();
        charged.percent(account.terms.refunds.percent.min(100))
    }

    /// What a hold has cost an account until now, refunds not taken off.
    pub fn cost(&self, hold: &Hold, key: &AccountKey) -> Amount {
        self.pieces_between(hold, hold.from(), self.at).iter().map(|piece| hold.cost(piece, key)).sum()
    }

    /// A hold has just ended: what is given back for it is added.
    pub(super) fn give_back(&mut self, uid: &PodUid) {
        let Some(hold) = self.holds.get(uid).filter(|hold| hold.evicted()) else { return };
        let Some(end) = hold.ended() else { return };
        let counts = |key: &AccountKey| self.account(key).is_some_and(|account| !account.has_folded(hold));
        let refunds: Vec<(AccountKey, Amount)> =
            payers(hold).into_iter().filter(counts).map(|key| (key.clone(), self.refund(hold, &key))).collect();
        for (key, refunded) in refunds {
            if let Some(bucket) = self.accounts.0.get_mut(&key).and_then(|account| account.bucket_at(last(end))) {
                bucket.refunded += refunded;
            }
        }
    }

    /// Keeps only sums of holds that ended before `through`. What was known of them is stored elsewhere by then, and every account was
    /// stored since this was last called: only then it is forgotten when they were out before that, for one that was stored earlier would
    /// have to count again what depends on when the others were out.
    pub fn fold(&mut self, through: Time) {
        let ended = |hold: &&Hold| hold.ended().is_some_and(|end| end < through);
        let folding: Vec<PodUid> = self.holds.values().filter(ended).map(|hold| hold.uid.clone()).collect();
        for uid in folding {
            let Some(hold) = self.holds.get(&uid) else { continue };
            for key in payers(hold) {
                let Some(account) = self.accounts.0.get(&key) else { continue };
                let parts = self.parts(hold, &key, account);
                let Some(account) = self.accounts.0.get_mut(&key) else { continue };
                for part in parts {
                    if let Some(bucket) = account.bucket_at(part.at) {
                        bucket.folded.0 += part.spent;
                        bucket.folded.1 += part.refunded;
                    }
                }
            }
            self.holds.remove(&uid);
        }
        let first_hold = self.holds.values().map(Hold::from).min().unwrap_or(through).min(through);
        for account in self.accounts.0.values_mut() {
            account.through = account.through.max(through);
            account.timeline.forget(self.forgettable);
        }
        self.forgettable = self.forgettable.max(first_hold);
    }
}

/// The last moment before `end`: what ends at the very turn belongs to the period that paid.
fn last(end: Time) -> Time {
    Time(end.0.saturating_sub(1))
}

/// The accounts that pay for a hold.
fn payers(hold: &Hold) -> Vec<AccountKey> {
    let mut keys: Vec<AccountKey> = hold.spans.iter().flat_map(|s| &s.tariffs).map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys.dedup();
    keys
}

//! When a balance will be used up, and how it came to where it is.

use crate::budget::accounting::Accounting;
use crate::budget::amount::{Amount, Rate};
use crate::budget::hold::Hold;
use crate::model::id::AccountKey;
use crate::model::time::Time;

/// What to expect of an account if everything stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// What flows out now.
    pub rate: Rate,
    /// When nothing will be left; absent where it lasts until the period turns.
    pub empty_at: Option<Time>,
    /// When the period turns.
    pub turns_at: Time,
}

impl Accounting {
    /// What to expect of an account, given what flows out now.
    pub fn forecast(&self, key: &AccountKey, rate: Rate) -> Option<Forecast> {
        let account = self.account(key)?;
        let (_, turns_at) = account.period()?;
        let empty_at = match account.empty_since {
            Some(since) => Some(since),
            None => {
                let lasts = account.balance(self.at()).left().lasts(rate);
                lasts.map(|millis| Time(self.at().0.saturating_add(millis))).filter(|at| *at < turns_at)
            }
        };
        Some(Forecast { rate, empty_at, turns_at })
    }

    /// How the balance of the current period came down, at so many moments of equal distance until now. What is known only as a
    /// sum stands at the period's beginning.
    pub fn burn_down(&self, key: &AccountKey, points: u64) -> Vec<(Time, Amount)> {
        let Some(account) = self.account(key) else { return Vec::new() };
        let Some((start, _)) = account.period() else { return Vec::new() };
        let (balance, passed) = (account.balance(self.at()), self.at().millis_since(start));
        let moment = |i: u64| Time(start.0 + passed * i / points.max(1));
        let of_account = |hold: &&Hold| hold.spans.iter().any(|span| span.tariffs.iter().any(|(k, _)| k == key));
        let holds: Vec<&Hold> = self.holds().filter(of_account).collect();
        // From the present backwards: what was charged after a moment was still there then.
        let later = |at: Time| -> Amount {
            let pieces = holds
                .iter()
                .flat_map(|hold| self.pieces_between(hold, at, self.at()).into_iter().map(move |p| (hold, p)));
            pieces.map(|(hold, piece)| hold.cost(&piece, key)).sum()
        };
        let entries = |at: Time| -> Amount {
            account.entries.values().filter(|entry| entry.at > at && entry.at <= self.at()).map(|e| e.signed()).sum()
        };
        (0..=points).map(moment).map(|at| (at, balance.left() + later(at) - entries(at))).collect()
    }
}

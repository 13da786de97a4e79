//! Where more of a card's time was promised than there is (over-subscription), everybody has the same part of what it was promised.

use std::collections::BTreeMap;

/// How much of each card was promised in all, in thousandths.
#[derive(Debug, Default)]
pub(super) struct Promised<'a>(BTreeMap<&'a str, u32>);

impl<'a> Promised<'a> {
    /// The sum of what each tenant was promised of each card.
    pub(super) fn sum(all: impl IntoIterator<Item = (&'a str, u32)>) -> Promised<'a> {
        let mut sums = BTreeMap::new();
        for (card, request) in all {
            let sum: &mut u32 = sums.entry(card).or_default();
            *sum = sum.saturating_add(request);
        }
        Promised(sums)
    }

    /// What a tenant of these cards can count on of what it asked for: by the card of which most was promised, for it holds all its cards
    /// together. Who was promised something has something.
    pub(super) fn keep<'b>(&self, request: u32, cards: impl Iterator<Item = &'b str>) -> u32 {
        let most = cards.filter_map(|card| self.0.get(card)).max().copied().unwrap_or(0).max(1000);
        let kept = u64::from(request) * 1000 / u64::from(most);
        u32::try_from(kept).unwrap_or(request).max(request.min(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_promised_time_is_kept_in_proportion_and_other_time_as_it_was_promised() {
        let promised = Promised::sum([("a", 900), ("a", 600), ("b", 400), ("b", 600), ("c", 60_000), ("c", 1)]);
        let keep = |request, cards: &[&'static str]| promised.keep(request, cards.iter().copied());
        assert_eq!((keep(900, &["a"]), keep(600, &["a"])), (600, 400));
        assert_eq!((keep(400, &["b"]), keep(600, &["b"])), (400, 600));
        assert_eq!(keep(600, &["b", "a"]), 400, "its fullest card counts for all");
        assert_eq!((keep(1, &["c"]), keep(0, &["c"])), (1, 0));
        assert_eq!(keep(700, &["unknown"]), 700);
    }
}

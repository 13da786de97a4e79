//! Decimals as labels carry them (`0.5`, `2`, `10.0`), exactly. KubeShare computed with floats and lost a sliver of a card at each turn.

use std::fmt;

use divvy_core::units::Share;

/// A decimal number, not below zero. Ordered as numbers are: the whole part, then the digits after the point (without zeros at the end,
/// text order is number order).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decimal {
    whole: u32,
    fraction: String,
}

impl Decimal {
    pub(super) fn zero() -> Decimal {
        Decimal { whole: 0, fraction: String::new() }
    }

    /// Digits, or digits, a point and digits.
    pub(super) fn read(text: &str) -> Option<Decimal> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) {
            return None;
        }
        Some(Decimal { whole: whole.parse().ok()?, fraction: fraction.trim_end_matches('0').to_owned() })
    }

    pub(super) fn is_above_one(&self) -> bool {
        self.whole > 1 || (self.whole == 1 && !self.fraction.is_empty())
    }

    /// The number, if it is whole.
    pub(super) fn whole(&self) -> Option<u32> {
        self.fraction.is_empty().then_some(self.whole)
    }

    fn thousandths(&self) -> u64 {
        let digits: String = self.fraction.chars().chain("000".chars()).take(3).collect();
        u64::from(self.whole) * 1000 + digits.parse::<u64>().unwrap_or(0)
    }

    /// As a share of one device: rounded down, so that thirds add up to no more than a card, but never to nothing.
    pub(super) fn share(&self) -> Share {
        let floor = self.thousandths().min(1000) as u32;
        Share(if floor == 0 && *self != Decimal::zero() { 1 } else { floor })
    }

    /// `floor(self * count + 0.5)`.
    pub(super) fn of_rounded(&self, count: u32) -> Option<u32> {
        let digits: String = self.fraction.chars().chain("000000000".chars()).take(9).collect();
        let billionths = u128::from(self.whole) * 1_000_000_000 + digits.parse::<u128>().ok()?;
        u32::try_from((billionths * u128::from(count) + 500_000_000) / 1_000_000_000).ok()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fraction.as_str() {
            "" => write!(f, "{}", self.whole),
            fraction => write!(f, "{}.{fraction}", self.whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_kubeshare_accepted_is_accepted() {
        for text in [
            "0.5", "0.50", "00.5", "0.05", "0.0", "1", "1.0", "1.00", "2", "2.0", "3.0", "10.0", "12", "99", "000",
            "001",
        ] {
            assert!(Decimal::read(text).is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_no_plain_decimal_is_not_read() {
        for text in ["", ".5", "0.", "1.", "1e1", "-1", "+1", "0x5", "0,5", " 1", "1.2.3", "½", "99999999999"] {
            assert_eq!(Decimal::read(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_compare_as_numbers_however_they_are_spelled() {
        let read = |text| Decimal::read(text).unwrap();
        assert_eq!(read("2"), read("2.0"));
        assert_eq!(read("0.5"), read("00.500"));
        assert!(read("0.3") > read("0.29"));
        assert!(read("0.3") < read("0.33"));
        assert!(read("10") > read("9.9"));
    }

    #[test]
    fn shares_round_down_but_not_to_nothing() {
        for (text, share) in
            [("0.5", 500), ("0.3333", 333), ("0.9999", 999), ("1.0", 1000), ("3", 1000), ("0.0001", 1), ("0.0", 0)]
        {
            assert_eq!(Decimal::read(text).unwrap().share(), Share(share), "{text}");
        }
    }
}

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

    /// What Go reads as a float and a label can carry: besides plain decimals `.5`, `1.` and `5e-1`.
    pub(super) fn read_float(text: &str) -> Option<Decimal> {
        const FAR: i32 = 30;
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok().filter(|by| by.abs() <= FAR)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        // With zeros enough on both sides the point can be moved wherever the exponent says.
        let padded = format!("{0}{digits}{0}0", "0".repeat(FAR as usize));
        let point = usize::try_from(i32::try_from(whole.len()).ok()? + FAR + exponent).ok()?;
        let (whole, fraction) = padded.split_at(point);
        Decimal::read(&format!("{whole}.{fraction}"))
    }

    pub(super) fn is_above_one(&self) -> bool {
        self.whole > 1 || (self.whole == 1 && !self.fraction.is_empty())
    }

    /// The number, if it is whole.
    pub(super) fn whole(&self) -> Option<u32> {
        self.fraction.is_empty().then_some(self.whole)
    }

    /// In billionths; what is finer is left out.
    fn billionths(&self) -> u64 {
        let digits: String = self.fraction.chars().chain("000000000".chars()).take(9).collect();
        u64::from(self.whole) * 1_000_000_000 + digits.parse::<u64>().unwrap_or(0)
    }

    /// As what a limit leaves of one device: rounded down, but never to nothing.
    pub(super) fn limit(&self) -> Share {
        let floor = (self.billionths() / 1_000_000).min(1000) as u32;
        Share(if floor == 0 && *self != Decimal::zero() { 1 } else { floor })
    }

    /// As what is booked of one device: rounded up, so that no more pods share a card than their requests add up to; yet as many as
    /// exactly fit do, three of 0.3333 among them.
    pub(super) fn request(&self) -> Share {
        if *self == Decimal::zero() {
            return Share::ZERO;
        }
        let billionths = self.billionths().clamp(1, 1_000_000_000);
        let together = 1_000_000_000 / billionths;
        Share(billionths.div_ceil(1_000_000).min(1000 / together).max(1) as u32)
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
    fn limits_round_down_but_not_to_nothing() {
        for (text, share) in
            [("0.5", 500), ("0.3333", 333), ("0.9999", 999), ("1.0", 1000), ("3", 1000), ("0.0001", 1), ("0.0", 0)]
        {
            assert_eq!(Decimal::read(text).unwrap().limit(), Share(share), "{text}");
        }
    }

    #[test]
    fn requests_round_up_as_long_as_those_who_fit_exactly_still_do() {
        for (text, share) in [
            ("0.5", 500),
            ("0.3333", 333),
            ("0.33333333333333", 333),
            ("0.3334", 334),
            ("0.3335", 334),
            ("0.1428", 142),
            ("0.1429", 143),
            ("0.9999", 1000),
            ("1.0", 1000),
            ("0.0001", 1),
            ("0.00000000000001", 1),
            ("0.0", 0),
        ] {
            assert_eq!(Decimal::read(text).unwrap().request(), Share(share), "{text}");
        }
    }

    #[test]
    fn floats_are_read_as_go_reads_them() {
        for (text, plain) in [("1e0", "1"), ("5e-1", "0.5"), (".5", "0.5"), ("1.", "1"), ("0.25E+1", "2.5"), ("2", "2")]
        {
            assert_eq!(Decimal::read_float(text), Decimal::read(plain), "{text}");
        }
        for text in ["", ".", "e1", "1e", "1e99", "-1", "0x1p-2", "half", "1.2.3", "9e30"] {
            assert_eq!(Decimal::read_float(text), None, "{text}");
        }
    }
}

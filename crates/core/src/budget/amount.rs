//! Amounts of GPU time or money, exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// Millionths of a device, milliseconds per hour, hundredths of a price: one millionth of a unit, cut so fine that no cost of a
/// whole number of milliseconds ever has to be rounded.
const QUANTA_PER_MICRO: i128 = 1_000_000 * 3_600_000 * 100;

/// An amount in a budget's unit: GPU seconds, or a currency. Exact: it counts parts so small that every cost is a whole number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);

    /// So many millionths of a unit.
    pub const fn micros(micros: i64) -> Amount {
        Amount(micros as i128 * QUANTA_PER_MICRO)
    }

    /// So many units.
    pub const fn units(units: i64) -> Amount {
        Amount((units as i128 * 1_000_000).saturating_mul(QUANTA_PER_MICRO))
    }

    /// Whole millionths in it, rounded down; what people and JSON see.
    pub fn floor_micros(self) -> i64 {
        i64::try_from(self.0.div_euclid(QUANTA_PER_MICRO)).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX })
    }

    /// `percent` hundredths of it, rounded down to a quantum.
    pub fn percent(self, percent: u8) -> Amount {
        // Hundreds and the rest by themselves: the product of a large amount would not fit.
        let percent = i128::from(percent);
        let (hundreds, rest) = (self.0.div_euclid(100), self.0.rem_euclid(100));
        Amount(hundreds.saturating_mul(percent).saturating_add((rest * percent).div_euclid(100)))
    }

    /// As text that loses nothing, for whoever must store it.
    pub fn exact(self) -> String {
        self.0.to_string()
    }

    /// Reads what [`Amount::exact`] wrote.
    pub fn from_exact(text: &str) -> Option<Amount> {
        text.parse().ok().map(Amount)
    }

    /// Reads a decimal number with at most six decimals: `150`, `-2.5`.
    pub fn parse(text: &str) -> Option<Amount> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let number = |s: &str| !s.is_empty() && s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
        if !number(whole) || (digits.contains('.') && !number(part)) || part.len() > 6 {
            return None;
        }
        let micros = whole.parse::<i64>().ok()? * 1_000_000 + format!("{part:0<6}").parse::<i64>().ok()?;
        Some(Amount::micros(if negative { -micros } else { micros }))
    }

    /// Milliseconds until this amount is used up at a rate: the first at which nothing is left. None at no rate.
    pub fn lasts(self, rate: Rate) -> Option<u64> {
        if self.0 <= 0 {
            return Some(0);
        }
        let rate = i128::try_from(rate.0).ok().filter(|rate| *rate > 0)?;
        Some(u64::try_from((self.0 - 1) / rate + 1).unwrap_or(u64::MAX))
    }
}

impl Add for Amount {
    type Output = Amount;
    fn add(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Amount;
    fn sub(self, other: Amount) -> Amount {
        Amount(self.0.saturating_sub(other.0))
    }
}

impl Neg for Amount {
    type Output = Amount;
    fn neg(self) -> Amount {
        Amount(self.0.saturating_neg())
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Amount) {
        *self = *self - other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(amounts: I) -> Amount {
        amounts.fold(Amount::ZERO, Add::add)
    }
}

/// `2.5`; rounded down to millionths, without needless zeros.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.floor_micros();
        let (whole, part) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
        if micros < 0 {
            f.write_str("-")?;
        }
        if part == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{part:06}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// What a millisecond costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u128);

impl Rate {
    /// What `millis` cost.
    pub fn over(self, millis: u64) -> Amount {
        Amount(i128::try_from(self.0.saturating_mul(u128::from(millis))).unwrap_or(i128::MAX))
    }

    /// What an hour costs.
    pub fn hourly(self) -> Amount {
        self.over(3_600_000)
    }

    /// A `part` (millionths) of a device at this price, at `percent` hundredths of it.
    pub fn of(part: u64, price: Price, percent: u8) -> Rate {
        Rate((u128::from(part) * u128::from(price.0)).saturating_mul(u128::from(percent)))
    }
}

impl Add for Rate {
    type Output = Rate;
    fn add(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Rate>>(rates: I) -> Rate {
        rates.fold(Rate::default(), Add::add)
    }
}

/// What an hour of a whole device costs, in millionths of the budget's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(pub u64);

impl Price {
    /// GPU time itself: an hour of a device costs 3600 GPU seconds.
    pub const TIME: Price = Price(3_600_000_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_and_shown_exactly() {
        for text in ["0", "150", "2.5", "-2.5", "0.000001", "999999999999", "-0.25"] {
            assert_eq!(Amount::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "-", ".5", "5.", "1e3", "1.2345678", "1,5", " 1", "+1", "1.-5", "9999999999999"] {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
        assert_eq!(Amount::from_exact(&Amount::micros(-7).exact()), Some(Amount::micros(-7)));
    }

    #[test]
    fn an_hour_of_a_device_costs_its_price_however_it_is_cut() {
        let rate = Rate::of(1_000_000, Price(2_500_000), 100);
        assert_eq!(rate.hourly(), Amount::micros(2_500_000));
        let pieces: Amount = (0..3_600_000u64 / 7).map(|_| rate.over(7)).sum();
        assert_eq!(pieces + rate.over(3_600_000 % 7), rate.hourly());
    }

    #[test]
    fn an_amount_lasts_until_the_first_millisecond_at_which_nothing_is_left() {
        let second = Rate::of(1_000_000, Price::TIME, 100);
        assert_eq!(Amount::units(10).lasts(second), Some(10_000));
        assert_eq!((Amount::units(10) + Amount(1)).lasts(second), Some(10_001));
        assert_eq!(Amount::ZERO.lasts(second), Some(0));
        assert_eq!(Amount::units(10).lasts(Rate::default()), None);
    }
}

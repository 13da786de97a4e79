//! Kubernetes quantities, however they are written (`8Gi`, `1e3`, `2000m`), of any length and with any exponent.
//!
//! Exact: no floats, and nothing is cut off before it is known what it amounts to.

/// Why a quantity is not a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misread {
    /// Not a quantity at all.
    Malformed,
    /// Below zero.
    Negative,
    /// Between two whole numbers.
    Fraction,
    /// Beyond what Kubernetes can hold (2^63 - 1).
    TooLarge,
}

/// The largest number that Kubernetes can hold: larger ones count as this.
pub const LARGEST: u64 = i64::MAX as u64;

/// The whole number a quantity stands for, as extended resources need it: what Kubernetes would round up or cut off is refused.
pub(crate) fn whole(text: &str) -> Result<u64, Misread> {
    let quantity = Quantity::read(text).ok_or(Misread::Malformed)?;
    match quantity.split(0) {
        (Some(0), false) => Ok(0),
        _ if quantity.negative => Err(Misread::Negative),
        (None, _) => Err(Misread::TooLarge),
        (Some(_), true) => Err(Misread::Fraction),
        (Some(whole), false) => Ok(whole),
    }
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    negative: bool,
    /// Decimal digits, the most significant first, without leading zeros.
    digits: Vec<u8>,
    /// The power of ten that they are multiplied by.
    tens: i64,
}

impl Quantity {
    /// Reads one; nothing where it is none.
    pub fn read(text: &str) -> Option<Quantity> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (before, after) = number.split_once('.').unwrap_or((number, ""));
        if (before.is_empty() && after.is_empty()) || after.contains('.') {
            return None;
        }
        let (tens, twos) = scale(suffix)?;
        let digits = before.bytes().chain(after.bytes()).map(|digit| digit - b'0');
        let digits = doubled(digits.skip_while(|digit| *digit == 0).collect(), twos);
        Some(Quantity { negative, digits, tens: tens.saturating_sub(after.len() as i64) })
    }

    /// `10^tens` times the number, rounded up to a whole one: nothing where it is below zero, [`LARGEST`] where it is larger than that.
    pub fn rounded_up(&self, tens: u32) -> u64 {
        match self.split(tens) {
            _ if self.negative => 0,
            (Some(whole), fraction) => whole.saturating_add(u64::from(fraction)).min(LARGEST),
            (None, _) => LARGEST,
        }
    }

    /// The whole part of `10^tens` times the number, absent where it is more than [`LARGEST`]; and whether something is left.
    fn split(&self, tens: u32) -> (Option<u64>, bool) {
        let tens = self.tens.saturating_add(i64::from(tens));
        let places = (self.digits.len() as i64).saturating_add(tens);
        if self.digits.is_empty() || places <= 0 {
            return (Some(0), !self.digits.is_empty());
        }
        if places > 19 {
            // 2^63 has nineteen digits.
            return (None, false);
        }
        let (whole, part) = self.digits.split_at(self.digits.len().min(places as usize));
        let zeros = std::iter::repeat_n(&0, places as usize - whole.len());
        let value = whole.iter().chain(zeros).fold(0u64, |value, digit| value * 10 + u64::from(*digit));
        (Some(value).filter(|value| *value <= LARGEST), part.iter().any(|digit| *digit != 0))
    }
}

/// Digits, the most significant first, times a power of two up to the sixtieth.
fn doubled(mut digits: Vec<u8>, twos: u32) -> Vec<u8> {
    let mut carry = 0u64;
    for digit in digits.iter_mut().rev() {
        let value = (u64::from(*digit) << twos) + carry;
        (*digit, carry) = ((value % 10) as u8, value / 10);
    }
    let before: Vec<u8> = carry.to_string().bytes().map(|digit| digit - b'0').skip_while(|digit| *digit == 0).collect();
    digits.splice(0..0, before);
    digits
}

/// A suffix as a power of ten and a power of two.
fn scale(suffix: &str) -> Option<(i64, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => (-1, digits),
                None => (1, exponent.strip_prefix('+').unwrap_or(exponent)),
            };
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent that does not fit is as far away as one can be.
            (sign * digits.parse::<i64>().unwrap_or(i64::from(i32::MAX)).min(i64::from(i32::MAX)), 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    /// A natural number of any size: digits to the base 2^32, the least significant first.
    #[derive(Clone, Debug)]
    struct Big(Vec<u32>);

    impl Big {
        fn of(decimal: &str) -> Big {
            decimal.bytes().fold(Big(Vec::new()), |big, digit| big.times(10).plus(u32::from(digit - b'0')))
        }

        fn times(&self, factor: u64) -> Big {
            let mut carry = 0u128;
            let mut digits = Vec::new();
            for digit in &self.0 {
                let value = u128::from(*digit) * u128::from(factor) + carry;
                digits.push(value as u32);
                carry = value >> 32;
            }
            while carry > 0 {
                digits.push(carry as u32);
                carry >>= 32;
            }
            Big(digits)
        }

        fn plus(mut self, more: u32) -> Big {
            let mut carry = more;
            for digit in &mut self.0 {
                let (sum, over) = digit.overflowing_add(carry);
                (*digit, carry) = (sum, u32::from(over));
            }
            self.0.extend((carry > 0).then_some(carry));
            self
        }

        fn cmp(&self, other: &Big) -> Ordering {
            let trimmed = |big: &Big| {
                let len = big.0.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
                big.0[..len].iter().rev().copied().collect::<Vec<u32>>()
            };
            let (a, b) = (trimmed(self), trimmed(other));
            a.len().cmp(&b.len()).then(a.cmp(&b))
        }
    }

    /// A number times a power of ten, as a fraction of natural numbers.
    fn fraction(before: &str, after: &str, suffix: &str, tens: u32) -> (Big, Big) {
        let (power, twos) = scale(suffix).unwrap();
        let power = power + i64::from(tens) - after.len() as i64;
        let ten_to = |power: i64| (0..power.max(0)).fold(Big(vec![1]), |big, _| big.times(10));
        let mut above = Big::of(&format!("{before}{after}")).times(1 << twos);
        (0..power.max(0)).for_each(|_| above = above.times(10));
        (above, ten_to(-power))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_written_is_rounded_up_and_cut_off_at_the_largest(
            before in prop_oneof!["0{0,3}[0-9]{1,45}", "[0-9]{1,4}"],
            after in prop_oneof![Just(String::new()), "[0-9]{1,65}"],
            suffix in prop_oneof![
                prop::sample::select(&["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][..])
                    .prop_map(str::to_owned),
                (-50i32..50).prop_map(|power| format!("e{power}")),
            ],
            tens in prop::sample::select(&[0u32, 3][..]),
        ) {
            let text = format!("{before}.{after}{suffix}");
            let found = Quantity::read(&text).unwrap().rounded_up(tens);
            let (above, below) = fraction(&before, &after, &suffix, tens);
            // The least whole number that is not below it.
            let at_most = |whole: u64| above.cmp(&below.times(whole)) != Ordering::Greater;
            prop_assert!(found == LARGEST || at_most(found), "{} is more than {}", text, found);
            prop_assert!(found == 0 || !at_most(found - 1), "{} is at most {}", text, found - 1);
            let exact = |whole: u64| above.cmp(&below.times(whole)) == Ordering::Equal;
            if tens == 0 {
                match whole(&text) {
                    Ok(number) => prop_assert!(exact(number), "{} is not {}", text, number),
                    Err(why) => {
                        prop_assert!(!exact(found), "{} is {}", text, found);
                        prop_assert_eq!(why == Misread::TooLarge, !at_most(LARGEST), "{}", text);
                    }
                }
            }
        }
    }

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("+7", 7),
            ("007", 7),
            ("8Gi", 8 << 30),
            ("1.5Gi", 3 << 29),
            ("0.5Ki", 512),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("10G", 10_000_000_000),
            ("2000m", 2),
            ("3.0", 3),
            (".5k", 500),
            ("5.", 5),
            ("0e999999999999999999999", 0),
            ("9223372036854775807", i64::MAX as u64),
            ("0.00000000000000000867361737988403547205962240695953369140625Ei", 10),
            ("0.5962240695953369140625Ei", 687_399_551_400_673_280),
        ] {
            assert_eq!(whole(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_says_why() {
        for (text, why) in [
            ("", Misread::Malformed),
            (".", Misread::Malformed),
            ("-", Misread::Malformed),
            ("1.2.3", Misread::Malformed),
            ("ten", Misread::Malformed),
            ("1 Gi", Misread::Malformed),
            ("8GB", Misread::Malformed),
            ("1e", Misread::Malformed),
            ("12e-1e", Misread::Malformed),
            ("１", Misread::Malformed),
            ("-1", Misread::Negative),
            ("-0.1", Misread::Negative),
            ("0.3", Misread::Fraction),
            ("300m", Misread::Fraction),
            ("1n", Misread::Fraction),
            ("1e-400", Misread::Fraction),
            ("0.00000000000000000000000000000000000000000000000001", Misread::Fraction),
            ("1e400", Misread::TooLarge),
            ("9223372036854775808", Misread::TooLarge),
            ("8Ei", Misread::TooLarge),
            ("99999999999999999999999999999999999999999999", Misread::TooLarge),
        ] {
            assert_eq!(whole(text), Err(why), "{text}");
        }
    }
}

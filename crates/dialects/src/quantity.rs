//! Kubernetes quantities, as far as extended resources need them: whole numbers, however they are written (`8Gi`, `1e3`, `2000m`).
//!
//! Exact by construction: no floats, and nothing is rounded. What Kubernetes would round up or cut off is refused here with a reason.

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

const LARGEST: u128 = i64::MAX as u128;

/// The whole number a quantity stands for.
pub(crate) fn whole(text: &str) -> Result<u64, Misread> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (before, after) = number.split_once('.').unwrap_or((number, ""));
    if (before.is_empty() && after.is_empty()) || after.contains('.') {
        return Err(Misread::Malformed);
    }
    let (tens, twos) = scale(suffix).ok_or(Misread::Malformed)?;

    let digits = format!("{before}{after}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(Misread::Negative);
    }
    let dropped = (digits.len() - significant.len()) as i64;
    let tens = tens.saturating_add(dropped).saturating_sub(after.len() as i64);
    magnitude(significant, tens, twos)
}

/// `digits * 10^tens * 2^twos`, where it is whole and fits.
fn magnitude(digits: &str, tens: i64, twos: u32) -> Result<u64, Misread> {
    let places = (digits.len() as i64).saturating_add(tens);
    if places > 20 {
        return Err(Misread::TooLarge);
    }
    if digits.len() > 38 || tens < -38 {
        return Err(Misread::Fraction); // that many places after the point are no power of two's doing
    }
    let digits: u128 = digits.parse().map_err(|_| Misread::Malformed)?;
    let scaled = digits.checked_mul(1 << twos).ok_or(Misread::TooLarge)?;
    let power = 10u128.checked_pow(tens.unsigned_abs() as u32).ok_or(Misread::TooLarge)?;
    let value = if tens >= 0 {
        scaled.checked_mul(power).ok_or(Misread::TooLarge)?
    } else if scaled % power == 0 {
        scaled / power
    } else {
        return Err(if scaled / power > LARGEST { Misread::TooLarge } else { Misread::Fraction });
    };
    if value > LARGEST { Err(Misread::TooLarge) } else { Ok(value as u64) }
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
    use super::*;

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

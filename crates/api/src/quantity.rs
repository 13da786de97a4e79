//! Kubernetes quantities of ordinary resources, rounded as Kubernetes rounds them: up.

/// A billionth of one: the smallest unit a quantity can have.
const NANO: i128 = 1_000_000_000;

/// The number as whole units, rounded up (`1.5Gi` of memory, `3` pods). What is not a quantity, or below zero, is zero.
pub fn units(text: &str) -> u64 {
    rounded_up(text, NANO)
}

/// The number in thousandths, rounded up (`500m` of CPU).
pub fn thousandths(text: &str) -> u64 {
    rounded_up(text, NANO / 1000)
}

fn rounded_up(text: &str, unit: i128) -> u64 {
    let nanos = nanos(text).unwrap_or(0).max(0);
    u64::try_from((nanos + unit - 1) / unit).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// The number in billionths.
fn nanos(text: &str) -> Option<i128> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let scale = scale(suffix)?;
    // Digits beyond the ninth after the point are below what any quantity can express; a nonzero one still rounds up.
    let kept = &part[..part.len().min(9)];
    let lost = part[kept.len()..].bytes().any(|digit| digit != b'0');
    let digits: i128 = format!("0{whole}{kept}").parse().ok()?;
    let value = match scale {
        Scale::Times(factor) => digits.checked_mul(factor)?.checked_mul(NANO)?,
        Scale::Over(divisor) => {
            let scaled = digits.checked_mul(NANO)?;
            (scaled + divisor - 1) / divisor
        }
    };
    let value = value / 10i128.pow(kept.len() as u32);
    Some(sign * (value + i128::from(lost)))
}

enum Scale {
    Times(i128),
    Over(i128),
}

fn scale(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "n" => Scale::Over(1_000_000_000),
        "u" => Scale::Over(1_000_000),
        "m" => Scale::Over(1_000),
        "" => Scale::Times(1),
        "k" => Scale::Times(1_000),
        "M" => Scale::Times(1_000_000),
        "G" => Scale::Times(1_000_000_000),
        "T" => Scale::Times(1_000_000_000_000),
        "P" => Scale::Times(1_000_000_000_000_000),
        "E" => Scale::Times(1_000_000_000_000_000_000),
        "Ki" => Scale::Times(1 << 10),
        "Mi" => Scale::Times(1 << 20),
        "Gi" => Scale::Times(1 << 30),
        "Ti" => Scale::Times(1 << 40),
        "Pi" => Scale::Times(1 << 50),
        "Ei" => Scale::Times(1 << 60),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            match power {
                0..=18 => Scale::Times(10i128.pow(power.unsigned_abs())),
                -18..=-1 => Scale::Over(10i128.pow(power.unsigned_abs())),
                _ => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_rounded_as_kubernetes_does() {
        for (text, whole, milli) in [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("0.1", 1, 100),
            ("1n", 1, 1),
            ("8Gi", 8 << 30, (8 << 30) * 1000),
            ("1.5Gi", 3 << 29, (3 << 29) * 1000),
            ("1e3", 1000, 1_000_000),
            ("2E", 2_000_000_000_000_000_000, i64::MAX as u64),
            ("12k", 12_000, 12_000_000),
            ("0.0000000001", 1, 1),
            ("-5", 0, 0),
            ("five", 0, 0),
            ("", 0, 0),
            ("1.2.3", 0, 0),
        ] {
            assert_eq!((units(text), thousandths(text)), (whole, milli), "{text}");
        }
    }
}

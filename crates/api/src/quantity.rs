//! Kubernetes quantities of ordinary resources, rounded as Kubernetes rounds them: up, and cut off at 2^63 - 1.

use divvy_dialects::quantity::Quantity;

/// The number as whole units, rounded up (`1.5Gi` of memory, `3` pods). What is not a quantity, or below zero, is zero.
pub fn units(text: &str) -> u64 {
    Quantity::read(text).map_or(0, |quantity| quantity.rounded_up(0))
}

/// The number in thousandths, rounded up (`500m` of CPU).
pub fn thousandths(text: &str) -> u64 {
    Quantity::read(text).map_or(0, |quantity| quantity.rounded_up(3))
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
            // What is too large is the largest there is, not nothing; what is next to nothing is not nothing, either.
            ("1e19", i64::MAX as u64, i64::MAX as u64),
            ("9223372036854775807Ei", i64::MAX as u64, i64::MAX as u64),
            ("99999999999999999999999999999999999999n", i64::MAX as u64, i64::MAX as u64),
            ("1e-19", 1, 1),
            // Decimals are multiplied before they are cut off.
            ("0.00000000000000000867361737988403547205962240695953369140625Ei", 10, 10_000),
        ] {
            assert_eq!((units(text), thousandths(text)), (whole, milli), "{text}");
        }
    }
}

//! Amounts. Shares are thousandths of one device, memory is bytes, and the ledger knows no floats:
//! 0.1 + 0.2 given back must leave a whole card, not 0.9999999999999999 of one.

use core::fmt;
use core::iter::Sum;

use serde::{Deserialize, Serialize};

/// A part of one device's time, in thousandths. More than [`Share::WHOLE`] is possible as a sum over devices, never on one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub u32);

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Share {
    /// No time at all. As a request it means "guaranteed nothing".
    pub const ZERO: Share = Share(0);
    /// All of one device's time.
    pub const WHOLE: Share = Share(1000);

    /// The sum, or `None` when it does not fit the type.
    pub const fn checked_add(self, other: Share) -> Option<Share> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Share(sum)),
            None => None,
        }
    }

    /// The difference, or `None` when `other` is larger: the ledger never wraps and never clamps silently.
    pub const fn checked_sub(self, other: Share) -> Option<Share> {
        match self.0.checked_sub(other.0) {
            Some(left) => Some(Share(left)),
            None => None,
        }
    }

    /// The difference, or zero. For reports and scores, not for the ledger.
    pub const fn saturating_sub(self, other: Share) -> Share {
        Share(self.0.saturating_sub(other.0))
    }
}

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` times 2^20 bytes, saturating.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }

    /// `n` times 2^30 bytes, saturating.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 30))
    }

    /// The sum, or `None` when it does not fit the type.
    pub const fn checked_add(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Bytes(sum)),
            None => None,
        }
    }

    /// The difference, or `None` when `other` is larger.
    pub const fn checked_sub(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_sub(other.0) {
            Some(left) => Some(Bytes(left)),
            None => None,
        }
    }

    /// The difference, or zero. For reports and scores, not for the ledger.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// `part` thousandths of this amount, rounded down (as every emulated system does).
    pub const fn thousandths(self, part: Share) -> Bytes {
        // Widened: a 288 GB card times 1000 still fits u64, a sum over a cluster might not.
        Bytes(((self.0 as u128 * part.0 as u128) / 1000) as u64)
    }
}

impl Sum for Share {
    fn sum<I: Iterator<Item = Share>>(iter: I) -> Share {
        Share(iter.fold(0u32, |a, s| a.saturating_add(s.0)))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        Bytes(iter.fold(0u64, |a, b| a.saturating_add(b.0)))
    }
}

/// `300` reads `0.3`, `1000` reads `1`, `2500` reads `2.5`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// The largest binary unit that shows the amount exactly, else one decimal of the largest below it.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift && self.0 >> shift < 100_000 {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        for (unit, shift) in UNITS {
            if self.0 >> shift > 0 {
                let tenths = (u128::from(self.0) * 10) >> shift;
                return write!(f, "{}.{} {unit}", tenths / 10, tenths % 10);
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read_as_people_write_them() {
        for (share, text) in [(0, "0"), (300, "0.3"), (50, "0.05"), (1000, "1"), (2500, "2.5"), (333, "0.333")] {
            assert_eq!(Share(share).to_string(), text);
        }
    }

    #[test]
    fn bytes_read_exactly_where_they_can() {
        for (bytes, text) in [
            (0, "0 B"),
            (1 << 30, "1 GiB"),
            (8080 << 20, "8080 MiB"),
            (1500, "1.4 KiB"),
            (150_754_820_096, "140.4 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn tenth_and_two_tenths_given_back_leave_a_whole_card() {
        let left = Share::WHOLE.checked_sub(Share(100)).and_then(|s| s.checked_sub(Share(200))).unwrap();
        let back = left.checked_add(Share(200)).and_then(|s| s.checked_add(Share(100))).unwrap();
        assert_eq!(back, Share::WHOLE);
    }

    #[test]
    fn a_part_of_a_card_is_rounded_down() {
        assert_eq!(Bytes::mib(16160).thousandths(Share(500)), Bytes::mib(8080));
        assert_eq!(Bytes(7).thousandths(Share(500)), Bytes(3));
    }
}

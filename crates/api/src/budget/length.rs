//! Lengths of time as people write them: `150m`, `20h`, `1d12h`, `1500ms`.

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("ms", 1), ("m", 60_000), ("s", 1000)];

/// Milliseconds of a length of time; none where it is not one.
pub fn millis(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (word, length) = UNITS.iter().find(|(word, _)| rest.starts_with(word))?;
        rest = &rest[word.len()..];
        sum = sum.checked_add(number.checked_mul(*length)?)?;
    }
    Some(sum)
}

/// A length of time in words of at most three units, `149h59m30s`; rounded down to seconds, hours not gathered into days, because
/// a day of GPU time is not a day.
pub fn text(millis: u64) -> String {
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    match (hours, minutes, seconds) {
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, 0, 0) => format!("{h}h"),
        (h, m, 0) => format!("{h}h{m}m"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_written() {
        for (words, length) in [("150m", 9_000_000), ("1d12h", 129_600_000), ("1500ms", 1500), ("2h30m5s", 9_005_000)] {
            assert_eq!(millis(words), Some(length), "{words}");
        }
        for words in ["", "5", "h", "5x", "-5m", "5 m", "99999999999999999999h", "1.5h"] {
            assert_eq!(millis(words), None, "{words:?}");
        }
        for (length, words) in
            [(0, "0s"), (9_005_000, "2h30m5s"), (3_600_000, "1h"), (61_000, "1m1s"), (7_260_000, "2h1m")]
        {
            assert_eq!(text(length), words);
        }
    }
}

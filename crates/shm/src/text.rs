//! Short texts in shared memory: whole words, so that a torn write is a wrong letter and not a data race.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Room that nobody uses yet. Atomic like everything here: a stranger may write it at any time.
#[repr(transparent)]
pub(crate) struct Fill<const N: usize>([AtomicU8; N]);

/// At most `8 * N` bytes of UTF-8, filled up with zeroes.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Text<const N: usize>([AtomicU64; N]);

impl<const N: usize> Text<N> {
    /// Stores as much of `text` as fits, cut at a character.
    pub(crate) fn store(&self, text: &str) {
        let end = text.floor_char_boundary(N * 8);
        let mut bytes = text.as_bytes()[..end].chunks(8);
        for word in &self.0 {
            let mut raw = [0u8; 8];
            if let Some(part) = bytes.next() {
                raw[..part.len()].copy_from_slice(part);
            }
            word.store(u64::from_le_bytes(raw), Relaxed);
        }
    }

    /// The text, whatever bytes are there.
    pub(crate) fn load(&self) -> String {
        let mut bytes = Vec::with_capacity(N * 8);
        for word in &self.0 {
            bytes.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_long_ones_are_cut_at_a_character() {
        let text = Text::<1>([AtomicU64::new(u64::MAX)]);
        for (stored, loaded) in [("", ""), ("abc", "abc"), ("12345678", "12345678"), ("1234567é", "1234567")] {
            text.store(stored);
            assert_eq!(text.load(), loaded);
        }
    }
}

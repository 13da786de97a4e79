//! Memory on a card, which these systems count in MiB (or in blocks of several) and people like to write with a unit.

use divvy_core::ask::Dialect;

use crate::manifest::Container;
use crate::mistake::{Field, Mistake};

/// More than any card has, oversubscribed or not: 16 TiB. What is above was meant as bytes.
const MOST_MIB: u64 = 1 << 24;

/// Suffixes that make bytes of a number. `k` is none of them: the API server itself writes a plain 3000 as `3k`. From `M` on a plain
/// number would be a terabyte and more, so that whoever has it there meant bytes.
const BYTES: [&str; 5] = ["M", "G", "T", "P", "E"];

/// The MiB a container asks for under `key`, which counts blocks of `block` MiB. What is wrong with it goes to `mistakes`.
pub(super) fn mib(
    container: &Container<'_>,
    key: &str,
    block: u64,
    dialect: Dialect,
    mistakes: &mut Vec<Mistake>,
) -> Option<u64> {
    let unit = if block == 1 { "MiB".to_owned() } else { format!("blocks of {block} MiB") };
    let amount = container.amount(key, &format!("{unit} as a whole number"), dialect, mistakes)?;
    let written = container.written(key).unwrap_or_default();
    let fits = amount.checked_mul(block).filter(|mib| *mib <= MOST_MIB);
    if let Some(mib) = fits.filter(|mib| *mib == 0 || !counts_bytes(&written)) {
        return Some(mib);
    }
    let problem =
        if counts_bytes(&written) { "has a suffix, and counts no bytes" } else { "is more memory than any card has" };
    let meant = amount.div_ceil(block << 20);
    let mend = format!("{key} counts {unit}: write {meant} if {written} bytes are meant");
    mistakes.push(Mistake::about(dialect, Field::resource(&container.name(), key), &written, problem, mend));
    None
}

fn counts_bytes(written: &str) -> bool {
    written.ends_with('i') || BYTES.iter().any(|suffix| written.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_of_bytes_is_told_from_what_the_api_server_makes_of_a_plain_number() {
        for bytes in ["1Ki", "512Mi", "16Gi", "500M", "2G", "1T"] {
            assert!(counts_bytes(bytes), "{bytes}");
        }
        for plain in ["3000", "3k", "1e3", "1E3", "2000m", "0"] {
            assert!(!counts_bytes(plain), "{plain}");
        }
    }
}

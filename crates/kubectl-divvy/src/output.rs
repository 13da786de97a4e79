//! What is printed: a table for people, or JSON and YAML for programs. Colours only where there is a terminal.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use divvy_core::units::{Bytes, Share};
use serde::Serialize;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// JSON for programs
    Json,
    /// The same as YAML
    Yaml,
}

impl Format {
    /// Prints `value` if a program reads it, else what `text` makes of it.
    pub(crate) fn print(self, value: &impl Serialize, text: impl FnOnce(bool) -> String) -> anyhow::Result<()> {
        let text = match self {
            Format::Table => text(false),
            Format::Wide => text(true),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            // By way of JSON, so that both say the same.
            Format::Yaml => serde_saphyr::to_string(&serde_json::to_value(value)?)?,
        };
        show(&text)
    }
}

/// Prints; without its colours where nobody sees them.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const QUIET: Style = AnsiColor::BrightBlack.on_default();
pub(crate) const PLAIN: Style = Style::new();

/// Columns, three spaces apart, as kubectl lays them out.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Table {
        let mut table = Table::default();
        table.row(header);
        table
    }

    pub(crate) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cell = |c: C| {
            let Cell(text, style) = c.into();
            (text, style)
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| Some(row.get(column)?.0.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let last = row.iter().rposition(|(text, _)| !text.is_empty()).map_or(0, |last| last + 1);
            for (i, (text, style)) in row.iter().take(last).enumerate() {
                let pad = if i + 1 == last { 0 } else { widths[i] - text.chars().count() + 3 };
                out.push_str(&paint(text, *style));
                out.push_str(&" ".repeat(pad));
            }
            out.push('\n');
        }
        out
    }
}

/// A cell of a table.
pub(crate) struct Cell(pub(crate) String, pub(crate) Style);

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell(text.to_string(), PLAIN)
    }
}

/// A text in a colour.
pub(crate) fn paint(text: &str, style: Style) -> String {
    if style == PLAIN { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// `used` of `whole` as a bar of ten.
pub(crate) fn bar(used: u64, whole: u64) -> String {
    let tenths = (u128::from(used) * 10).div_ceil(u128::from(whole.max(1))).min(10) as usize;
    format!("{}{}", "█".repeat(tenths), "░".repeat(10 - tenths))
}

/// The colour of a bar: how much is left.
pub(crate) fn bar_style(used: u64, whole: u64) -> Style {
    match used.saturating_mul(100) / whole.max(1) {
        0..70 => GOOD,
        70..95 => WARN,
        _ => BAD,
    }
}

/// `12.5/140.4 GiB`.
pub(crate) fn of_memory(used: Bytes, whole: Bytes) -> String {
    format!("{}/{} GiB", gib(used), gib(whole))
}

fn gib(bytes: Bytes) -> String {
    let tenths = (u128::from(bytes.0) * 10 + (1 << 29)) >> 30;
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

/// `0.3/1`.
pub(crate) fn of_share(used: Share, whole: Share) -> String {
    format!("{used}/{whole}")
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// `3d4h`, `12m5s`: the two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (name, length) in units {
        if rest >= length {
            parts.push(format!("{}{name}", rest / length));
            rest %= length;
        }
    }
    if parts.is_empty() { "0s".into() } else { parts.into_iter().take(2).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_full_only_when_all_is_used_and_empty_only_when_nothing_is() {
        assert_eq!((bar(0, 10).as_str(), bar(1, 1000).as_str()), ("░░░░░░░░░░", "█░░░░░░░░░"));
        assert_eq!((bar(10, 10).as_str(), bar(12, 10).as_str()), ("██████████", "██████████"));
        assert_eq!(bar(0, 0), "░░░░░░░░░░");
    }

    #[test]
    fn amounts_read_as_people_say_them() {
        assert_eq!(of_memory(Bytes::gib(2), Bytes(150_754_820_096)), "2/140.4 GiB");
        assert_eq!((duration(0).as_str(), duration(3725).as_str(), duration(200_000).as_str()), ("0s", "1h2m", "2d7h"));
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let mut table = Table::new(["A", "B"]);
        table.row([Cell("x".into(), BAD), Cell("y".into(), PLAIN)]);
        let plain = anstream::adapter::strip_str(&table.text()).to_string();
        assert_eq!(plain, "A   B\nx   y\n");
    }
}

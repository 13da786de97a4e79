//! The list of changed nodes, so that whoever remembers something about nodes asks again about those alone.

use super::NodeIx;

/// A place in the list of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// The latest changes. Old ones are dropped: whoever has not looked for that long looks at everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    dropped: u64,
    latest: Vec<NodeIx>,
}

/// How many changes are kept at least.
const KEPT: usize = 1 << 16;

impl Changes {
    pub(super) fn node(&mut self, ix: NodeIx) {
        if self.latest.len() >= 2 * KEPT {
            self.latest.drain(..KEPT);
            self.dropped += KEPT as u64;
        }
        self.latest.push(ix);
    }

    /// Everything may have changed.
    pub(super) fn all(&mut self) {
        self.dropped += self.latest.len() as u64 + 1;
        self.latest.clear();
    }

    pub(super) fn position(&self) -> Position {
        Position(self.dropped + self.latest.len() as u64)
    }

    pub(super) fn since(&self, position: Position) -> Option<&[NodeIx]> {
        let skip = position.0.checked_sub(self.dropped)?;
        self.latest.get(usize::try_from(skip).ok()?..)
    }
}

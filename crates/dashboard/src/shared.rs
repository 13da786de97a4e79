//! The board, shared between whoever feeds it and everybody who looks.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::board::Board;

/// A handle on the board. Clones share it.
#[derive(Clone, Debug)]
pub struct Shared {
    board: Arc<Mutex<Board>>,
    version: Arc<watch::Sender<u64>>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { board: Arc::default(), version: Arc::new(watch::Sender::new(0)) }
    }
}

impl Shared {
    /// Looks at the board.
    pub fn look<T>(&self, look: impl FnOnce(&Board) -> T) -> T {
        look(&self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the board; whoever watches is told.
    pub fn change<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let (outcome, version) = {
            let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = change(&mut board);
            (outcome, board.version())
        };
        self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
        outcome
    }

    /// Tells when the board has another version.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

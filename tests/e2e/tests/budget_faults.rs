//! The budget controller killed again and again: the balances are those of an undisturbed run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/ground.rs"]
mod ground;
#[path = "budget/kills.rs"]
mod kills;
#[path = "budget/town.rs"]
mod town;

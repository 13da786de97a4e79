//! Budgets and quota on a real API server, with simulated nodes and a clock that can be moved.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "budget/admission.rs"]
mod admission;
#[path = "control_plane/ground.rs"]
mod ground;
#[path = "budget/story.rs"]
mod story;
#[path = "budget/town.rs"]
mod town;

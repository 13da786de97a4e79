//! What packages may use: of each other, and of the world outside.

mod deny;
mod edges;
mod packages;
mod unused;

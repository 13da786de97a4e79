//! divvy-agent: turns a grant into a container that has exactly it.

pub mod device;
pub mod edits;
#[cfg(test)]
mod testing;

//! divvy-agent: turns a grant into a container that has exactly it.

pub mod cgroup;
pub mod device;
pub mod edits;
pub mod identity;
pub mod ledger;
#[cfg(test)]
mod testing;

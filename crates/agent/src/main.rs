//! divvy-agent: turns a grant into a container that has exactly it.

fn main() {}

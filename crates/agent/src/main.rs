//! The privileged binary; everything it does is in the library beside it.

fn main() {}

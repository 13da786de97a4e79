//! What is done about each call, by topic. `hooks.tsv` says which symbol comes here; `go` is the real call with the caller's own
//! arguments, and whatever it answers is what the program gets, unless a limit says no.

pub(crate) mod copy;
pub(crate) mod launch;
pub(crate) mod stream;

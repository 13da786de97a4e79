//! What pods say, dialect by dialect. Acceptance cases are named by the id they have in docs/compat-cases.md.

#[cfg(test)]
mod laws;
#[cfg(test)]
mod native;
#[cfg(test)]
mod support;

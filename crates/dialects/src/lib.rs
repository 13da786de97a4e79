//! From a manifest, in any of the spellings people use, to one ask, or to all its mistakes at once.

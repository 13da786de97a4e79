//! The admission webhook: every dialect read, every mistake named, one patch.

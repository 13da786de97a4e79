//! What may lie in shared memory.

/// A type that may lie in memory shared with strangers.
///
/// # Safety
/// Every bit pattern is a valid value, and every part that anybody writes is an atomic.
pub unsafe trait Shared: Sync {}

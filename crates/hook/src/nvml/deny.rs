//! What a container may not change: clocks, power, modes and partitions outlive it, and the card will be somebody else's.

use super::types::{NO_PERMISSION, nvmlReturn_t};
use crate::process::{Standing, standing};

/// A setter.
pub(crate) fn setter(go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    match standing() {
        Standing::Outside => go(),
        Standing::Member(_) | Standing::Broken => NO_PERMISSION,
    }
}

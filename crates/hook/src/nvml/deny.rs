//! What a container may not change on a card that is not its own.

use super::types::{NO_PERMISSION, nvmlReturn_t};

/// A setter.
pub(crate) fn setter(_go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    NO_PERMISSION
}

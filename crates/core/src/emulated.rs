//! As others placed: one file for each system whose pods Divvy takes over, so that a pod lands where that system would have put it.
//!
//! All of them choose among the devices that [`crate::fit`] lets through, and none does more than choose.

pub(crate) mod gpu_manager;
pub(crate) mod gpushare;
pub(crate) mod hami;
pub(crate) mod kubegpu;
pub(crate) mod kubeshare;
pub(crate) mod vgpu;

//! The commands, one file each.

pub(crate) mod budget;
pub(crate) mod cordon;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod quota;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod snapshot;
pub(crate) mod top;
pub(crate) mod whatif;
pub(crate) mod why;

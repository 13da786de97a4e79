//! Where is it best: of the nodes and devices that fit a pod, which one it gets.
//!
//! ```text
//! recall                from memory
//! board                 what nodes answered to pods of one shape, remembered until they change
//! attempt               one pod, tried on nodes
//! frag   classic        the policies: where the least is lost; the fullest or the emptiest
//! quota                 may the namespace hold what a node would give?
//! ```
//!
//! The policies of other systems are in [`crate::emulated`].

mod attempt;
mod board;
#[cfg(test)]
mod cases;
mod classic;
mod frag;
pub(crate) mod quota;
mod recall;

pub use attempt::{Answer, Kept, Spot};
pub(crate) use attempt::{Attempt, KeptNode};
pub(crate) use board::Board;

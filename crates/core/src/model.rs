//! What there is: the values that all other rooms speak of. Nothing here decides.
//!
//! ```text
//! policy                                 what the administrators want, by default and by pool
//! pod   volume   node                    what Kubernetes has
//! ask ------> grant      reason          what is asked for, what is given for it, and why not
//! device   mig   resources   labels      what can be had
//! id   units   time                      names and amounts
//! ```

pub mod ask;
pub mod device;
pub mod grant;
pub mod id;
pub mod labels;
pub mod mig;
pub mod node;
pub mod pod;
pub mod policy;
pub mod reason;
pub mod resources;
pub mod time;
pub mod units;
pub mod volume;

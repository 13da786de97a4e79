//! What pods hold, what is left of it, and what that is worth.
//!
//! ```text
//! snapshot            the cluster: nodes with their books, pods; decisions are tried out on it in transactions
//! worth    quota      what leftovers are worth to the pods that come; what a namespace may hold
//! kind     finished   what each kind of device has to give; members of gangs that have ended well
//! book     burst      what is held of one device; memory that is used above a booking
//! ```

mod book;
pub mod burst;
pub mod finished;
pub mod kind;
pub mod quota;
pub mod snapshot;
pub mod worth;

pub use book::{Book, Charge, Ledger, charge, charge_of, charges};

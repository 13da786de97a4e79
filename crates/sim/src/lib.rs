//! A simulator over the core, and the public trace as a yardstick.
//!
//! ```text
//! rows (trace or CSV) --workload(seed)--> arrivals --replay(contestant)--> outcome --> table, CSV, plot
//! ```
//!
//! The contestants of the product are the same functions the scheduler calls; [`rivals`] holds published ones to compare with. Files are
//! read and written by whoever calls: everything here goes from text to text.
#![forbid(unsafe_code)]

pub mod churn;
pub mod cluster;
pub mod compare;
pub mod csv;
pub mod journal;
pub mod plot;
pub mod replay;
pub mod rivals;
pub mod rows;
pub mod trace;
pub mod workload;

//! GPU time as money: what pods that hold devices cost, whose balance pays for it, and who is in budget.
//!
//! ```text
//! bound pods ------> Hold (spans of constant cost) --+
//! node journals ---> Record (cumulative, mergeable) -+--> Accounting --advance(now)--> balances, classes, trail
//! entries, terms ------------------------------------+        (exact, order-independent)
//! ```
//!
//! Amounts are exact integers: a hold's cost over any stretch of time is the difference of its cumulative cost at both ends, so
//! nothing is lost or counted twice however the stretch is cut up. Everything an account says is a function of facts (holds,
//! entries, periods, out-of-budget intervals), never of when somebody looked.

pub mod account;
pub mod accounting;
pub mod amount;
pub mod cost;
pub mod forecast;
pub mod hold;
#[cfg(test)]
mod laws;
pub mod report;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod trail;

pub use crate::model::id::AccountKey;
pub use account::{Account, Balance, Bucket, Carry, Entry, EntryKind, OnExhaustion, Refunds, Terms};
pub use accounting::{Accounting, Calendar, Happened, Standing, What};
pub use amount::{Amount, Price, Rate};
pub use cost::{Basis, CostRule, HeldDevice, Measure, Prices, Reference, Tariff};
pub use forecast::Forecast;
pub use hold::{End, Hold, Span};
pub use report::{Cut, Page, Record};
pub use timeline::Timeline;
pub use trail::Line;

//! Whose turn it is on a GPU, and who pays for it: the arithmetic of time shares, without a clock, memory pages or a GPU.
//!
//! A [`Domain`] is one card, or several that some container holds together. The arbiter shows it now and then what every tenant has
//! queued ([`Seen`]); [`Domain::step`] says which gates to open, how large chunks should be, and when to look again. The gates are on
//! the GPU's side: a tenant whose gate is closed goes on submitting, so exclusive turns waste nothing.
//!
//! - **Turns.** While at most one tenant wants a card all gates are open. When several do, one owns the card. Tenants are ordered by
//!   virtual time, GPU time used over request: who is furthest behind goes first. An owner that has drained its queue gives the card
//!   up at once, unless it is usually back before the card could go over to somebody else and back, or is behind and still submits
//!   in several streams, so that it had to come without a queue; an owner with work is preempted when it is ahead by more than
//!   [`Tuning::lead`], and not before [`Tuning::turn`], so that turns are long against a chunk. Who runs ahead of its share in
//!   somebody's gap is a *guest* and leaves as soon as the host is back. A tenant with a request of zero is always a guest. Who is
//!   much faster than promised and goes on launching takes the card from nobody until it stops.
//! - **Room.** Where the card rests between its tenants' work, or would if each were alone, all gates are open: turns would only cost
//!   ([`slack`]). Where somebody comes off worse than promised by it, those who come off well wait. Programs of several streams, of which
//!   nobody can tell, try both ([`trial`]).
//! - **Charges.** The wall time in which the card works or is kept is charged, all of it and no more ([`charge`]): to the owner, and,
//!   while a chunk of the last owner still runs, to that one; where the card went to and fro, split by what each completed, or, among
//!   programs of several streams, by who had work.
//! - **The meter.** While nobody is held back charges are guesses, and nothing hangs on them; what tenants are told they used is the
//!   card's own count then ([`Meter`]).
//! - **Limits.** A bucket per tenant that fills at its limit, with hysteresis, makes a duty cycle of [`Tuning::period`].
//!
//! All quantities are integers: nanoseconds, thousandths, units of work (a kernel launch is one).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bucket;
mod charge;
mod cost;
mod domain;
mod lane;
mod meter;
mod pace;
mod slack;
mod trial;
mod tuning;
mod turn;

pub use domain::{Directive, Domain, LaneId, Outcome, Shares, TenantId};
pub use meter::{Meter, Period};
pub use tuning::Tuning;

/// Nanoseconds.
pub type Ns = u64;

/// What a tenant has queued on a card, as its pages show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Units in closed chunks and not finished.
    pub queued: u32,
    /// Units in chunks that are still being filled.
    pub filling: u32,
    /// Streams with work: each has at most one chunk in flight.
    pub streams: u32,
    /// Units finished since the beginning; wraps round.
    pub completed: u32,
    /// Units submitted since the beginning; wraps round.
    pub submitted: u32,
}

impl Seen {
    /// Is there anything the GPU has not finished, as far as we know?
    pub fn has_work(&self) -> bool {
        self.queued > 0 || self.filling > 0
    }

    /// Does it work in several streams?
    pub(crate) fn is_broad(&self) -> bool {
        self.streams > 1
    }
}

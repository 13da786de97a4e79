//! The launch gate: what happens to work between the program and the driver.
//!
//! The hooks call in here and nowhere else; this surface is all that ties the two together. Everything runs on the program's own
//! threads, and most of it on every launch, so the common case has to end after a load or two.
//!
//! Rules for whatever is behind these functions:
//! - Only `core`, `alloc` and `libc`: the shipped library has no standard library (see `runtime`).
//! - The real driver is called through [`crate::cuda::real`], never through our own exports.
//! - Nothing is put into a stream that captures, and nothing synchronizes while any capture is under way.
//! - State that must not survive a fork belongs into [`crate::process`], whose memory a child finds wiped.

use crate::cuda::types::{CUresult, CUstream};

/// Work that a program hands to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel.
    Kernel,
    /// A kernel that runs on several devices at once and must not be held on one of them.
    MultiDevice,
    /// A whole graph; the handle of its executable form.
    Graph(usize),
    /// A copy or fill of so many bytes.
    Copy(u64),
}

/// What a thread is about to wait for, or to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One stream.
    Stream(CUstream),
    /// An event, whichever stream it was recorded in.
    Event,
    /// Everything in the current context: a context's synchronize, and every call that implies one (free, blocking copy, unload).
    Context,
}

/// Work is about to be put into `stream`.
#[inline(always)]
pub(crate) fn before_launch(_stream: CUstream, _work: Work) {}

/// Work was put into `stream`, or refused by the driver.
#[inline(always)]
pub(crate) fn after_launch(_stream: CUstream, _work: Work, _status: CUresult) {}

/// A thread is about to wait for the GPU, or to ask how far it is.
#[inline(always)]
pub(crate) fn before_sync(_wait: Wait) {}

/// A stream exists from now on.
pub(crate) fn stream_created(_stream: CUstream) {}

/// A stream is about to go.
pub(crate) fn stream_destroyed(_stream: CUstream) {}

/// A stream records a graph from now on.
pub(crate) fn capture_began(_stream: CUstream) {}

/// A stream no longer records.
pub(crate) fn capture_ended(_stream: CUstream) {}

/// A device (its place in the container) has a context of this process from now on.
pub(crate) fn context_created(_device: usize) {}

/// The last context on a device is about to go.
pub(crate) fn context_destroyed(_device: usize) {}

/// Whether an address range touches pages of ours that are registered with the driver, by the address the GPU knows them by.
/// A program's own stream writes there are refused.
pub(crate) fn holds(_address: u64, _bytes: u64) -> bool {
    false
}

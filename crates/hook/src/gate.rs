//! The launch gate: what happens to work between the program and the driver.
//!
//! Launches are cut into chunks per stream. A chunk begins with a stream wait on the container's gate word and ends with a stream
//! write of how much was submitted, both on pages shared with the arbiter: the GPU does the waiting, the program never does. How
//! many launches make a chunk the arbiter says; between boundaries a launch costs a look-up, one addition and three loads.
//!
//! The hooks call in here and nowhere else; this surface is all that ties the two together. Everything runs on the program's own
//! threads.
//!
//! - [`stream`]: what is known of each stream, found without a lock.
//! - [`boundary`]: ending a chunk and beginning the next.
//! - [`page`]: the shared pages as a context of the driver's knows them.
//! - [`hold`]: the gate on the CPU, where streams cannot wait.
//! - [`watchdog`]: opens gates when nobody else does, where the page is ours to write.
//!
//! Rules for whatever is behind these functions:
//! - Only `core`, `alloc` and `libc`: the shipped library has no standard library (see `runtime`).
//! - The real driver is called through [`crate::cuda::real`], never through our own exports.
//! - Nothing is put into a stream that captures, and nothing synchronizes while any capture is under way.
//! - State that must not survive a fork belongs into [`crate::process`], whose memory a child finds wiped.

mod boundary;
mod hold;
mod page;
mod stream;
mod watchdog;

use crate::cuda::real;
use crate::cuda::types::{CUresult, CUstream, SUCCESS};
use crate::hooks::stream::captures;
use crate::process::{Member, of_container};

pub(crate) use stream::Streams;

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
    /// Nothing: it only asks how far the GPU is, perhaps again and again.
    Asking,
}

/// Copies below this pass without being counted: they are over before a turn is.
const LARGE_COPY: u64 = 1 << 20;
/// A copy counts for a unit of work per so many bytes.
const COPY_UNIT: u32 = 24;
/// The most units one piece of work counts for.
const MOST_UNITS: u32 = 1 << 20;

/// Work is about to be put into `stream`.
#[inline(always)]
pub(crate) fn before_launch(stream: CUstream, work: Work) {
    if let Some(member) = of_container() {
        // What work is, is known where this stands: kernels have the short way in their midst, all others call.
        if work == Work::Kernel {
            enter_with(member, stream, 1, true);
        } else {
            enter(member, stream, work);
        }
    }
}

#[inline(never)]
fn enter(member: Member, stream: CUstream, work: Work) {
    let units = match work {
        Work::Kernel | Work::MultiDevice => 1,
        Work::Copy(bytes) if bytes < LARGE_COPY => return,
        Work::Copy(bytes) => u32::try_from(bytes >> COPY_UNIT).map_or(MOST_UNITS, |n| n.saturating_add(1)),
        Work::Graph(exec) => member.process.streams.graph_units.get(exec as u64).unwrap_or(1),
    };
    enter_with(member, stream, units.min(MOST_UNITS), work != Work::MultiDevice);
}

/// In the midst of every launch of a kernel: what comes once in many is out of line.
#[inline(always)]
fn enter_with(member: Member, stream: CUstream, units: u32, hold: bool) {
    let Some(known) = stream::find(member, stream) else { return };
    if captures(member, stream) {
        return;
    }
    known.enter(member, stream, units, hold);
}

/// Work was put into `stream`, or refused by the driver; what ends a chunk is the next launch, or whoever waits.
#[inline(always)]
pub(crate) fn after_launch(_stream: CUstream, _work: Work, _status: CUresult) {}

/// A thread is about to wait for the GPU, or to ask how far it is: chunks that are still open end here, or the arbiter would take
/// what is not going to be filled any further for work to come.
#[inline(always)]
pub(crate) fn before_sync(wait: Wait) {
    if let Some(member) = of_container().filter(|m| m.process.streams.any_open()) {
        close_open_chunks(member, wait);
    }
}

#[cold]
fn close_open_chunks(member: Member, wait: Wait) {
    let streams = &member.process.streams;
    // Who asks twice and has submitted nothing in between is waiting. Others ask in the middle of their work.
    if wait == Wait::Asking && !streams.quiet_since_last_asked() {
        return;
    }
    let Some((context, _)) = member.current() else { return };
    streams.each(|known| {
        if known.can_be_reached(context) && !captures(member, known.handle()) {
            boundary::close(member, known);
        }
    });
}

/// Streams of this program wait for each other.
#[inline(always)]
pub(crate) fn streams_depend() {
    if let Some(member) = of_container() {
        member.process.streams.depend();
    }
}

/// A stream exists from now on.
pub(crate) fn stream_created(_stream: CUstream) {}

/// A stream is about to go. What is queued in it the GPU still does.
pub(crate) fn stream_destroyed(stream: CUstream) {
    let Some(member) = of_container() else { return };
    if let Some(known) = stream::lookup(member, stream) {
        if !captures(member, stream) {
            boundary::close(member, known);
        }
        member.process.streams.forget(member, known, stream::Ended::Stream);
    }
}

/// A stream records a graph from now on.
pub(crate) fn capture_began(_stream: CUstream) {}

/// A stream no longer records.
pub(crate) fn capture_ended(_stream: CUstream) {}

/// There is another context of this process from now on.
pub(crate) fn context_created(context: u64) {
    if let Some(member) = of_container() {
        member.process.streams.contexts_changed(member, context);
    }
}

/// A context is gone, and all its streams with it.
pub(crate) fn context_destroyed(context: u64) {
    let Some(member) = of_container() else { return };
    let streams = &member.process.streams;
    streams.each(|known| {
        if known.context() == context {
            streams.forget(member, known, stream::Ended::Context);
        }
    });
    streams.pages.forget(context);
    streams.contexts_changed(member, 0);
}

/// A graph became executable: it counts for as many units as it has nodes.
///
/// `graph` is what it was made from, a graph of the driver's.
pub(crate) fn graph_made(member: Member, exec: u64, graph: *mut core::ffi::c_void) {
    let mut nodes = 0usize;
    let Some(count) = real::cuGraphGetNodes() else { return };
    // SAFETY: without a list only the number is asked for.
    if unsafe { count(graph, core::ptr::null_mut(), &mut nodes) } == SUCCESS {
        let units = u32::try_from(nodes).unwrap_or(MOST_UNITS).clamp(1, MOST_UNITS);
        member.process.streams.graph_units.insert(exec, units);
    }
}

/// An executable graph is gone.
pub(crate) fn graph_gone(member: Member, exec: u64) {
    member.process.streams.graph_units.remove(exec);
}

/// Whether an address range touches pages of ours that are registered with the driver, by the address the GPU knows them by.
/// A program's own stream writes there are refused.
pub(crate) fn holds(address: u64, bytes: u64) -> bool {
    of_container().is_some_and(|member| {
        member.touches_our_pages(address, bytes) || member.process.streams.pages.hold(address, bytes)
    })
}

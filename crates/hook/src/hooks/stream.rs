//! Streams: their life, what they capture, who waits for them, and the words they may not touch.

use core::sync::atomic::Ordering;

use super::pool;
use crate::cuda::real;
use crate::cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUresult, CUstream, CUstreamBatchMemOpParams, INVALID_VALUE, SUCCESS,
    WRITE_VALUE_32, WRITE_VALUE_64,
};
use crate::gate::{self, Wait};
use crate::process::{Member, of_container};

/// A stream is made.
///
/// # Safety
/// `made` is null or where the driver puts the stream.
pub(crate) unsafe fn create(made: *const CUstream, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if status == SUCCESS && !made.is_null() {
        // SAFETY: the driver has just written it.
        gate::stream_created(unsafe { *made });
    }
    status
}

/// A stream goes.
pub(crate) fn destroy(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::stream_destroyed(stream);
    go()
}

/// A stream begins to record.
pub(crate) fn begin_capture(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Stream(stream));
    let status = go();
    if status == SUCCESS {
        if let Some(member) = of_container() {
            member.process.captures.fetch_add(1, Ordering::Relaxed);
        }
        gate::capture_began(stream);
    }
    status
}

/// A stream ends its recording; a failed end ends it too.
pub(crate) fn end_capture(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let Some(member) = of_container() {
        let less = |count: u32| Some(count.saturating_sub(1));
        let _ = member.process.captures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
    gate::capture_ended(stream);
    status
}

/// Whether any stream of this process records.
pub(crate) fn any_capture(member: Member) -> bool {
    member.process.captures.load(Ordering::Relaxed) > 0
}

/// Whether this stream records: then what is put into it happens later, if at all.
#[inline(always)]
pub(crate) fn captures(member: Member, stream: CUstream) -> bool {
    any_capture(member) && asked_captures(stream)
}

#[cold]
fn asked_captures(stream: CUstream) -> bool {
    let mut status = 0;
    // SAFETY: a stream of the caller's, and a place for the answer.
    real::cuStreamIsCapturing().is_some_and(|ask| unsafe { ask(stream, &mut status) } == SUCCESS) && status != 0
}

/// Does something of our own that would spoil a capture which checks all threads.
pub(crate) fn relaxed(member: Member, what: impl FnOnce()) {
    const RELAXED: u32 = 2;
    let mut mode = RELAXED;
    let exchange = real::cuThreadExchangeStreamCaptureMode().filter(|_| any_capture(member));
    if let Some(exchange) = exchange {
        // SAFETY: a mode to set, replaced by the one that was.
        unsafe { exchange(&mut mode) };
    }
    what();
    if let Some(exchange) = exchange {
        // SAFETY: as above.
        unsafe { exchange(&mut mode) };
    }
}

/// Asks how far the GPU is, without waiting for it.
#[inline(always)]
pub(crate) fn ask(go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Asking);
    let status = go();
    pool::look_again_after_waiting();
    status
}

/// Puts host work into a stream, which may wake somebody who waits for the GPU without a call of ours.
pub(crate) fn call_host(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Stream(stream));
    go()
}

/// Waits for a stream.
#[inline(always)]
pub(crate) fn wait(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Stream(stream));
    let status = go();
    pool::look_again_after_waiting();
    status
}

/// Waits for an event.
#[inline(always)]
pub(crate) fn wait_event(go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Event);
    let status = go();
    pool::look_again_after_waiting();
    status
}

/// Lets a stream wait for what was recorded in another one.
#[inline(always)]
pub(crate) fn depend(go: impl Fn() -> CUresult) -> CUresult {
    gate::streams_depend();
    go()
}

/// Waits for a context, or does what implies it.
#[inline(always)]
pub(crate) fn wait_context(go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Context);
    let status = go();
    pool::look_again_after_waiting();
    status
}

/// A stream write to one word.
pub(crate) fn write(address: u64, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    if gate::holds(address, bytes) {
        return INVALID_VALUE;
    }
    go()
}

/// Several operations on words in one call.
///
/// # Safety
/// `list` is null or holds `count` operations.
pub(crate) unsafe fn write_several(
    list: *const CUstreamBatchMemOpParams,
    count: u32,
    go: impl Fn() -> CUresult,
) -> CUresult {
    let aimed_at_us = |operation: &CUstreamBatchMemOpParams| match operation.operation {
        WRITE_VALUE_32 => gate::holds(operation.address, 4),
        WRITE_VALUE_64 => gate::holds(operation.address, 8),
        _ => false,
    };
    // SAFETY: by contract.
    if !list.is_null() && (0..count as usize).any(|i| aimed_at_us(unsafe { &*list.add(i) })) {
        return INVALID_VALUE;
    }
    go()
}

/// The same, as a node of a graph.
///
/// # Safety
/// `node` is null or describes such a node.
pub(crate) unsafe fn write_node(node: *const CUDA_BATCH_MEM_OP_NODE_PARAMS, go: impl Fn() -> CUresult) -> CUresult {
    // SAFETY: by contract.
    match unsafe { node.as_ref() } {
        // SAFETY: by contract.
        Some(node) => unsafe { write_several(node.operations, node.count, go) },
        None => go(),
    }
}

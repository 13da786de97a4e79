//! Streams: their life, what they capture, who waits for them, and the words they may not touch.

use crate::cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUresult, CUstream, CUstreamBatchMemOpParams, INVALID_VALUE, SUCCESS,
    WRITE_VALUE_32, WRITE_VALUE_64,
};
use crate::gate::{self, Wait};

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
        gate::capture_began(stream);
    }
    status
}

/// A stream ends its recording; a failed end ends it too.
pub(crate) fn end_capture(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    gate::capture_ended(stream);
    status
}

/// Waits for a stream, or asks how far it is.
#[inline(always)]
pub(crate) fn wait(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Stream(stream));
    go()
}

/// Waits for an event, or asks whether it happened.
#[inline(always)]
pub(crate) fn wait_event(go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Event);
    go()
}

/// Waits for a context, or does what implies it.
#[inline(always)]
pub(crate) fn wait_context(go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Context);
    go()
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

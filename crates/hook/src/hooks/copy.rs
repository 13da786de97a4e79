//! Copies and fills.

use crate::cuda::types::{
    CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_BATCH_OP_v1, CUDA_MEMCPY3D_v1, CUDA_MEMCPY3D_v2, CUresult,
    CUstream,
};
use crate::gate::{self, Wait, Work};

/// A copy that is put into a stream.
#[inline(always)]
pub(crate) fn enqueued(stream: CUstream, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_launch(stream, Work::Copy(bytes));
    let status = go();
    gate::after_launch(stream, Work::Copy(bytes), status);
    status
}

/// A copy that the caller waits for.
#[inline(always)]
pub(crate) fn blocking(stream: CUstream, bytes: u64, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_sync(Wait::Stream(stream));
    let status = enqueued(stream, bytes, go);
    // It is done: nothing stays open behind it.
    gate::before_sync(Wait::Stream(stream));
    status
}

/// How much a description of a copy moves.
pub(crate) trait Extent {
    /// In bytes.
    fn bytes(&self) -> u64;
}

macro_rules! extent {
    ($($copy:ty: $($side:ident)*;)*) => {$(
        impl Extent for $copy {
            fn bytes(&self) -> u64 {
                1u64$(.saturating_mul(self.$side as u64))*
            }
        }
    )*};
}
extent! {
    CUDA_MEMCPY2D_v1: width height;
    CUDA_MEMCPY2D_v2: width height;
    CUDA_MEMCPY3D_v1: width height depth;
    CUDA_MEMCPY3D_v2: width height depth;
    CUDA_MEMCPY3D_BATCH_OP_v1: width height depth;
}

/// The bytes of a described copy; 0 for null.
///
/// # Safety
/// `copy` is null or a description.
pub(crate) unsafe fn extent<C: Extent>(copy: *const C) -> u64 {
    // SAFETY: by contract.
    unsafe { copy.as_ref() }.map_or(0, Extent::bytes)
}

/// The bytes of several described copies.
///
/// # Safety
/// `list` is null or holds `count` descriptions.
pub(crate) unsafe fn extents<C: Extent>(list: *const C, count: usize) -> u64 {
    if list.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    (0..count).fold(0, |sum, i| sum.saturating_add(unsafe { (*list.add(i)).bytes() }))
}

/// The sum of several sizes.
///
/// # Safety
/// `sizes` is null or holds `count` numbers.
pub(crate) unsafe fn sum(sizes: *const usize, count: usize) -> u64 {
    if sizes.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    (0..count).fold(0, |sum, i| sum.saturating_add(unsafe { *sizes.add(i) } as u64))
}

//! Types and constants of the driver API that the hooks look into; what they only hand on stays `c_void`.

#![allow(
    non_camel_case_types,
    non_snake_case,
    dead_code,
    reason = "names and values are the header's, and complete rather than minimal"
)]

use core::ffi::c_void;

/// Status of a call.
pub(crate) type CUresult = u32;
/// A device's ordinal.
pub(crate) type CUdevice = i32;
/// The same, as older entry points have it.
pub(crate) type CUdevice_v1 = i32;
/// A stream; null is the default stream.
pub(crate) type CUstream = *mut c_void;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const INVALID_VALUE: CUresult = 1;
pub(crate) const OUT_OF_MEMORY: CUresult = 2;
pub(crate) const NO_DEVICE: CUresult = 100;
pub(crate) const INVALID_DEVICE: CUresult = 101;
pub(crate) const NOT_FOUND: CUresult = 500;
pub(crate) const NOT_PERMITTED: CUresult = 800;
pub(crate) const NOT_SUPPORTED: CUresult = 801;
pub(crate) const SYSTEM_NOT_READY: CUresult = 802;

/// The default stream of functions without a suffix.
pub(crate) const LEGACY: CUstream = core::ptr::null_mut();
/// The calling thread's default stream, by its handle.
pub(crate) const PER_THREAD: CUstream = 2 as CUstream;

/// The stream that a `_ptsz` or `_ptds` function means.
pub(crate) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD } else { stream }
}

/// A device's identity.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CUuuid {
    pub(crate) bytes: [u8; 16],
}

/// Where memory lies.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CUmemLocation {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}
pub(crate) type CUmemLocation_v1 = CUmemLocation;
pub(crate) const LOCATION_DEVICE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUmemAllocationProp_v1 {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: CUmemLocation,
    pub(crate) metadata: *mut c_void,
    pub(crate) flags: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUmemPoolProps_v1 {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: CUmemLocation,
    pub(crate) security: *mut c_void,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}
pub(crate) const POOL_RESERVED_NOW: u32 = 5;
pub(crate) const GRAPH_USED_NOW: u32 = 0;
pub(crate) const GRAPH_RESERVED_NOW: u32 = 2;
pub(crate) const NODE_GRAPH: u32 = 4;
pub(crate) const NODE_MEM_ALLOC: u32 = 10;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub(crate) pool: CUmemPoolProps_v1,
    pub(crate) access: *const c_void,
    pub(crate) access_count: usize,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
}

#[repr(C)]
pub(crate) struct CUlaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: u32,
}

#[repr(C)]
pub(crate) struct CUDA_LAUNCH_PARAMS_v1 {
    pub(crate) function: *mut c_void,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: CUstream,
    pub(crate) parameters: *mut *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_ARRAY_DESCRIPTOR_v1 {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_ARRAY_DESCRIPTOR_v2 {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) depth: u32,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_ARRAY3D_DESCRIPTOR_v2 {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}
pub(crate) const ARRAY_CUBEMAP: u32 = 0x04;
pub(crate) const ARRAY_SPARSE: u32 = 0x40;
pub(crate) const ARRAY_DEFERRED: u32 = 0x80;

/// A copy between rectangles; only its extent matters here.
#[repr(C, align(8))]
pub(crate) struct CUDA_MEMCPY2D_v1 {
    ends: [u32; 21],
    pub(crate) width: u32,
    pub(crate) height: u32,
}

#[repr(C)]
pub(crate) struct CUDA_MEMCPY2D_v2 {
    ends: [usize; 14],
    pub(crate) width: usize,
    pub(crate) height: usize,
}

#[repr(C)]
pub(crate) struct CUDA_MEMCPY3D_v2 {
    ends: [usize; 22],
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}
pub(crate) type CUDA_MEMCPY3D_PEER_v1 = CUDA_MEMCPY3D_v2;

#[repr(C, align(8))]
pub(crate) struct CUDA_MEMCPY3D_v1 {
    ends: [u32; 32],
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) depth: u32,
}

/// One of several 3D copies handed over together.
#[repr(C)]
pub(crate) struct CUDA_MEMCPY3D_BATCH_OP_v1 {
    operands: [usize; 10],
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    flags: [u32; 2],
}

/// One operation of a batch on memory words.
#[repr(C)]
pub(crate) struct CUstreamBatchMemOpParams_v1 {
    pub(crate) operation: u32,
    pub(crate) address: u64,
    rest: [u64; 4],
}
pub(crate) type CUstreamBatchMemOpParams = CUstreamBatchMemOpParams_v1;

impl CUstreamBatchMemOpParams_v1 {
    /// Nothing, to be replaced.
    pub(crate) const NONE: Self = CUstreamBatchMemOpParams_v1 { operation: 0, address: 0, rest: [0; 4] };

    /// The stream goes on when the word equals `value`.
    pub(crate) fn wait_equal(address: u64, value: u32) -> Self {
        const EQUAL: u64 = 1;
        CUstreamBatchMemOpParams_v1 { operation: WAIT_VALUE_32, address, rest: [u64::from(value), EQUAL, 0, 0] }
    }

    /// The stream stores `value`.
    pub(crate) fn write(address: u64, value: u32) -> Self {
        CUstreamBatchMemOpParams_v1 { operation: WRITE_VALUE_32, address, rest: [u64::from(value), 0, 0, 0] }
    }
}
pub(crate) const WAIT_VALUE_32: u32 = 1;
pub(crate) const WRITE_VALUE_32: u32 = 2;
pub(crate) const WRITE_VALUE_64: u32 = 5;

#[repr(C)]
pub(crate) struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
    pub(crate) context: *mut c_void,
    pub(crate) count: u32,
    pub(crate) operations: *const CUstreamBatchMemOpParams,
    pub(crate) flags: u32,
}

/// The sizes the table (tables/types.tsv) has, asked of the C compiler.
const _: () = {
    assert!(size_of::<CUmemAllocationProp_v1>() == 32);
    assert!(size_of::<CUmemPoolProps_v1>() == 88);
    assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);
    assert!(size_of::<CUlaunchConfig>() == 56);
    assert!(size_of::<CUDA_LAUNCH_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_ARRAY_DESCRIPTOR_v1>() == 16);
    assert!(size_of::<CUDA_ARRAY_DESCRIPTOR_v2>() == 24);
    assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR_v1>() == 24);
    assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR_v2>() == 40);
    assert!(size_of::<CUDA_MEMCPY2D_v1>() == 96);
    assert!(size_of::<CUDA_MEMCPY2D_v2>() == 128);
    assert!(size_of::<CUDA_MEMCPY3D_v1>() == 144);
    assert!(size_of::<CUDA_MEMCPY3D_v2>() == 200);
    assert!(size_of::<CUDA_MEMCPY3D_BATCH_OP_v1>() == 112);
    assert!(size_of::<CUstreamBatchMemOpParams_v1>() == 48);
    assert!(size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS>() == 32);
};

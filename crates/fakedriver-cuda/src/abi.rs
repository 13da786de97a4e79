//! The driver's error codes and the structures of its interface, laid out as in `cuda.h` (sizes checked against `tables/types.tsv`).
#![expect(dead_code, reason = "a layout has fields that only its callers use")]

use std::ffi::c_void;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

/// What a driver function answers.
pub(crate) type Answer = Result<(), Error>;

impl Error {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(46);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_IMAGE: Self = Self(200);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const UNSUPPORTED_LIMIT: Self = Self(215);
    pub(crate) const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    pub(crate) const FILE_NOT_FOUND: Self = Self(301);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const ILLEGAL_STATE: Self = Self(401);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const ILLEGAL_ADDRESS: Self = Self(700);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub(crate) const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    pub(crate) const PRIMARY_CONTEXT_ACTIVE: Self = Self(708);
    pub(crate) const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    pub(crate) const LAUNCH_FAILED: Self = Self(719);
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: Self = Self(720);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const SYSTEM_NOT_READY: Self = Self(802);
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(crate) const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    pub(crate) const STREAM_CAPTURE_MERGE: Self = Self(902);
    pub(crate) const STREAM_CAPTURE_UNMATCHED: Self = Self(903);
    pub(crate) const STREAM_CAPTURE_UNJOINED: Self = Self(904);
    pub(crate) const STREAM_CAPTURE_ISOLATION: Self = Self(905);
    pub(crate) const STREAM_CAPTURE_IMPLICIT: Self = Self(906);
    pub(crate) const CAPTURED_EVENT: Self = Self(907);
    pub(crate) const STREAM_CAPTURE_WRONG_THREAD: Self = Self(908);
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
    pub(crate) const UNKNOWN: Self = Self(999);
}

macro_rules! structures {
    ($($(#[$note:meta])* struct $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => { $(
        $(#[$note])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
    )* };
}

structures! {
    struct CUuuid { bytes: [u8; 16] }
    struct CUipcMemHandle_v1 { bytes: [u8; 64] }
    struct CUipcEventHandle_v1 { bytes: [u8; 64] }
    struct CUmemLocation_v1 { kind: u32, id: i32 }
    struct CUmemAccessDesc_v1 { location: CUmemLocation_v1, flags: u32 }
    struct CUmemAllocationProp_v1 {
        kind: u32, handle_types: u32, location: CUmemLocation_v1, metadata: u64,
        compression: u8, rdma: u8, usage: u16, reserved: [u8; 4],
    }
    struct CUmemPoolProps_v1 {
        kind: u32, handle_types: u32, location: CUmemLocation_v1, security: u64, max_size: usize, usage: u16, reserved: [u8; 54],
    }
    struct CUmemPoolPtrExportData_v1 { bytes: [u8; 64] }
    struct CUmulticastObjectProp { devices: u32, size: usize, handle_types: u64, flags: u64 }
    struct CUDA_ARRAY_DESCRIPTOR_v1 { width: u32, height: u32, format: u32, channels: u32 }
    struct CUDA_ARRAY_DESCRIPTOR_v2 { width: usize, height: usize, format: u32, channels: u32 }
    struct CUDA_ARRAY3D_DESCRIPTOR_v1 { width: u32, height: u32, depth: u32, format: u32, channels: u32, flags: u32 }
    struct CUDA_ARRAY3D_DESCRIPTOR_v2 { width: usize, height: usize, depth: usize, format: u32, channels: u32, flags: u32 }
    struct CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 { size: usize, alignment: usize, reserved: [u32; 4] }
    struct CUDA_ARRAY_SPARSE_PROPERTIES_v1 { tile: [u32; 3], first_level: u32, size: u64, flags: u32, reserved: [u32; 4] }
    struct CUarrayMapInfo_v1 {
        resource_kind: u32, resource: u64, subresource_kind: u32, subresource: [u64; 4], operation: u32, handle_kind: u32,
        handle: u64, offset: u64, devices: u32, flags: u32, reserved: [u32; 2],
    }
    struct CUDA_MEMCPY2D_v2 {
        src_x: usize, src_y: usize, src_kind: u32, src_host: u64, src_device: u64, src_array: u64, src_pitch: usize,
        dst_x: usize, dst_y: usize, dst_kind: u32, dst_host: u64, dst_device: u64, dst_array: u64, dst_pitch: usize,
        width: usize, height: usize,
    }
    struct CUDA_MEMCPY3D_v2 {
        src_x: usize, src_y: usize, src_z: usize, src_level: usize, src_kind: u32, src_host: u64, src_device: u64, src_array: u64,
        src_context: u64, src_pitch: usize, src_height: usize,
        dst_x: usize, dst_y: usize, dst_z: usize, dst_level: usize, dst_kind: u32, dst_host: u64, dst_device: u64, dst_array: u64,
        dst_context: u64, dst_pitch: usize, dst_height: usize,
        width: usize, height: usize, depth: usize,
    }
    struct CUmemcpyAttributes_v1 { order: u32, source: CUmemLocation_v1, target: CUmemLocation_v1, flags: u32 }
    struct CUDA_MEMCPY3D_BATCH_OP_v1 { source: Operand, target: Operand, extent: [usize; 3], order: u32, flags: u32 }
    /// A pointer (address, row length, layer height, hint) or an array (handle, x, y, z).
    struct Operand { kind: u32, words: [u64; 4] }
    struct CUlaunchConfig { grid: [u32; 3], block: [u32; 3], shared: u32, stream: u64, attributes: *const CUlaunchAttribute, count: u32 }
    struct CUlaunchAttribute { id: u32, pad: u32, value: [u64; 8] }
    struct CUkernelNodeAttrValue_v1 { value: [u64; 8] }
    struct CUstreamAttrValue_v1 { value: [u64; 8] }
    struct CUDA_LAUNCH_PARAMS_v1 { function: u64, grid: [u32; 3], block: [u32; 3], shared: u32, stream: u64, params: *mut *mut c_void }
    /// One operation: `words` are address, value, flags (low half) and alias, as the operation needs them.
    struct CUstreamBatchMemOpParams { operation: u32, flags: u32, address: u64, value: u64, more_flags: u32, alias: u64, pad: u64 }
    struct CUdevprop_v1 {
        threads: i32, block: [i32; 3], grid: [i32; 3], shared: i32, constant: i32, width: i32, pitch: i32, registers: i32, clock: i32,
        texture_align: i32,
    }
    struct CUexecAffinityParam { kind: u32, count: u32 }
    struct CUctxCreateParams { affinity: *const CUexecAffinityParam, count: i32, cig: u64 }
    struct CUdevResource { kind: u32, pad: [u8; 92], sms: u32, min: u32, alignment: u32, oversize: [u8; 36] }
    struct CUgraphEdgeData { from_port: u8, to_port: u8, kind: u8, reserved: [u8; 5] }
    struct CUgraphExecUpdateResultInfo { result: u32, node: u64, from: u64 }
    struct CUDA_KERNEL_NODE_PARAMS_v1 { function: u64, grid: [u32; 3], block: [u32; 3], shared: u32, params: *mut *mut c_void, extra: *mut *mut c_void }
    struct CUDA_KERNEL_NODE_PARAMS_v2 {
        function: u64, grid: [u32; 3], block: [u32; 3], shared: u32, params: *mut *mut c_void, extra: *mut *mut c_void, kernel: u64, context: u64,
    }
    struct CUDA_MEMSET_NODE_PARAMS_v1 { target: u64, pitch: usize, value: u32, element: u32, width: usize, height: usize }
    struct CUDA_HOST_NODE_PARAMS_v1 { function: u64, data: u64 }
    struct CUDA_MEM_ALLOC_NODE_PARAMS { pool: CUmemPoolProps_v1, access: u64, access_count: usize, bytes: usize, address: u64 }
    struct CUDA_BATCH_MEM_OP_NODE_PARAMS { context: u64, count: u32, operations: *const CUstreamBatchMemOpParams, flags: u32 }
    struct CUDA_GRAPH_INSTANTIATE_PARAMS { flags: u64, stream: u64, node: u64, result: u32 }
    struct CUDA_RESOURCE_DESC_v1 { words: [u64; 18] }
    struct CUDA_TEXTURE_DESC_v1 { words: [u32; 26] }
    struct CUDA_RESOURCE_VIEW_DESC_v1 { words: [u64; 14] }
    struct CUtensorMap { words: [u64; 16] }
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1 { kind: u32, handle: [u64; 2], size: u64, flags: u32, reserved: [u32; 16] }
    struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1 { offset: u64, size: u64, flags: u32, reserved: [u32; 16] }
    /// A node of any type; `words` is the union of the types' parameters.
    struct CUgraphNodeParams { kind: u32, reserved: [u32; 3], words: [u64; 29], last: u64 }
}

/// The newest version has the plain name.
pub(crate) type CUmemLocation = CUmemLocation_v1;
/// The same, but for two fields that are contexts here and nothing there.
#[expect(non_camel_case_types, reason = "named as in cuda.h")]
pub(crate) type CUDA_MEMCPY3D_PEER_v1 = CUDA_MEMCPY3D_v2;

/// A texture or surface object.
pub(crate) struct TextureObject {
    pub(crate) resource: CUDA_RESOURCE_DESC_v1,
    pub(crate) texture: Option<CUDA_TEXTURE_DESC_v1>,
    pub(crate) view: Option<CUDA_RESOURCE_VIEW_DESC_v1>,
}

#[expect(non_camel_case_types, reason = "the name in the headers")]
pub(crate) type CUstreamBatchMemOpParams_v1 = CUstreamBatchMemOpParams;

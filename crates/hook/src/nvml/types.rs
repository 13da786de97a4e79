//! Types and constants of NVML that the hooks look into.

#![allow(
    non_camel_case_types,
    dead_code,
    reason = "names and values are the header's, and complete rather than minimal"
)]

use core::ffi::c_void;

/// Status of a call.
pub(crate) type nvmlReturn_t = u32;
/// A device; opaque.
pub(crate) type nvmlDevice_t = *mut c_void;

pub(crate) const SUCCESS: nvmlReturn_t = 0;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NO_PERMISSION: nvmlReturn_t = 4;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const LIBRARY_NOT_FOUND: nvmlReturn_t = 12;
pub(crate) const FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// No instance of a partitioned card.
pub(crate) const NO_INSTANCE: u32 = u32::MAX;

#[repr(C)]
pub(crate) struct nvmlMemory_t {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

#[repr(C)]
pub(crate) struct nvmlMemory_v2_t {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

#[repr(C)]
pub(crate) struct nvmlUtilization_t {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessInfo_v1_t {
    pub(crate) pid: u32,
    pub(crate) used: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessInfo_v2_t {
    pub(crate) pid: u32,
    pub(crate) used: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}
pub(crate) type nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessDetail {
    pub(crate) pid: u32,
    pub(crate) used: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    pub(crate) protected: u64,
}

#[repr(C)]
pub(crate) struct nvmlProcessDetailList_t {
    pub(crate) version: u32,
    pub(crate) mode: u32,
    pub(crate) count: u32,
    pub(crate) list: *mut ProcessDetail,
}
/// Version and size in one number, as NVML spells it.
pub(crate) const PROCESS_DETAIL_LIST_V1: u32 = size_of::<nvmlProcessDetailList_t>() as u32 | (1 << 24);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessUtilizationSample_t {
    pub(crate) pid: u32,
    pub(crate) time: u64,
    pub(crate) utilisation: [u32; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessUtilizationInfo {
    pub(crate) time: u64,
    pub(crate) pid: u32,
    pub(crate) utilisation: [u32; 6],
}

#[repr(C)]
pub(crate) struct nvmlProcessesUtilizationInfo_t {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) last_seen: u64,
    pub(crate) list: *mut ProcessUtilizationInfo,
}
pub(crate) const PROCESSES_UTILISATION_V1: u32 = size_of::<nvmlProcessesUtilizationInfo_t>() as u32 | (1 << 24);

/// The beginning of the second form, all that has to be looked into.
#[repr(C)]
pub(crate) struct nvmlAccountingStats_v2_t {
    pub(crate) pid: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlSample_t {
    pub(crate) time: u64,
    pub(crate) value: u64,
}

const _: () = {
    assert!(size_of::<nvmlMemory_t>() == 24 && size_of::<nvmlMemory_v2_t>() == 40);
    assert!(size_of::<nvmlProcessInfo_v1_t>() == 16 && size_of::<nvmlProcessInfo_v2_t>() == 24);
    assert!(size_of::<ProcessDetail>() == 32 && size_of::<nvmlProcessDetailList_t>() == 24);
    assert!(size_of::<nvmlProcessUtilizationSample_t>() == 32 && size_of::<ProcessUtilizationInfo>() == 40);
    assert!(size_of::<nvmlProcessesUtilizationInfo_t>() == 24 && size_of::<nvmlSample_t>() == 16);
};

//! NVML's return codes and structures, laid out as in `nvml.h` (sizes checked against `tables/types.tsv`).

/// An `nvmlReturn_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

/// What an NVML function answers.
pub(crate) type Answer = Result<(), Error>;

impl Error {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const VERSION_MISMATCH: Self = Self(25);
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
    struct nvmlMemory_t { total: u64, free: u64, used: u64 }
    struct nvmlMemory_v2_t { version: u32, total: u64, reserved: u64, free: u64, used: u64 }
    struct nvmlBAR1Memory_t { total: u64, free: u64, used: u64 }
    struct nvmlPciInfo_t { bus_id_legacy: [u8; 16], domain: u32, bus: u32, device: u32, device_id: u32, subsystem: u32, bus_id: [u8; 32] }
    struct nvmlPciInfoExt_t {
        version: u32, domain: u32, bus: u32, device: u32, device_id: u32, subsystem: u32, base_class: u32, sub_class: u32, bus_id: [u8; 32],
    }
    struct nvmlUtilization_t { gpu: u32, memory: u32 }
    struct nvmlProcessInfo_v1_t { pid: u32, used: u64 }
    struct nvmlProcessInfo_v2_t { pid: u32, used: u64, gpu_instance: u32, compute_instance: u32 }
    struct nvmlProcessInfo_t { pid: u32, used: u64, gpu_instance: u32, compute_instance: u32 }
    struct ProcessDetail { pid: u32, used: u64, gpu_instance: u32, compute_instance: u32, protected: u64 }
    struct nvmlProcessDetailList_t { version: u32, mode: u32, count: u32, processes: *mut ProcessDetail }
    struct nvmlProcessUtilizationSample_t { pid: u32, time: u64, sm: u32, memory: u32, encoder: u32, decoder: u32 }
    struct ProcessUtilization { time: u64, pid: u32, sm: u32, memory: u32, encoder: u32, decoder: u32, jpeg: u32, ofa: u32 }
    struct nvmlProcessesUtilizationInfo_t { version: u32, count: u32, last_seen: u64, processes: *mut ProcessUtilization }
    struct nvmlSample_t { time: u64, value: u64 }
    struct nvmlFieldValue_t { field: u32, scope: u32, time: i64, latency: i64, kind: u32, outcome: u32, value: u64 }
    struct nvmlEventData_t { device: u64, kind: u64, data: u64, gpu_instance: u32, compute_instance: u32 }
    struct nvmlEccErrorCounts_t { l1: u64, l2: u64, memory: u64, registers: u64 }
    struct nvmlDeviceAttributes_t {
        multiprocessors: u32, copy_engines: u32, decoders: u32, encoders: u32, jpegs: u32, ofas: u32, gpu_slices: u32, compute_slices: u32,
        memory_mib: u64,
    }
    struct nvmlGpuInstancePlacement_t { start: u32, size: u32 }
    struct nvmlGpuInstanceInfo_t { device: u64, id: u32, profile: u32, placement: nvmlGpuInstancePlacement_t }
    struct nvmlComputeInstanceInfo_t { device: u64, gpu_instance: u64, id: u32, profile: u32, placement: nvmlGpuInstancePlacement_t }
    struct nvmlGpuInstanceProfileInfo_t {
        id: u32, p2p: u32, slices: u32, instances: u32, multiprocessors: u32, copy_engines: u32, decoders: u32, encoders: u32, jpegs: u32,
        ofas: u32, memory_mib: u64,
    }
    struct nvmlGpuInstanceProfileInfo_v2_t {
        version: u32, id: u32, p2p: u32, slices: u32, instances: u32, multiprocessors: u32, copy_engines: u32, decoders: u32, encoders: u32,
        jpegs: u32, ofas: u32, memory_mib: u64, name: [u8; 96],
    }
    struct nvmlAccountingStats_t { gpu: u32, memory: u32, peak: u64, time: u64, start: u64, running: u32, reserved: [u32; 5] }
    struct nvmlViolationTime_t { reference: u64, violation: u64 }
    struct nvmlUUID_t { version: u32, kind: u32, value: [u8; 44] }
    struct nvmlTemperature_t { version: u32, sensor: u32, temperature: i32 }
    struct nvmlMarginTemperature_t { version: u32, margin: i32 }
    struct nvmlRowRemapperHistogramValues_t { max: u32, high: u32, partial: u32, low: u32, none: u32 }
    struct nvmlGpuFabricInfo_t { cluster: [u8; 16], status: u32, clique: u32, state: u32 }
    struct nvmlSystemDriverBranchInfo_t { version: u32, branch: [u8; 80] }
    struct nvmlPowerValue_v2_t { version: u32, scope: u32, milliwatts: u32 }
}

/// The number a caller writes into the first field of a structure that has versions.
pub(crate) fn version_of<T>(version: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0) | version << 24
}

/// A text in a field of fixed room.
pub(crate) fn chars<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    field.iter_mut().zip(text.bytes().take(N - 1)).for_each(|(place, byte)| *place = byte);
    field
}

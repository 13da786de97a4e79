//! Kernels.

use crate::cuda::types::{CUDA_LAUNCH_PARAMS_v1, CUlaunchConfig, CUresult, CUstream};
use crate::gate::{self, Work};

/// One kernel on one stream.
#[inline(always)]
pub(crate) fn kernel(stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    gate::before_launch(stream, Work::Kernel);
    let status = go();
    gate::after_launch(stream, Work::Kernel, status);
    status
}

/// One kernel on the stream its configuration names.
///
/// # Safety
/// `config` is null or a launch configuration.
#[inline(always)]
pub(crate) unsafe fn configured(
    config: *const CUlaunchConfig,
    default: CUstream,
    go: impl Fn() -> CUresult,
) -> CUresult {
    // SAFETY: by contract.
    let stream = unsafe { config.as_ref() }.map_or(default, |c| if c.stream.is_null() { default } else { c.stream });
    kernel(stream, go)
}

/// One cooperative kernel on several devices: it runs on all of them or hangs, so it is never held on one.
///
/// # Safety
/// `list` is null or holds `count` launches.
pub(crate) unsafe fn on_several(list: *const CUDA_LAUNCH_PARAMS_v1, count: u32, go: impl Fn() -> CUresult) -> CUresult {
    let each = |f: &dyn Fn(CUstream)| {
        if !list.is_null() {
            for i in 0..count as usize {
                // SAFETY: by contract.
                f(unsafe { (*list.add(i)).stream });
            }
        }
    };
    each(&|stream| gate::before_launch(stream, Work::MultiDevice));
    let status = go();
    each(&|stream| gate::after_launch(stream, Work::MultiDevice, status));
    status
}

//! Which devices there are: those of the container, in the driver's order.
//!
//! In a container only the granted devices exist and this changes nothing. Where more are visible (a privileged container, a shell on
//! the node), the others are not counted.

use core::ffi::c_char;

use crate::cuda::real;
use crate::cuda::types::{CUdevice, CUresult, INVALID_DEVICE, SUCCESS};
use crate::device::Place;
use crate::process::{Member, of_container};

/// The driver's numbers of the granted devices.
fn granted(member: Member) -> impl Iterator<Item = CUdevice> {
    let mut count = 0;
    // SAFETY: a place for the number.
    let known = real::cuDeviceGetCount().is_some_and(|ask| unsafe { ask(&mut count) } == SUCCESS);
    let count = if known { count } else { 0 };
    (0..count).filter(move |&ordinal| matches!(member.place(ordinal), Some(Place::Granted(_))))
}

/// How many devices there are.
///
/// # Safety
/// `count` is null or where the driver puts the number.
pub(crate) unsafe fn count(count: *mut i32, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let (Some(member), SUCCESS) = (of_container(), status) {
        // SAFETY: by contract.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = i32::try_from(granted(member).count()).unwrap_or(0);
        }
    }
    status
}

/// The device of a number.
///
/// # Safety
/// `device` is null or where the driver puts the device.
pub(crate) unsafe fn device(device: *mut CUdevice, ordinal: i32, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    let Some(member) = of_container().filter(|_| status == SUCCESS) else { return status };
    let (Ok(wanted), Some(real)) = (usize::try_from(ordinal), real::cuDeviceGet()) else { return status };
    match granted(member).nth(wanted) {
        Some(number) if number == ordinal => status,
        // SAFETY: by contract, with another number.
        Some(number) => unsafe { real(device, number) },
        None => INVALID_DEVICE,
    }
}

/// The device at an address of the bus.
///
/// # Safety
/// `device` is null or where the driver puts the device.
pub(crate) unsafe fn by_bus(device: *mut CUdevice, _bus: *const c_char, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    let Some(member) = of_container().filter(|_| status == SUCCESS) else { return status };
    // SAFETY: by contract.
    match unsafe { device.as_ref() }.and_then(|&d| member.place(d)) {
        Some(Place::Foreign) => INVALID_DEVICE,
        _ => status,
    }
}

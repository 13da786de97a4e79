//! How busy a card is: by the container's own work, where the card is shared and the arbiter books it.

use core::ffi::c_void;

use super::devices::Card;
use super::types::{
    INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, nvmlDevice_t, nvmlReturn_t, nvmlSample_t,
    nvmlUtilization_t,
};
use crate::process::of_container;

/// Per cent of the card's time that the container used in the last second; nothing where the card is its own.
fn own(device: nvmlDevice_t) -> Option<u32> {
    let member = of_container()?;
    let Card::Granted(place) = member.card(device)? else { return None };
    let limits = member.gate().limits(place)?;
    (limits.gated && !limits.whole_card)
        .then(|| member.gate().gate(place).map_or(0, |g| g.booked().utilisation.div_ceil(10).min(100)))
}

/// Utilisation of the card and of its memory.
///
/// # Safety
/// `rates` is null or where NVML puts the numbers.
pub(crate) unsafe fn rates(
    device: nvmlDevice_t,
    rates: *mut nvmlUtilization_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    if let (SUCCESS, Some(rates), Some(own)) = (status, unsafe { rates.as_mut() }, own(device)) {
        // Memory is only busy while the container's work runs.
        *rates = nvmlUtilization_t { gpu: own, memory: rates.memory.min(own) };
    }
    status
}

/// Engines that nobody books by container: not told on a shared card, where the number would be the neighbours'.
pub(crate) fn engine(device: nvmlDevice_t, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    if own(device).is_some() { NOT_SUPPORTED } else { go() }
}

/// Counters of the whole card, between two samples that do not say which card.
pub(crate) fn metrics(_metrics: *mut c_void, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    let shared = |member: crate::process::Member| {
        (0..member.gate().devices()).any(|d| member.gate().limits(d).is_some_and(|l| l.gated && !l.whole_card))
    };
    if of_container().is_some_and(shared) { NOT_SUPPORTED } else { go() }
}

/// Samples of the recent past.
///
/// # Safety
/// The pointers are null or where NVML puts its answers.
pub(crate) unsafe fn samples(
    device: nvmlDevice_t,
    kind: u32,
    value_kind: *mut u32,
    count: *mut u32,
    samples: *mut nvmlSample_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    const CARD: u32 = 1;
    const MEMORY: u32 = 2;
    const ENGINES: [u32; 4] = [3, 4, 8, 9];
    const UNSIGNED: u32 = 1;
    let Some(own) = own(device) else { return go() };
    if kind == MEMORY || ENGINES.contains(&kind) {
        return NOT_SUPPORTED;
    }
    if kind != CARD {
        return go();
    }
    // SAFETY: by contract.
    let (Some(count), value_kind) = (unsafe { (count.as_mut(), value_kind.as_mut()) }) else { return INVALID_ARGUMENT };
    if let Some(kind) = value_kind {
        *kind = UNSIGNED;
    }
    let room = *count;
    *count = 1;
    if samples.is_null() {
        return SUCCESS; // asked for the number alone
    }
    if room == 0 {
        return INSUFFICIENT_SIZE;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time, and room for one sample.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        samples.write(nvmlSample_t {
            time: now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000,
            value: u64::from(own),
        });
    }
    SUCCESS
}

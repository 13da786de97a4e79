//! Processes on a card: the container's own, by the pids they know themselves by.

use core::ffi::c_void;

use alloc::vec::Vec;

use divvy_shm::ledger::{Process, State};

use super::devices::Card;
use super::real;
use super::types::{
    INSUFFICIENT_SIZE, INVALID_ARGUMENT, NO_INSTANCE, NOT_FOUND, PROCESS_DETAIL_LIST_V1, PROCESSES_UTILISATION_V1,
    ProcessDetail, ProcessUtilizationInfo, SUCCESS, nvmlAccountingStats_v2_t, nvmlDevice_t, nvmlProcessDetailList_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_t,
    nvmlReturn_t,
};
use crate::liveness::own_namespace;
use crate::process::{Member, of_container};

/// One process of the container on one card.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pid: u32,
    used: u64,
}

impl From<Seen> for nvmlProcessInfo_v1_t {
    fn from(seen: Seen) -> Self {
        nvmlProcessInfo_v1_t { pid: seen.pid, used: seen.used }
    }
}

impl From<Seen> for nvmlProcessInfo_v2_t {
    fn from(seen: Seen) -> Self {
        let none = NO_INSTANCE;
        nvmlProcessInfo_v2_t { pid: seen.pid, used: seen.used, gpu_instance: none, compute_instance: none }
    }
}

impl From<Seen> for ProcessDetail {
    fn from(seen: Seen) -> Self {
        let none = NO_INSTANCE;
        ProcessDetail { pid: seen.pid, used: seen.used, gpu_instance: none, compute_instance: none, protected: 0 }
    }
}

/// The live processes whose pids mean something to the caller.
fn neighbours(member: Member) -> impl Iterator<Item = Process> {
    let namespace = own_namespace();
    let ours = move |p: &Process| p.state == State::Live && (p.namespace == namespace || p.namespace == 0);
    member.ledger().processes().filter(ours)
}

/// The container's processes on a card, by the kind of work; nothing if the card is not the container's to look at.
fn on_card(device: nvmlDevice_t) -> Option<Vec<Seen>> {
    let member = of_container()?;
    let Card::Granted(place) = member.card(device)? else { return Some(Vec::new()) };
    let seen = |p: Process| Seen { pid: p.pid, used: member.ledger().held_in_all(p.id, place) };
    Some(neighbours(member).map(seen).filter(|s| s.used > 0).collect())
}

/// Copies a list the way NVML does: `count` says how much room there is, and afterwards how many there are.
unsafe fn hand_out<T: From<Seen>>(list: &[Seen], count: *mut u32, out: *mut T) -> nvmlReturn_t {
    // SAFETY: by the caller's contract.
    let Some(count) = (unsafe { count.as_mut() }) else { return INVALID_ARGUMENT };
    let room = *count as usize;
    *count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    if room < list.len() {
        return INSUFFICIENT_SIZE;
    }
    if out.is_null() && !list.is_empty() {
        return INVALID_ARGUMENT;
    }
    for (i, &seen) in list.iter().enumerate() {
        // SAFETY: there is room for so many.
        unsafe { out.add(i).write(T::from(seen)) };
    }
    SUCCESS
}

/// Processes that compute. What the caller's NVML would say about the card is asked first: a card that is lost says so.
///
/// # Safety
/// `count` and `out` are null or a list as NVML wants it.
pub(crate) unsafe fn computing<T: From<Seen>>(
    device: nvmlDevice_t,
    count: *mut u32,
    out: *mut T,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(list) = on_card(device) else { return go() };
    // SAFETY: by contract.
    unsafe { hand_out(&list, count, out) }
}

/// Processes that draw, or that compute through a shared server: none of ours do.
///
/// # Safety
/// `count` is null or where NVML puts the number.
pub(crate) unsafe fn none(device: nvmlDevice_t, count: *mut u32, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    if of_container().and_then(|m| m.card(device)).is_none() {
        return go();
    }
    // SAFETY: by contract; an empty list is not written to.
    unsafe { hand_out::<nvmlProcessInfo_v1_t>(&[], count, core::ptr::null_mut()) }
}

/// Processes with details.
///
/// # Safety
/// `list` is null or the caller's request.
pub(crate) unsafe fn details(
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    const COMPUTE: u32 = 0;
    const ALL: u32 = 3;
    // SAFETY: by contract.
    let Some(request) = (unsafe { list.as_mut() }).filter(|l| l.version == PROCESS_DETAIL_LIST_V1) else { return go() };
    let Some(seen) = on_card(device) else { return go() };
    let seen = if matches!(request.mode, COMPUTE | ALL) { seen } else { Vec::new() };
    // SAFETY: by contract.
    unsafe { hand_out(&seen, &mut request.count, request.list) }
}

/// Utilisation by process: NVML's samples of the container's processes.
///
/// # Safety
/// `out` and `count` are null or a list as NVML wants it.
pub(crate) unsafe fn utilisation(
    device: nvmlDevice_t,
    out: *mut nvmlProcessUtilizationSample_t,
    count: *mut u32,
    last_seen: u64,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(member) = of_container().filter(|m| m.card(device).is_some()) else { return go() };
    // SAFETY: by contract.
    let Some(count) = (unsafe { count.as_mut() }) else { return go() };
    let all = match all_samples(device, last_seen) {
        Ok(all) => all,
        Err(status) => return status,
    };
    let own: Vec<_> = all
        .into_iter()
        .filter_map(|s| Some(nvmlProcessUtilizationSample_t { pid: here(member, s.pid)?, ..s }))
        .collect();
    if own.is_empty() {
        *count = 0;
        return NOT_FOUND;
    }
    let room = *count as usize;
    *count = u32::try_from(own.len()).unwrap_or(u32::MAX);
    if out.is_null() || room < own.len() {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: there is room for so many.
    unsafe { core::ptr::copy_nonoverlapping(own.as_ptr(), out, own.len()) };
    SUCCESS
}

fn all_samples(device: nvmlDevice_t, last_seen: u64) -> Result<Vec<nvmlProcessUtilizationSample_t>, nvmlReturn_t> {
    let Some(ask) = real::nvmlDeviceGetProcessUtilization() else { return Err(super::types::FUNCTION_NOT_FOUND) };
    let mut count = 0;
    // SAFETY: null asks for the number alone.
    match unsafe { ask(device, core::ptr::null_mut(), &mut count, last_seen) } {
        SUCCESS | INSUFFICIENT_SIZE => {}
        status => return Err(status),
    }
    let room = count as usize + 16; // more may come in between
    let mut all: Vec<nvmlProcessUtilizationSample_t> = Vec::with_capacity(room);
    count = room as u32;
    // SAFETY: room for so many; NVML says how many it wrote.
    unsafe {
        match ask(device, all.as_mut_ptr(), &mut count, last_seen) {
            SUCCESS => all.set_len((count as usize).min(room)),
            status => return Err(status),
        }
    }
    Ok(all)
}

/// The same in its newer form.
///
/// # Safety
/// `request` is null or the caller's.
pub(crate) unsafe fn utilisation_info(
    device: nvmlDevice_t,
    request: *mut nvmlProcessesUtilizationInfo_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(member) = of_container().filter(|m| m.card(device).is_some()) else { return go() };
    // SAFETY: by contract.
    let request = unsafe { request.as_mut() }.filter(|r| r.version == PROCESSES_UTILISATION_V1 && !r.list.is_null());
    let status = go();
    if let (Some(request), SUCCESS) = (request, status) {
        let mut kept = 0;
        for i in 0..request.count as usize {
            // SAFETY: NVML wrote so many.
            let sample = unsafe { *request.list.add(i) };
            if let Some(pid) = here(member, sample.pid) {
                // SAFETY: kept is at most i.
                unsafe { request.list.add(kept).write(ProcessUtilizationInfo { pid, ..sample }) };
                kept += 1;
            }
        }
        request.count = kept as u32;
    }
    status
}

/// The pid in the container of a process that NVML knows by its pid on the node.
fn here(member: Member, host_pid: u32) -> Option<u32> {
    neighbours(member).find(|p| p.host_pid == host_pid && host_pid != 0).map(|p| p.pid)
}

/// The pid on the node of a process of the container, once the agent has said so.
fn on_node(member: Member, pid: u32) -> Option<u32> {
    neighbours(member).find(|p| p.pid == pid && p.host_pid != 0).map(|p| p.host_pid)
}

/// Processes that accounting knows.
///
/// # Safety
/// `count` and `pids` are null or a list as NVML wants it.
pub(crate) unsafe fn accounted(
    device: nvmlDevice_t,
    count: *mut u32,
    pids: *mut u32,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let status = go();
    let Some(member) = of_container().filter(|m| m.card(device).is_some()) else { return status };
    // SAFETY: by contract; NVML wrote as many as it says.
    if let (SUCCESS, Some(count), false) = (status, unsafe { count.as_mut() }, pids.is_null()) {
        let mut kept = 0;
        for i in 0..*count as usize {
            // SAFETY: as above, and kept is at most i.
            unsafe {
                if let Some(pid) = here(member, *pids.add(i)) {
                    *pids.add(kept) = pid;
                    kept += 1;
                }
            }
        }
        *count = kept as u32;
    }
    status
}

/// What accounting knows of a process.
pub(crate) fn account(
    device: nvmlDevice_t,
    pid: u32,
    stats: *mut c_void,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(member) = of_container().filter(|m| m.card(device).is_some()) else { return go() };
    match (on_node(member, pid), real::nvmlDeviceGetAccountingStats()) {
        // SAFETY: the caller's own place for the answer.
        (Some(host_pid), Some(ask)) => unsafe { ask(device, host_pid, stats) },
        _ => NOT_FOUND,
    }
}

/// The same in its newer form, which carries the pid.
///
/// # Safety
/// `stats` is null or the caller's request.
pub(crate) unsafe fn account_v2(
    device: nvmlDevice_t,
    stats: *mut nvmlAccountingStats_v2_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(member) = of_container().filter(|m| m.card(device).is_some()) else { return go() };
    // SAFETY: by contract.
    let Some(request) = (unsafe { stats.as_mut() }) else { return go() };
    let pid = request.pid;
    let Some(host_pid) = on_node(member, pid) else { return NOT_FOUND };
    request.pid = host_pid;
    let status = go();
    request.pid = pid;
    status
}
